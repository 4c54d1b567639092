"""Three brokers, of which one is killed at the worst moment: the others go on, and nothing is lost or twice."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from calve.orchestration.dagster.mirror.watch import MirrorWatch
from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError, UnknownOutcome
from calve.sink_core.kafka import clients, reader
from calve.sink_core.kafka.delivery import Delivered
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.mirror.status import status as mirror_status
from calve.sink_core.sink.status import StatusReport, status
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import DataComplete
from tests import support
from tests.cluster import ThreeBrokers
from tests.codes import says
from tests.mirror_flow import MirrorFlow
from tests.pipelines import Flow, reached
from tests.queried import until

ADMIN_TIMEOUT_S = 6.0
"""A fifth of the real limit: until then librdkafka asks a dead leader for offsets without a pause."""

Victim = Callable[[ThreeBrokers, Flow], int]


def leader_of_the_control_topic(cluster: ThreeBrokers, flow: Flow) -> int:
    return cluster.leader(flow.pipeline.control_topic)


def transaction_coordinator(cluster: ThreeBrokers, flow: Flow) -> int:
    return cluster.coordinator(flow.pipeline.transactional_id)


def leader_of_the_source(cluster: ThreeBrokers, flow: Flow) -> int:
    return cluster.leader(flow.topic)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[ThreeBrokers]:
    cluster = ThreeBrokers(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def flow(tmp_path: Path, cluster: ThreeBrokers) -> Flow:
    """Has ids 0 to 9, and 10 to 19 wait."""
    cluster.start_missing()
    flow = Flow.create(tmp_path, cluster.bootstrap, cluster.create_topic(support.unique("t"), 2))
    flow.produce(range(10))
    flow.run()
    for topic in (flow.topic, flow.pipeline.control_topic):
        cluster.await_in_sync(topic)
    flow.produce(range(10, 20))
    return flow


def made_good(flow: Flow) -> None:
    """By one more run, while a broker is still away."""
    flow.produce(range(20, 25), partition=1)
    flow.run()
    assert flow.ids() == list(range(25))
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


@pytest.mark.parametrize(
    ("place", "victim"),
    [
        pytest.param("publish.after-fence", transaction_coordinator, marks=pytest.mark.faults),
        # Between two that stay, with the same transaction open.
        pytest.param("publish.after-begin", leader_of_the_control_topic, marks=pytest.mark.faults),
        ("publish.after-events", leader_of_the_control_topic),
        pytest.param("publish.after-events", transaction_coordinator, marks=pytest.mark.faults),
        ("publish.after-offsets", transaction_coordinator),
        pytest.param("publish.after-commit", leader_of_the_control_topic, marks=pytest.mark.faults),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_leader_killed_in_a_publish_costs_no_record(
    place: str, victim: Victim, flow: Flow, cluster: ThreeBrokers
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "ADMIN_TIMEOUT_S", ADMIN_TIMEOUT_S)
        # Whether this run goes on is up to how soon there is another leader; if not, it says that another run will.
        with suppress(RetriableError, UnknownOutcome), reached(place, lambda: cluster.kill(victim(cluster, flow))):
            flow.run()
    made_good(flow)


def test_a_leader_killed_while_a_partition_is_read_costs_no_record(
    flow: Flow, cluster: ThreeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = list[int]()

    def receive(reading: RangeReader) -> Delivered | None:
        received = first_received(reading)
        if received and not killed:
            killed.append(leader_of_the_source(cluster, flow))
            cluster.kill(killed[0])
        return received

    first_received = RangeReader._receive
    monkeypatch.setattr(RangeReader, "_receive", receive)
    monkeypatch.setattr(clients, "ADMIN_TIMEOUT_S", ADMIN_TIMEOUT_S)
    monkeypatch.setattr(reader, "BATCH_RECORDS", 3)
    with suppress(RetriableError, UnknownOutcome):
        flow.run()
    assert killed
    monkeypatch.undo()
    made_good(flow)


def test_a_partition_without_a_leader_stands_still_alone(tmp_path: Path, cluster: ThreeBrokers) -> None:
    cluster.start_missing()
    flow = Flow.create(tmp_path, cluster.bootstrap, cluster.create_unreplicated(support.unique("t")))
    for partition in range(3):
        flow.produce(range(10 * partition, 10 * partition + 5), partition=partition)
    flow.run()
    flow.produce(range(25, 28), partition=2)
    watch, silent = SinkWatch(flow.pipeline), f"{flow.topic}[2]"
    assert watch.look().lag == 3
    cluster.await_in_sync(flow.pipeline.control_topic)
    cluster.kill_noticed(3, flow.topic, 2)
    before = flow.events(DataComplete)[-1]
    for batch in (range(5, 8), range(8, 10)):
        flow.produce(batch, partition=0)
        assert watch.look().lag == len(batch)
        report = flow.run()
        [blocker] = report.blockers
        [shown] = _status(flow).blockers
        assert blocker.where == shown.where == silent
        says(shown.why, Code.BROKERS_BUSY)
        assert blocker.since_ms == shown.since_ms is not None
    both = [each for each in flow.events(DataComplete) if each.silent]
    assert {*both[0].silent} == {*both[1].silent} == {silent}
    assert [each.positions[flow.topic][2] for each in both] == [before.positions[flow.topic][2]] * 2
    assert blocker.since_ms == both[0].written_at_ms
    assert flow.ids() == [*range(10), *range(10, 15), *range(20, 25)]
    assert watch.look().lag == 0
    cluster.start_missing()
    until(lambda: watch.look().lag == 3)
    flow.run()
    assert flow.ids() == [*range(15), *range(20, 28)]
    with flow.session() as session:
        assert status(session).blockers == ()
        assert verify(session, deep=True).violations == ()


def _status(flow: Flow) -> StatusReport:
    with flow.session() as session:
        return status(session)


def test_a_partition_of_a_source_without_a_leader_stands_still_alone(
    tmp_path: Path, cluster: ThreeBrokers, broker: Broker
) -> None:
    cluster.start_missing()
    topic = cluster.create_unreplicated(support.unique("t"))
    mirror = MirrorFlow.create(tmp_path, cluster.bootstrap, broker.bootstrap, topic)
    for partition in range(3):
        support.produce(cluster.bootstrap, topic, [b"first"] * 5, partition=partition)
    mirror.run()
    support.produce(cluster.bootstrap, topic, [b"waits"] * 3, partition=2)
    watch = MirrorWatch(mirror.pipeline)
    assert watch.look().lag == 3
    cluster.kill_noticed(3, topic, 2)
    for number in (4, 5):
        support.produce(cluster.bootstrap, topic, [b"goes on"] * number, partition=0)
        assert watch.look().lag == number
        report = mirror.run()
        with mirror.plane() as plane:
            [shown] = mirror_status(plane).blockers
        [blocker] = report.blockers
        assert sum(batch.records for batch in report.batches) == number
        assert (blocker.where, blocker.since_ms) == (shown.where, shown.since_ms) == (f"{topic}[2]", blocker.since_ms)
        says(shown.why, Code.BROKERS_BUSY)
        assert blocker.since_ms is not None
    [told] = mirror.state().refusals.values()
    assert (told.written_at_ms, told.partition, told.offset) == (blocker.since_ms, 2, -1)
    cluster.start_missing()
    until(lambda: watch.look().lag == 3)
    assert [*mirror.run().blockers] == []
    assert mirror.assert_same() == 27
    assert mirror.state().refusals == {}
