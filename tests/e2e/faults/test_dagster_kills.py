"""A whole deployment of Dagster whose parts are killed at random while records keep coming.

Daemon, code server with all of its runs, the process of one run, and the broker; each is up again at once, as a service
manager sees to it. At the end everything has arrived once, no run is open, no slot is taken, and the proof holds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import psutil
import pytest

from calve.orchestration.dagster.common.names import pool
from calve.orchestration.dagster.common.runs import IN_PROGRESS
from calve.orchestration.dagster.sink.names import COMMIT, INGEST
from calve.orchestration.local import broker as embedded
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.e2e.dagster.stack import Stack, stack, until
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.pipelines import Flow

HEAP_MB = 512
RECORDS = 20
"""A second."""

PARTS = ("daemon", "code server", "run", "broker")

BETWEEN_S = (3.0, 20.0)
"""Between two kills: some hit what the last one has just let start."""


@dataclass
class Deployment:
    """What is to be killed; `sent` records have come so far. `killed` are the parts since whose death no record has
    arrived, with their times; `healed` those before, with the seconds that it took.
    """

    directory: Path
    flow: Flow
    dagster: Stack
    broker: embedded.Broker
    sent: int = 0
    killed: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    healed: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    _arrived: int = 0

    def produce(self, seconds: float) -> None:
        """Records each second, for as long as that."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.flow.produce(range(self.sent, self.sent + RECORDS), partition=self.sent // RECORDS % 2)
            self.sent += RECORDS
            self.all_arrived()
            time.sleep(min(1.0, max(0.0, until_s - time.monotonic())))

    def kill_daemon(self) -> None:
        self.dagster.kill("daemon")
        self.dagster.daemon()

    def kill_code_server(self) -> None:
        self.dagster.kill("code-server")
        self.dagster.code_server()

    def kill_run(self) -> None:
        """The process of a run, as soon as there is one."""
        until(self._run_died, timeout_s=240, why=self.dagster.logs)

    def _run_died(self) -> bool:
        self.produce(0.1)
        for process in psutil.Process(self.dagster.processes["code-server"].pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "--multiprocessing-fork" in process.cmdline():
                    process.kill()
                    return True
        return False

    def kill_broker(self) -> None:
        process = psutil.Process(self.broker.pid)
        process.kill()
        # Its port is free when the last of its threads is gone.
        process.wait(30)
        with support.short_lived():
            self.broker = embedded.start(self.directory, heap_mb=HEAP_MB)

    def all_arrived(self) -> bool:
        arrived = len(self.flow.ids())
        if arrived > self._arrived:
            self.healed += [(part, time.monotonic() - at_s) for part, at_s in self.killed]
            self.killed, self._arrived = [], arrived
        return arrived >= self.sent

    def kill(self, part: str) -> None:
        {
            "daemon": self.kill_daemon,
            "code server": self.kill_code_server,
            "run": self.kill_run,
            "broker": self.kill_broker,
        }[part]()
        self.killed.append((part, time.monotonic()))


@pytest.fixture
def deployment(tmp_path: Path) -> Generator[Deployment]:
    directory = tmp_path / "broker"
    with support.short_lived():
        broker = embedded.start(directory, heap_mb=HEAP_MB)
    try:
        topic = support.create_topic(broker.bootstrap, support.unique("topic"), 2, None)
        flow = Flow.create(tmp_path, broker.bootstrap, topic, extra={"trigger": {"every": "1s"}})
        # There is a table to look at from the beginning.
        flow.run()
        with stack(tmp_path / "dagster", [flow.pipeline.path]) as dagster:
            dagster.code_server()
            dagster.daemon()
            yield Deployment(directory, flow, dagster, broker)
    finally:
        embedded.stop(directory)


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_deployment_whose_parts_are_killed_at_random_loses_and_doubles_nothing_and_leaves_no_run_open(
    deployment: Deployment, tell: Tell, request: pytest.FixtureRequest
) -> None:
    seconds, chance = request.config.getoption("--seconds"), random.Random(request.config.getoption("--seed"))
    flow, dagster = deployment.flow, deployment.dagster
    deployment.produce(1)
    until(deployment.all_arrived, timeout_s=240, why=dagster.logs)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        deployment.kill(chance.choice(PARTS))
        deployment.produce(chance.uniform(*BETWEEN_S))
    until(deployment.all_arrived, timeout_s=300, why=dagster.logs)
    until(lambda: not dagster.instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS)), timeout_s=180, why=dagster.logs)
    for stage in (INGEST, COMMIT):
        assert (
            dagster.instance.event_log_storage.get_concurrency_info(pool(flow.pipeline, stage)).active_slot_count == 0
        )
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.proven, report.violations
    ids = flow.ids()
    lost, twice = len({*range(deployment.sent)} - {*ids}), len(ids) - len({*ids})
    for part, healed_s in deployment.healed:
        tell(Outcome(f"Dagster: {part} killed", "", lost, twice, bool(lost or twice), healed_s))
    assert ids == list(range(deployment.sent))
