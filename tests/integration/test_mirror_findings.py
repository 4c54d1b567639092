"""A stored state that contradicts a cluster stops the mirror, with both values, before anything is copied."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.events import PositionsSet
from calve.sink_core.control.slots.leading import Wanted
from calve.sink_core.errors import FindingError
from calve.sink_core.kafka.source import high_watermarks
from calve.sink_core.offsets import Position, TopicPartition, offsets_to_dense
from tests import support
from tests.codes import finding, raises
from tests.integration.conftest import NewMirror, StartBroker
from tests.mirror_flow import MirrorFlow
from tests.pipelines import reached
from tests.support import TIMEOUT_S, TopicFactory, delete_records, delete_topic


@pytest.fixture
def mirror(kafka_topic: TopicFactory, new_mirror: NewMirror) -> MirrorFlow:
    """Has copied ten records of its partition 0 of two."""
    mirror = new_mirror(kafka_topic(2))
    support.produce(mirror.source, mirror.topics[0], [b"%d" % n for n in range(10)])
    mirror.run()
    return mirror


def stops(mirror: MirrorFlow, finding: str) -> FindingError:
    """The finding, which comes again, and with which nothing changes on the target."""
    before, positions = mirror.state(), mirror.positions()
    with pytest.raises(FindingError) as raised:
        mirror.run()
    with pytest.raises(FindingError) as again:
        mirror.run()
    assert raised.value.finding == again.value.finding == finding, raised.value
    after = mirror.state()
    assert (after.partitions, after.records, after.topic_ids) == (before.partitions, before.records, before.topic_ids)
    assert {at: p.offset for at, p in mirror.positions().items()} == {at: p.offset for at, p in positions.items()}
    return raised.value


def numbers(text: str, at: object = "") -> list[int]:
    """Those that a text names, without those in the name of a partition, which it has to have."""
    assert str(at) in text
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", text.replace(str(at), ""))]


def recreate(bootstrap: str, topic: str) -> None:
    """Delete a topic and make one of its name."""
    delete_topic(AdminClient({"bootstrap.servers": bootstrap}), topic)
    support.create_topic(bootstrap, topic, 2)


def move(mirror: MirrorFlow, offsets: Mapping[int, int]) -> None:
    """What an operator does with `kafka-consumer-groups --reset-offsets`."""
    moved = [KafkaPartition(mirror.remote(*mirror.topics), p, offset) for p, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(mirror.pipeline.group, moved)]
    for done in mirror.target_admin.alter_consumer_group_offsets(request).values():
        done.result(TIMEOUT_S)


def test_a_source_topic_that_was_made_anew(mirror: MirrorFlow) -> None:
    old = mirror.state().upstream_ids[mirror.topics[0]]
    recreate(mirror.source, mirror.topics[0])
    support.produce(mirror.source, mirror.topics[0], [b"other"] * 20)
    error = stops(mirror, "topic-recreated")
    assert error.stored.endswith(old)
    assert error.found != error.stored


@pytest.mark.parametrize("again", [True, False], ids=["recreated", "deleted"])
def test_a_remote_topic_that_is_another_or_gone(mirror: MirrorFlow, again: bool) -> None:
    remote = mirror.remote(*mirror.topics)
    old = mirror.state().topic_ids[remote]
    if again:
        recreate(mirror.target, remote)
    else:
        delete_topic(mirror.target_admin, remote)
    # A run with nothing to copy has nothing to say yet; one with records does not copy them there.
    support.produce(mirror.source, mirror.topics[0], [b"more"])
    with raises(finding("remote-topic-recreated")) as raised:
        mirror.run()
    assert raised.value.stored.endswith(old)
    assert old not in raised.value.found
    assert (remote in mirror.target_admin.list_topics(timeout=TIMEOUT_S).topics) == again


def test_records_that_retention_has_taken_before_they_were_copied(mirror: MirrorFlow) -> None:
    support.produce(mirror.source, mirror.topics[0], [b"x"] * 10)
    delete_records(mirror.source_admin, mirror.topics[0], 15)
    error = stops(mirror, "records-lost-to-retention")
    at = TopicPartition(mirror.topics[0], 0)
    assert (numbers(error.stored, at), numbers(error.found)) == ([10], [15, 5])


def test_records_that_retention_takes_while_they_are_read(mirror: MirrorFlow) -> None:
    support.produce(mirror.source, mirror.topics[0], [b"x"] * 10)
    with (
        raises(finding("records-lost-to-retention"), TopicPartition(mirror.topics[0], 0)),
        reached("slot.after-check", lambda: delete_records(mirror.source_admin, mirror.topics[0], 15)),
    ):
        mirror.run()
    assert len(mirror.copied(mirror.topics[0])) == 10


def test_a_partition_that_lost_its_end(mirror: MirrorFlow) -> None:
    """As after an unclean election, or a restore from an older state: what the log and the group say is not there."""
    remote = TopicPartition(mirror.remote(*mirror.topics), 0)
    with mirror.plane() as plane:
        plane.bind()
        led = plane.leader.lead(lambda _state: Wanted(plane.pipeline_id, 0, {}, {}, {}))
        assert led is not None
        event = PositionsSet(
            pipeline_id=plane.pipeline_id,
            batch_id=led.generation,
            positions=offsets_to_dense({remote: 99}),
            by="test",
            reason="",
        )
        assert plane.leader.move(led, [event], {remote: Position(99, led.generation)})
    support.produce(mirror.source, mirror.topics[0], [b"x"])
    error = stops(mirror, "positions-beyond-end")
    at = TopicPartition(mirror.topics[0], 0)
    assert (numbers(error.stored, at), numbers(error.found)) == ([99], [11])


@pytest.mark.parametrize(("to", "choices"), [(12, ()), (3, ("restore",))], ids=["forward", "back"])
def test_positions_that_somebody_moved(mirror: MirrorFlow, to: int, choices: tuple[str, ...]) -> None:
    support.produce(mirror.source, mirror.topics[0], [b"x"] * 10)
    move(mirror, {0: to})
    error = stops(mirror, "positions-changed")
    at = TopicPartition(mirror.remote(*mirror.topics), 0)
    assert (numbers(error.stored, at), numbers(error.found)) == ([10], [to])
    assert not choices or error.choices == choices


def test_positions_that_are_gone(mirror: MirrorFlow) -> None:
    support.produce(mirror.source, mirror.topics[0], [b"x"])
    mirror.target_admin.delete_consumer_groups([mirror.pipeline.group])[mirror.pipeline.group].result(TIMEOUT_S)
    with raises(finding("positions-missing")) as raised:
        mirror.run()
    assert numbers(raised.value.stored, TopicPartition(mirror.remote(*mirror.topics), 0)) == [10]
    assert numbers(raised.value.found) == [2]
    assert len(mirror.copied(mirror.topics[0])) == 10


def test_records_of_somebody_else_within_a_transaction(mirror: MirrorFlow) -> None:
    remote = mirror.remote(*mirror.topics)
    support.produce(mirror.source, mirror.topics[0], [b"%06d" % n for n in range(30_000)])
    # Once a part of the piece is on its way, and acknowledged.
    with (
        raises(finding("foreign-records")) as raised,
        reached("transaction.mid-produce", lambda: foreign(mirror, remote), skip=1),
    ):
        mirror.run()
    assert 30_000 in numbers(raised.value.stored)
    assert numbers(raised.value.found)
    # The foreign record stays, nothing of the transaction does, and the next run copies what it had.
    mirror.run()
    values = [value for _, value, *_ in mirror.copied(mirror.topics[0])]
    assert values == [b"%d" % n for n in range(10)] + [b"foreign"] + [b"%06d" % n for n in range(30_000)]


def foreign(mirror: MirrorFlow, remote: str) -> None:
    """Write there once some of the open transaction's records are."""
    at, deadline = TopicPartition(remote, 0), time.monotonic() + TIMEOUT_S
    while high_watermarks(mirror.target_admin, [at], timeout_s=TIMEOUT_S)[at] < 20:
        assert time.monotonic() < deadline
    support.produce(mirror.target, remote, [b"foreign"])


def test_another_source_cluster(mirror: MirrorFlow, start_broker: StartBroker) -> None:
    elsewhere = start_broker()
    support.create_topic(elsewhere.bootstrap, mirror.topics[0], 2)
    with raises(finding("other-source")) as raised:
        mirror.but(source=elsewhere.bootstrap).run()
    assert raised.value.stored != raised.value.found


def test_a_group_that_somebody_else_uses_at_first_use(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic())
    [topic] = mirror.topics
    support.create_topic(mirror.target, mirror.remote(topic))
    move(mirror, {0: 0})
    with raises(Code.FOREIGN_POSITIONS, mirror.pipeline.group, f"{mirror.remote(topic)}[0]"):
        mirror.run()


def test_what_another_run_copied_beyond_what_was_seen_is_no_finding(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic())
    support.produce(mirror.source, mirror.topics[0], [b"a"])

    def other() -> None:
        support.produce(mirror.source, mirror.topics[0], [b"b"] * 5)
        mirror.run()
        support.produce(mirror.source, mirror.topics[0], [b"c"])

    # This one has looked at the source, and sleeps until it has led.
    with reached("topics.after-create", other):
        mirror.run()
    mirror.run()
    assert mirror.assert_same() == 7
