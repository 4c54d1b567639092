"""Kafka Connect as a distributed worker with exactly-once for sources, and what its REST interface says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from calve.orchestration.local.broker_files import write_logging
from calve.sink_core.detached import HOST
from calve.sink_core.jars import JarSet, kafka_jars, resolve
from calve.sink_core.java import find_java, write_properties
from calve.spark_jobs.session import JAVA_OPTIONS
from tests import support
from tests.peers.connect import CONNECT

FILE_CONNECTOR = JarSet("kafka-connect-file", extras=("org.apache.kafka:connect-file:4.3.1",))
"""Beside the worker's, of the same version."""
START_S = 300.0
STOP_S = 60.0
_LOOK_EVERY_S = 0.1


class Refused(Exception):
    """What the REST interface answered in place of a result."""


@dataclass
class Worker:
    """The only worker of its group, with topics of its own. `names` begins the group and the topics."""

    bootstrap: str
    directory: Path
    names: str
    port: int = field(default_factory=support.steady_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def group(self) -> str:
        return f"{self.names}-workers"

    @property
    def offsets(self) -> str:
        """Its `offset.storage.topic`."""
        return f"{self.names}-offsets"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The end of its log."""
        return (self.directory / "connect.log").read_text(errors="replace")[-6000:]

    def start(self) -> None:
        """Start it and wait until it leads its group: from then on it takes connectors."""
        self.directory.mkdir(parents=True, exist_ok=True)
        string = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "offset.storage.topic": self.offsets,
            "config.storage.topic": f"{self.names}-configs",
            "status.storage.topic": f"{self.names}-status",
            **{f"{each}.storage.replication.factor": "1" for each in ("offset", "config", "status")},
            "offset.storage.partitions": "3",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "key.converter": string,
            "value.converter": string,
            "listeners": f"http://{HOST}:{self.port}",
            "plugin.discovery": "service_load",
            "plugin.path": str(self.directory),
            "scheduled.rebalance.max.delay.ms": "0",
        }
        file = write_properties(self.directory / "worker.properties", settings)
        jars = [*resolve(CONNECT), *resolve(FILE_CONNECTOR), *kafka_jars()]
        command = [str(find_java()), "-Xmx512m", *JAVA_OPTIONS.split()]
        command += [
            f"-Dlog4j2.configurationFile={write_logging(self.directory)}",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        with (self.directory / "connect.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        self.until(lambda: self._answers("/connectors"), START_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What the REST interface answers. Raises Refused for anything but a success."""
        connection = HTTPConnection(HOST, self.port, timeout=90)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            said = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise Refused(f"{method} {path}: {response.status} {said.decode(errors='replace')}")
        return json.loads(said) if said else None

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Make a connector, and wait until its task runs."""
        self.ask("PUT", f"/connectors/{name}/config", dict(config))
        self.until(lambda: self.states(name) == ["RUNNING"])

    def halt(self, name: str) -> None:
        """Stop a connector: it has no tasks then."""
        self.ask("PUT", f"/connectors/{name}/stop")
        self.until(lambda: self._status(name).get("connector", {}).get("state") == "STOPPED" and not self.states(name))

    def resume(self, name: str) -> None:
        """Have it go on, and wait until its task runs."""
        self.ask("PUT", f"/connectors/{name}/resume")
        self.until(lambda: self.states(name) == ["RUNNING"])

    def states(self, name: str) -> list[str]:
        """`RUNNING` or `FAILED` for each task."""
        return [task["state"] for task in self._status(name).get("tasks", [])]

    def positions(self, name: str) -> list[dict[str, Any]]:
        """`GET /connectors/NAME/offsets`."""
        return self.ask("GET", f"/connectors/{name}/offsets")["offsets"]

    def patch(self, name: str, offsets: Sequence[Mapping[str, Any]]) -> None:
        """`PATCH /connectors/NAME/offsets`, until it is done: a busy worker gives up after 5 s."""

        def patched() -> bool:
            try:
                self.ask("PATCH", f"/connectors/{name}/offsets", {"offsets": offsets})
            except Refused as refused:
                if "500" not in str(refused).split():
                    raise
                return False
            return True

        self.until(patched)

    def until(self, done: Any, within_s: float = 90.0) -> None:
        """Wait for `done` while the worker runs."""
        deadline = time.monotonic() + within_s
        while not done():
            assert self.running, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(_LOOK_EVERY_S)

    def _status(self, name: str) -> dict[str, Any]:
        try:
            return self.ask("GET", f"/connectors/{name}/status")
        except (OSError, HTTPException, ValueError, Refused):
            return {}

    def _answers(self, path: str) -> bool:
        try:
            self.ask("GET", path)
        except (OSError, HTTPException, ValueError, Refused):
            return False
        return True
