"""A target of three brokers, one of which is killed while a mirror writes: nothing is lost or twice."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import RetriableError, UnknownOutcome
from calve.sink_core.kafka import clients
from tests import support
from tests.cluster import ThreeBrokers
from tests.mirror_flow import MirrorFlow
from tests.pipelines import reached
from tests.support import TopicFactory

ADMIN_TIMEOUT_S = 6.0
"""A fifth of the real limit: until then librdkafka asks a dead leader for offsets without a pause."""

Victim = Callable[[ThreeBrokers, MirrorFlow], int]


def leader_of_the_remote_topic(cluster: ThreeBrokers, mirror: MirrorFlow) -> int:
    return cluster.leader(mirror.remote(*mirror.topics))


def coordinator_of_the_slot(cluster: ThreeBrokers, mirror: MirrorFlow) -> int:
    return cluster.coordinator(mirror.pipeline.slot_id(0))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[ThreeBrokers]:
    cluster = ThreeBrokers(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("place", "victim"),
    [
        ("transaction.mid-produce", leader_of_the_remote_topic),
        pytest.param("transaction.after-offsets", coordinator_of_the_slot, marks=pytest.mark.faults),
        pytest.param("transaction.after-offsets", leader_of_the_remote_topic, marks=pytest.mark.faults),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broker_killed_within_a_transaction_costs_no_record(
    place: str, victim: Victim, broker: Broker, kafka_topic: TopicFactory, cluster: ThreeBrokers, tmp_path: Path
) -> None:
    cluster.start_missing()
    mirror = MirrorFlow.create(tmp_path, broker.bootstrap, cluster.bootstrap, kafka_topic(3))
    [topic] = mirror.topics
    mirror.run()
    for name in (mirror.remote(topic), mirror.pipeline.control_topic):
        cluster.await_in_sync(name)
    for partition in range(3):
        support.produce(broker.bootstrap, topic, (b"%d" % n for n in range(20_000)), partition=partition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "ADMIN_TIMEOUT_S", ADMIN_TIMEOUT_S)
        # Whether this run goes on is up to how soon there is another leader; if not, it says that another run will.
        with suppress(RetriableError, UnknownOutcome), reached(place, lambda: cluster.kill(victim(cluster, mirror))):
            mirror.run()
    # While it is still away.
    mirror.run()
    support.produce(broker.bootstrap, topic, [b"more"] * 10)
    mirror.run()
    assert mirror.assert_same() == 60_010
