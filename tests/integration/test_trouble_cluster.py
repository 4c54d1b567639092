"""Three brokers, of which one is killed at the worst moment: the others go on, and nothing is lost or twice."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from calve.sink_core.errors import RetriableError, UnknownOutcome
from calve.sink_core.kafka import clients, reader
from calve.sink_core.kafka.delivery import Delivered
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.cluster import ThreeBrokers
from tests.pipelines import Flow, reached

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
