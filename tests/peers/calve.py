"""Calve as a peer: real `calve` processes, whose tasks run on a Spark Connect server."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calve.sink_core.control.log import REQUIRED_CONFIG
from calve.sink_core.errors import EXIT_DONE, EXIT_STOPPED
from tests import support
from tests.e2e.faults.processes import Launcher, Process
from tests.e2e.faults.spark_server import ConnectServer
from tests.peers.peer import PARTITIONS, Peer, until
from tests.pipelines import Flow

CHOICES = {
    "table-rolled-back": "refill",
    "table-recreated": "refill",
    "control-topic-recreated": "rebuild",
    "positions-changed": "restore",
    "positions-missing": "restore",
}
"""How each finding is answered."""
RUN_S = 600.0
LINGER_S = 600.0
RANDOM_S = (0.2, 6.0)


class Calve(Peer):
    """Each `take_in` is a `calve run`; a finding that stops it is answered by `calve resolve`, and the run repeated."""

    name = "Calve"

    def __init__(self, bootstrap: str, directory: Path, server: ConnectServer) -> None:
        super().__init__()
        topic = support.create_topic(bootstrap, support.unique("records"), PARTITIONS)
        spark = {"remote": server.address, "tasks": 2}
        self._flow = flow = Flow.create(directory, bootstrap, topic, spark=spark, extra={"batch": {"every": "0s"}})
        self.bootstrap, self.topic, self.table = bootstrap, topic, flow.table
        self.lake, self.catalog, self.source_group = flow.lake, flow.catalog, flow.pipeline.group
        self.control_topic, self.control_config = flow.pipeline.control_topic, REQUIRED_CONFIG
        self._launcher, self._server = Launcher(directory / "stderr"), server
        self._running: Process | None = None

    def take_in(self) -> None:
        while found := self._run():
            choice = CHOICES[found["finding"]]
            self.said.append(f"`{found['finding']}`, exit code 1")
            self.did.append(f"`calve resolve … --choose {choice}`")
            options = ["--subject", found["subject"], "--choose", choice, "--yes", "--json"]
            self._done(["resolve", self._file, found["finding"], *options])

    def begin(self) -> None:
        self._server.drop_daemons()
        # It serves the whole scenario: nobody starts the next run, as a sensor would.
        self._running = self._launcher.warm(["run", self._file, "--linger", str(LINGER_S), "--max-batches", "100000"])
        until(lambda: self._has_table() and self.rows() >= self.produced, RUN_S)

    def rest(self) -> None:
        if self._running is not None:
            self._running.kill(group=True)
            self._running.finish()
            self._running = None

    def die_in_the_first_commit(self) -> None:
        # The first publish is the bootstrap's.
        process = self._launcher.warm(["run", self._file], failpoint="publish.after-commit=kill@2")
        assert process.finish(RUN_S) == -9, process.errors
        assert self.load().current_snapshot() is None

    def die_at_random(self, chance: random.Random) -> None:
        self._server.drop_daemons()
        process = self._launcher.warm(["run", self._file, "--linger", str(LINGER_S)])
        time.sleep(chance.uniform(*RANDOM_S))
        process.kill(group=chance.random() < 0.5)
        process.finish(RUN_S)

    def reset_coordinator(self) -> None:
        """Calve's reads it from the start each time. Its only group is lost in place of that."""
        self.delete_group(self.source_group)

    def tolerate(self) -> None:
        letters = f"calve.{self._flow.name}_dead_letters"
        with self.opened() as catalog:
            rows = catalog.load_table(letters).scan().to_arrow().num_rows
        self.did.append(f"{rows} dead letters")

    def prove(self) -> None:
        """`calve verify --deep` holds."""
        self._done(["verify", self._file, "--deep"])

    @property
    def _file(self) -> str:
        return str(self._flow.pipeline.path)

    def _run(self) -> Mapping[str, Any] | None:
        """A run to its end; the finding that stopped it."""
        self._server.drop_daemons()
        process = self._launcher.warm(["run", self._file, "--json"])
        code = process.finish(RUN_S)
        if code == EXIT_DONE:
            return None
        assert code == EXIT_STOPPED, f"exit code {code}\n{process.output_text}\n{process.errors}"
        return json.loads(process.output_text)

    def _done(self, args: list[str]) -> None:
        process = self._launcher.warm(args)
        assert process.finish(RUN_S) == EXIT_DONE, f"{args}\n{process.output_text}\n{process.errors}"

    def _has_table(self) -> bool:
        with self.opened() as catalog:
            return catalog.table_exists(self.table)
