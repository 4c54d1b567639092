"""Every record arrives byte for byte, in its partition and in order, and nothing else does."""

from __future__ import annotations

import os
import random

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.mirror.events import RecordsCopied
from calve.sink_core.mirror.segments import translate
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tasks import InProcessTasks
from tests import support
from tests.codes import raises
from tests.integration.conftest import NewMirror
from tests.mirror_flow import MirrorFlow, Record, records, transact, write
from tests.raw_batches import produce_at
from tests.raw_headers import produce_with_headers
from tests.support import TopicFactory

ANY_TIME = {name: str(2**63 - 1) for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")}
FAR_MS = 2**60

ODD: list[Record] = [
    (b"k", b"v", (), 1_000),
    (None, b"v", (), 1),
    (b"", b"v", (), 1),
    (b"k", None, (), 2),
    (b"k", b"", (), 2),
    (None, None, (), 3),
    (b"", b"", (), -5_000),
    (b"\0\xff", b"\xff\0", (), FAR_MS),
    (None, b"v", (("b", b"1"), ("a", b"2"), ("b", b"1"), ("b", b"3")), 4),
    (None, b"v", (("", b"no name"), ("null", None), ("empty", b""), ("é \n", bytes(range(256)))), 4),
    (None, b"v", (), -1),
    (b"k" * 1_000, b"v" * 100_000, tuple((f"h{n}", b"x" * n) for n in range(100)), 253_402_300_800_000),
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_odd_records_are_the_same_on_the_other_side(
    codec: str, kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(2, ANY_TIME), extra={"target": {"compression": codec}})
    for partition in (0, 1):
        write(mirror.source, mirror.topics[0], ODD[partition:], partition, **{"compression.type": codec})
    assert mirror.run().records == 2 * len(ODD) - 1
    assert mirror.copied(mirror.topics[0]) == ODD
    assert mirror.assert_same() == 2 * len(ODD) - 1


def test_records_without_a_time_or_before_1970_keep_that(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(1, ANY_TIME))
    produce_at(mirror.source, mirror.topics[0], [(-1, b"none"), (-5_000, b"before"), (1, b"first")])
    mirror.run()
    assert [moment for *_, moment in mirror.copied(mirror.topics[0])] == [-1, -5_000, 1]


def test_the_time_of_the_append_at_the_source_becomes_the_records_own(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(1, {"message.timestamp.type": "LogAppendTime"}))
    support.produce(mirror.source, mirror.topics[0], [b"a", b"b"], timestamps=[5, 6])
    mirror.run()
    assert mirror.assert_same() == 2
    assert [message.timestamp()[0] for message in support.messages(mirror.target, mirror.remote(*mirror.topics))] == [
        1,
        1,
    ]


def test_records_of_megabytes_are_taken_by_the_remote_topic(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(1, {"max.message.bytes": "9000000"}))
    large: list[Record] = [(None, os.urandom(size), (), 1) for size in (10, 8_000_000, 3_000_000, 10)]
    write(mirror.source, mirror.topics[0], large, **{"message.max.bytes": 9_000_000})
    mirror.run()
    assert mirror.copied(mirror.topics[0]) == large


def test_only_committed_records_are_copied_and_positions_translate_exactly(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror, chance = new_mirror(kafka_topic()), random.Random(7)
    [topic] = mirror.topics
    for number in range(40):
        values = [b"%d" % chance.randrange(10**6) for _ in range(chance.randint(1, 5))]
        if chance.random() < 0.3:
            support.produce(mirror.source, topic, values)
        else:
            transact(mirror.source, topic, values, commit=chance.random() < 0.6)
        if number % 10 == 5:
            mirror.run()
    mirror.run()
    assert mirror.assert_same()
    ranges = mirror.state().copied[TopicPartition(mirror.remote(topic), 0)]
    there = {m.offset(): m.value() for m in support.messages(mirror.source, topic)}
    here = {m.offset(): m.value() for m in support.messages(mirror.target, mirror.remote(topic))}
    assert [here[translate(ranges, offset) or 0] for offset in there] == list(there.values())


def test_a_partition_of_gaps_alone_moves_its_position(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic())
    transact(mirror.source, mirror.topics[0], [b"never"] * 5, commit=False)
    report = mirror.run()
    assert (report.records, report.ended) == (0, "caught up")
    assert mirror.state().partitions == {TopicPartition(mirror.remote(*mirror.topics), 0): 6}
    [event] = mirror.events(RecordsCopied)
    assert [(part.start, part.end, part.first, part.records) for part in event.ranges] == [(0, 6, -1, 0)]
    # And is not looked at again.
    assert mirror.run().batches == []
    support.produce(mirror.source, mirror.topics[0], [b"ever"])
    mirror.run()
    assert mirror.assert_same() == 1


def test_a_topic_of_many_partitions_by_several_slots(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(60), extra={"batch": {"min_task_bytes": "1KiB"}})
    for partition in range(0, 60, 2):
        support.produce(mirror.source, mirror.topics[0], [b"%100d" % partition] * (partition + 1), partition=partition)
    report = mirror.run(InProcessTasks(3))
    assert [batch.slots for batch in report.batches] == [3]
    assert mirror.assert_same() == report.records == 900


def test_pieces_end_at_their_size_and_lose_no_order(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(3), extra={"transaction": {"max_bytes": "100KiB"}})
    for partition in range(3):
        support.produce(
            mirror.source, mirror.topics[0], (b"%09d" % n + b"x" * 500 for n in range(20_000)), partition=partition
        )
    mirror.run()
    assert len(mirror.events(RecordsCopied)) > 2
    assert mirror.assert_same() == 60_000


def uncarriable(mirror: MirrorFlow, what: str) -> None:
    """Two records as ever, one that can't be carried, one as ever, one that can't."""
    [topic] = mirror.topics
    support.produce(mirror.source, topic, [b"0", b"1"], timestamps=[7, 7])
    for after in (b"3", b"5"):
        if what == "timestamp":
            produce_at(mirror.source, topic, [(0, b"odd")])
        else:
            produce_with_headers(mirror.source, topic, b"odd", [(b"ok", b"1"), (b"\xff", b"2")])
        write(mirror.source, topic, [(None, after, (("h", b"1"),), 7)])


@pytest.mark.usefixtures("each_delivery")
@pytest.mark.parametrize("what", ["timestamp", "header"])
def test_what_the_client_cannot_send_is_named_and_nothing_of_its_piece_is_there(
    what: str, kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(1, ANY_TIME))
    uncarriable(mirror, what)
    with raises(Code.UNCARRIABLE, f"{mirror.topics[0]}[0]", 2, what, "on_uncarriable: adjust"):
        mirror.run()
    assert mirror.copied(mirror.topics[0]) == []
    assert mirror.state().partitions == {TopicPartition(mirror.remote(*mirror.topics), 0): 0}
    adjusting = mirror.but(extra={"on_uncarriable": "adjust"})
    [batch] = adjusting.run().batches
    assert (batch.records, batch.adjusted) == (6, 2)
    copied = mirror.copied(mirror.topics[0])
    source = records(mirror.source, *mirror.topics) if what == "timestamp" else []
    assert [value for _, value, *_ in copied] == [b"0", b"1", b"odd", b"3", b"odd", b"5"]
    assert [headers for _, _, headers, _ in copied] == [(), (), (), (("h", b"1"),), (), (("h", b"1"),)]
    if source:
        assert [moment for *_, moment in source] == [7, 7, 0, 7, 0, 7]
        assert [moment for *_, moment in copied] == [7, 7, 1, 7, 1, 7]
