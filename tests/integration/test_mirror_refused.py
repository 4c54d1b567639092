"""What the target refuses: named with the record and what to set, and nothing twice once that is done."""

from __future__ import annotations

import os
import time

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.codes import finding, raises
from tests.integration.conftest import NewMirror
from tests.mirror_flow import MirrorFlow, Record, add_partitions, write
from tests.pipelines import reached
from tests.support import TopicFactory, delete_topic

SMALL: Record = (b"k", b"small", (), 1)
LIMITED = {"target": {"config": {"max.message.bytes": 100_000}}}


def large(size: int) -> Record:
    return b"k", os.urandom(size), (), 1


def test_a_record_that_is_too_large_is_named_at_once_and_copied_once_the_topic_takes_it(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(2, {"max.message.bytes": "2000000"}), extra=LIMITED)
    [topic] = mirror.topics
    rows = [*[SMALL] * 20_000, large(300_000), *[SMALL] * 20_000, large(400_000), SMALL]
    write(mirror.source, topic, rows, 1, **{"message.max.bytes": 2_000_000})
    write(mirror.source, topic, [SMALL] * 10)
    begun = time.monotonic()
    with raises(Code.REFUSED, f"{topic}[1]", 20000, f"eu.{topic}[1]", "MSG_SIZE_TOO_LARGE", "max.message.bytes"):
        mirror.run()
    # Not once what waits behind it has timed out.
    assert time.monotonic() - begun < 30
    assert [mirror.copied(topic, partition) for partition in (0, 1)] == [[], []]
    assert set(mirror.state().partitions.values()) == {0}
    mirror.but(extra={}).run()
    assert mirror.assert_same() == len(rows) + 10


def test_pieces_before_the_one_that_is_refused_stay(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    # Of so few bytes that each batch of the reader is a piece.
    pieces = {"transaction": {"max_bytes": "1KiB"}}
    mirror = new_mirror(kafka_topic(1, {"max.message.bytes": "2000000"}), extra={**LIMITED, **pieces})
    [topic] = mirror.topics
    write(mirror.source, topic, [*[SMALL] * 30_000, large(300_000)], **{"message.max.bytes": 2_000_000})
    with raises(Code.REFUSED, f"{topic}[0]", 30000):
        mirror.run()
    before = mirror.state().partitions[TopicPartition(mirror.remote(topic), 0)]
    assert 0 < before <= 30_000
    assert len(mirror.copied(topic)) == before
    mirror.but(extra=pieces).run()
    assert mirror.assert_same() == 30_001


@pytest.mark.parametrize(
    ("setting", "record", "code", "hint"),
    [
        ({"message.timestamp.after.max.ms": 1_000}, (b"k", b"v", (), 2**50), "INVALID_TIMESTAMP", "after.max.ms"),
        ({"cleanup.policy": "compact"}, (None, b"v", (), 1), "INVALID_RECORD", "cleanup.policy"),
    ],
    ids=["time", "key"],
)
def test_a_batch_that_is_refused_is_named_by_its_offsets(
    setting: dict[str, object], record: Record, code: str, hint: str, kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    mirror = new_mirror(kafka_topic(1, any_time), extra={"target": {"config": setting}})
    write(mirror.source, mirror.topics[0], [SMALL, record, SMALL])
    with raises(Code.REFUSED, f"{mirror.topics[0]}[0]", code) as raised:
        mirror.run()
    assert hint in raised.value.hint
    assert mirror.copied(mirror.topics[0]) == []
    # The remote topic's configuration follows what the file says now.
    mended = {key: value for key, value in {"cleanup.policy": "delete"}.items() if key in setting}
    mirror.but(extra={"target": {"config": mended}}).run()
    assert mirror.assert_same() == 3


@pytest.mark.faults
def test_a_remote_topic_deleted_while_it_is_written_stops_the_mirror_and_stays_away(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic())
    write(mirror.source, mirror.topics[0], [SMALL] * 10)

    def delete() -> None:
        delete_topic(mirror.target_admin, mirror.remote(*mirror.topics))

    with pytest.raises(CalveError), reached("transaction.after-begin", delete):
        mirror.run()
    with raises(finding("remote-topic-recreated"), mirror.remote(*mirror.topics)):
        mirror.run()


def test_a_topic_deleted_at_the_source_while_it_is_read_stops_the_mirror(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic())
    write(mirror.source, mirror.topics[0], [SMALL] * 10)
    with raises(Code.NO_SUCH_TOPIC, mirror.topics[0]), reached("slot.after-check", lambda: gone(mirror)):
        mirror.run()


def gone(mirror: MirrorFlow) -> None:
    delete_topic(mirror.source_admin, mirror.topics[0])


def test_partitions_added_by_somebody_else_at_the_same_time_are_taken(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(2))
    mirror.run()
    add_partitions(mirror.source_admin, mirror.topics[0], 3)
    add_partitions(mirror.target_admin, mirror.remote(*mirror.topics), 3)
    support.produce(mirror.source, mirror.topics[0], [b"x"], partition=2)
    mirror.run()
    assert mirror.assert_same() == 1
