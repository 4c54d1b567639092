"""A broker that is killed, hangs or is gone in the middle of a run: nothing lost, nothing twice, an end in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from calve.orchestration.local import broker as embedded
from calve.sink_core.codes import Code
from calve.sink_core.control import publisher
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.log import PARTITION
from calve.sink_core.errors import EXIT_UNREACHABLE, RetriableError, UnknownOutcome
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import end_offsets, high_watermarks
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import DataComplete
from calve.sink_core.tables.log.fold import SINK
from tests import support
from tests.codes import raises
from tests.gate import every_second
from tests.pipelines import Flow, reached
from tests.support import TIMEOUT_S

HEAP_MB = 512
STOP_S = 30.0
HANG_S = 8.0


@dataclass
class Patient:
    """A broker of this module's own that is hurt again and again."""

    directory: Path
    broker: embedded.Broker
    _hanging: threading.Timer | None = None

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        process = psutil.Process(self.broker.pid)
        process.kill()
        # Its port is free when the last of its threads is gone.
        process.wait(STOP_S)

    def start(self) -> None:
        """On the same data and port."""
        with support.short_lived():
            self.broker = embedded.start(self.directory, heap_mb=HEAP_MB)

    def restart(self) -> None:
        self.kill()
        self.start()

    def hang(self) -> None:
        """Stopped for so long that its leaderships are up for election when it goes on."""
        process = psutil.Process(self.broker.pid)
        process.suspend()
        self._hanging = threading.Timer(HANG_S, process.resume)
        self._hanging.start()

    def recover(self) -> None:
        """Returns when it hangs no more."""
        if self._hanging is not None:
            self._hanging.join()
            self._hanging = None


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Generator[Patient]:
    directory = tmp_path_factory.mktemp("patient")
    try:
        with support.short_lived():
            broker = embedded.start(directory, support.steady_port(), heap_mb=HEAP_MB)
        yield Patient(directory, broker)
    finally:
        embedded.stop(directory)


@pytest.fixture(scope="module")
def watchful(tmp_path_factory: pytest.TempPathFactory) -> Generator[embedded.Broker]:
    """A broker that looks for transactions that have timed out more often than every ten seconds."""
    directory = tmp_path_factory.mktemp("watchful")
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    try:
        with support.short_lived():
            broker = embedded.start(directory, properties=properties, heap_mb=HEAP_MB)
        yield broker
    finally:
        embedded.stop(directory)


@pytest.fixture
def flow(tmp_path: Path, patient: Patient) -> Generator[Flow]:
    """Has ids 0 to 9, and 10 to 19 wait."""
    if embedded.status(patient.directory) is None:
        patient.start()
    bootstrap = patient.broker.bootstrap
    flow = Flow.create(tmp_path, bootstrap, support.create_topic(bootstrap, support.unique("t"), 2))
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20), partition=1)
    yield flow
    patient.recover()


def proven(flow: Flow, *, ids: int) -> None:
    assert flow.ids() == list(range(ids))
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 4 * TIMEOUT_S
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.2)


HURTS: dict[str, Callable[[Patient], None]] = {"killed": Patient.restart, "hanging": Patient.hang}


@pytest.mark.parametrize(
    ("how", "place"),
    every_second(
        [
            ("killed", "publish.after-events"),
            ("killed", "publish.after-fence"),
            ("killed", "commit.after-swap"),
            ("killed", "publish.after-offsets"),
            ("hanging", "publish.after-offsets"),
            ("hanging", "publish.after-events"),
        ]
    ),
)
def test_a_broker_that_comes_back_costs_no_record(how: str, place: str, flow: Flow, patient: Patient) -> None:
    # Whether this run goes on is up to which of them notices first; if not, it says that another one will.
    with suppress(RetriableError, UnknownOutcome), reached(place, lambda: HURTS[how](patient)):
        flow.run()
    flow.produce(range(20, 25))
    flow.run()
    proven(flow, ids=25)


@pytest.mark.parametrize("place", every_second(["publish.after-offsets", "publish.after-events"]))
def test_a_publisher_that_sleeps_past_its_transaction_s_time_out_is_refused_and_publishes_afresh(
    place: str, tmp_path: Path, watchful: embedded.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = watchful.bootstrap
    flow = Flow.create(tmp_path, bootstrap, support.create_topic(bootstrap, support.unique("t")))
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20))
    monkeypatch.setattr(clients, "TRANSACTION_TIMEOUT_MS", 5_000)
    at = [TopicPartition(flow.pipeline.control_topic, PARTITION)]

    def undecided() -> bool:
        ends, high = (ask(flow.admin, at, timeout_s=TIMEOUT_S) for ask in (end_offsets, high_watermarks))
        return ends != high

    def sleep() -> None:
        assert undecided()
        until(lambda: not undecided())

    with reached(place, sleep):
        report = flow.run()
    assert [batch.verdict for batch in report.batches] == [Verdict.PUBLISH]
    flow.run()
    proven(flow, ids=20)
    last = flow.events(DataComplete)[-1].event_id
    everything = support.consume(bootstrap, flow.pipeline.control_topic, isolation="read_uncommitted")
    events = [SINK.decode(value) for value in everything if value is not None]
    assert [event.event_id for event in events].count(last) == 2, "once in the transaction that timed out"


def test_a_broker_that_stays_away_ends_the_run_in_time(
    flow: Flow, patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A twentieth of the real limits; how often they are waited for is as it is.
    monkeypatch.setattr(publisher, "TRANSACTION_S", 3.0)
    with raises(Code.NO_BROKER) as raised, reached("publish.after-events", patient.kill):
        flow.run()
    assert raised.value.exit_code == EXIT_UNREACHABLE
    assert "bootstrap.servers" in raised.value.hint
    monkeypatch.setattr(clients, "ADMIN_TIMEOUT_S", 3.0)
    with raises(Code.NO_BROKER):
        flow.run()
    patient.start()
    flow.run()
    proven(flow, ids=20)
