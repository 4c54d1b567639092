"""The questions to the source cluster, asked of a real broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.kafka.clients import admin as open_admin
from calve.sink_core.kafka.first_contact import cluster
from calve.sink_core.kafka.source import (
    ASSUMED_BYTES_PER_RECORD,
    Sample,
    bytes_per_record,
    describe_topics,
    end_offsets,
    high_watermarks,
    log_starts,
    offsets_at,
    sample,
)
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.codes import raises, says
from tests.support import Produce, TopicFactory, unique

TIMEOUT_S = 30.0
NOBODY: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def settings(broker: Broker) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap}


@pytest.fixture
def admin(settings: dict[str, object]) -> AdminClient:
    return open_admin(settings)


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def known_topic(kafka_topic: TopicFactory, admin: AdminClient) -> TopicFactory:
    """Like `kafka_topic`, but waits until the broker also answers for the topic it has created."""

    def known(*args: object) -> str:
        topic = kafka_topic(*args)
        eventually(lambda: topic in admin.list_topics(timeout=TIMEOUT_S).topics)
        return topic

    return known


def begun(settings: dict[str, object], topic: str, values: list[bytes]) -> Producer:
    """A producer with `values` on partition 0 in a transaction that is still open."""
    producer = Producer({**settings, "transactional.id": unique("tx")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_topics_are_described_with_id_partitions_and_timestamp_type(
    admin: AdminClient, known_topic: TopicFactory
) -> None:
    created, appended = known_topic(3), known_topic(1, {"message.timestamp.type": "LogAppendTime"})
    topics = describe_topics(admin, [appended, created, created], timeout_s=TIMEOUT_S)
    assert {(t.name, t.partitions, t.timestamp_type) for t in topics.values()} == {(created, 3, 1), (appended, 1, 2)}
    assert topics[created].all_partitions == tuple(TopicPartition(created, i) for i in range(3))
    assert topics[created].topic_id != topics[appended].topic_id


def test_an_unknown_topic_is_named(admin: AdminClient, known_topic: TopicFactory) -> None:
    with raises(Code.NO_SUCH_TOPIC, "no-such-topic", "UNKNOWN_TOPIC"):
        describe_topics(admin, [known_topic(), "no-such-topic"], timeout_s=TIMEOUT_S)


def test_ends_and_starts_of_all_partitions_come_in_one_answer(
    admin: AdminClient, known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic(3)
    produce(topic, [b"x"] * 5, partition=1)
    partitions = [TopicPartition(topic, i) for i in range(3)]
    assert list(end_offsets(admin, partitions, timeout_s=TIMEOUT_S).values()) == [0, 5, 0]
    for deleted in admin.delete_records([KafkaPartition(topic, 1, 2)]).values():
        deleted.result(TIMEOUT_S)
    assert log_starts(admin, partitions, timeout_s=TIMEOUT_S) == dict(zip(partitions, [0, 2, 0], strict=True))


def test_the_end_stays_below_an_open_transaction(
    admin: AdminClient, settings: dict[str, object], known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic()
    produce(topic, [b"x"] * 4)
    writer = begun(settings, topic, [b"y"] * 3)
    at = TopicPartition(topic, 0)
    assert end_offsets(admin, [at], timeout_s=TIMEOUT_S) == {at: 4}
    assert high_watermarks(admin, [at], timeout_s=TIMEOUT_S) == {at: 7}
    assert offsets_at(admin, [at], 0, timeout_s=TIMEOUT_S) == {at: 0}
    writer.commit_transaction(TIMEOUT_S)
    # The coordinator answers before its marker is in the partition.
    eventually(lambda: end_offsets(admin, [at], timeout_s=TIMEOUT_S) == {at: 8})


def test_offsets_by_timestamp_are_the_first_at_or_after_it_or_the_end(
    admin: AdminClient, known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic(2)
    produce(topic, [b"x"] * 4, timestamps=[1000, 2000, 3000, 4000])
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    found = {t: list(offsets_at(admin, both, t, timeout_s=TIMEOUT_S).values()) for t in (0, 2000, 2001, 4001)}
    assert found == {0: [0, 0], 2000: [1, 0], 2001: [2, 0], 4001: [4, 0]}


def test_a_partition_that_does_not_exist_is_named(admin: AdminClient, known_topic: TopicFactory) -> None:
    topic = known_topic(1)
    with raises(Code.NO_SUCH_TOPIC, topic, "[7]"):
        end_offsets(admin, [TopicPartition(topic, 0), TopicPartition(topic, 7)], timeout_s=TIMEOUT_S)


def test_no_partitions_need_no_answer() -> None:
    admin = open_admin(NOBODY)
    assert end_offsets(admin, [], timeout_s=TIMEOUT_S) == {}
    assert describe_topics(admin, [], timeout_s=TIMEOUT_S) == {}


def test_the_cluster_has_an_id(admin: AdminClient) -> None:
    assert cluster(admin, {}).cluster_id == cluster(admin, {}).cluster_id != "None"


def ask_for_topics(admin: AdminClient) -> object:
    return describe_topics(admin, ["flights"], timeout_s=1)


def ask_for_ends(admin: AdminClient) -> object:
    return end_offsets(admin, [TopicPartition("flights", 0)], timeout_s=1)


def ask_for_the_cluster(admin: AdminClient) -> object:
    return cluster(admin, NOBODY, answer_s=1)


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("127.0.0.1:1", "127.0.0.1:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused"),
        ("nowhere.invalid:9092", "nowhere.invalid:9092: Failed to resolve 'nowhere.invalid:9092'"),
    ],
)
def test_who_does_not_answer_is_named_with_the_reason(servers: str, said: str) -> None:
    """In librdkafka's words."""
    settings = {"bootstrap.servers": servers}
    with raises(Code.NO_BROKER) as refused:
        cluster(open_admin(settings), settings, answer_s=2)
    says(str(refused.value), Code.NO_BROKER, said)
    assert refused.value.hint


def test_a_broker_that_is_silent_has_longer_where_nobody_waits_and_one_that_refuses_has_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        with raises(Code.NO_BROKER, 3):
            cluster(open_admin(settings), settings, answer_s=1, silent_s=3)
    refusing = {"bootstrap.servers": "127.0.0.1:1"}
    with raises(Code.NO_BROKER):
        cluster(open_admin(refusing), refusing, answer_s=1, silent_s=600)


@pytest.mark.parametrize("ask", [ask_for_topics, ask_for_ends, ask_for_the_cluster])
def test_a_cluster_that_does_not_answer_is_unreachable(ask: Callable[[AdminClient], object]) -> None:
    with raises(Code.NO_BROKER, "bootstrap.servers"):
        ask(open_admin(NOBODY))


def test_a_sample_holds_keys_values_and_timestamps(
    settings: dict[str, object], known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic(2)
    produce(topic, [b"one", None], keys=[b"k", b"gone"], timestamps=[1000, 2000])
    produce(topic, [b"three"], partition=1, timestamps=[3000])
    taken = sample(settings, topic, 100, timeout_s=TIMEOUT_S)
    assert sorted(taken, key=lambda s: s.timestamp_ms) == [
        Sample(b"k", b"one", 1000),
        Sample(b"gone", None, 2000),
        Sample(None, b"three", 3000),
    ]
    assert bytes_per_record(taken) == pytest.approx((4 + 4 + 5) / 3)


def test_a_sample_is_bounded_and_starts_at_the_log_start(
    settings: dict[str, object], known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic()
    produce(topic, [str(i) for i in range(500)])
    assert [s.value for s in sample(settings, topic, 3, timeout_s=TIMEOUT_S)] == [b"0", b"1", b"2"]


def test_aborted_records_are_not_sampled(
    settings: dict[str, object], known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic()
    begun(settings, topic, [b"aborted"]).abort_transaction(TIMEOUT_S)
    support.until_stable(str(settings["bootstrap.servers"]), topic)
    produce(topic, [b"kept"])
    assert [s.value for s in sample(settings, topic, 10, timeout_s=TIMEOUT_S)] == [b"kept"]


def test_an_empty_topic_gives_an_empty_sample_and_the_assumed_size(
    settings: dict[str, object], known_topic: TopicFactory
) -> None:
    taken = sample(settings, known_topic(2), 10, timeout_s=TIMEOUT_S)
    assert taken == []
    assert bytes_per_record(taken) == ASSUMED_BYTES_PER_RECORD


def test_sampling_leaves_no_group_behind(
    admin: AdminClient, settings: dict[str, object], known_topic: TopicFactory, produce: Produce
) -> None:
    topic = known_topic()
    produce(topic, [b"x"])
    sample(settings, topic, 10, timeout_s=TIMEOUT_S)
    groups = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert "calve-sample" not in [g.group_id for g in groups.valid]


def test_sampling_an_unknown_topic_names_it(settings: dict[str, object]) -> None:
    with raises(Code.NO_SUCH_TOPIC, "no-such-topic", "UNKNOWN_TOPIC"):
        sample(settings, "no-such-topic", 10, timeout_s=TIMEOUT_S)


def test_sampling_a_cluster_that_does_not_answer_is_unreachable() -> None:
    with raises(Code.NO_BROKER, "bootstrap.servers"):
        sample(NOBODY, "flights", 10, timeout_s=1)
