"""Counting again what Kafka delivers: the offsets of the committed records in ranges that are still retained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka.clients import Settings, reader, receive
from calve.sink_core.kafka.compat import AUTO_OFFSET_RESET, PARTITION_EOF, ConfigResource, ResourceType
from calve.sink_core.kafka.failures import answered, classify, reported
from calve.sink_core.offsets import OffsetRange, TopicPartition, after
from calve.sink_core.timing import Deadline

STALL_S = 60.0
_BATCH = 10_000
_PROGRESS_EVERY = 100
# Never subscribed and never committed to: the group does not come to exist.
_GROUP = "calve-recount"
_READING: dict[str, object] = {"queued.max.messages.kbytes": 16384, "fetch.message.max.bytes": 1048576}


def delivered_offsets(
    settings: Settings, ranges: Iterable[OffsetRange], on_progress: Callable[[str], None] | None = None
) -> dict[TopicPartition, BitMap64]:
    """The offsets at which a `read_committed` consumer gets a record, per partition; at most one range for each.

    A partition whose range the broker no longer holds in full by the time it is read is left out. Records are dropped
    as they come: memory is a bit per offset at most. Raises Unreachable if nothing comes for `STALL_S` seconds.
    """
    ends = {r.at: r.end for r in ranges if r.span}
    starts = {r.at: r.start for r in ranges if r.span}
    found = {at: BitMap64() for at in ends}
    with reported("recounting records"), closing(reader(settings, group=_GROUP, **_READING)) as consumer:
        consumer.assign([KafkaPartition(*at, start) for at, start in starts.items()])
        _read(consumer, ends, found, on_progress)
    for offsets in found.values():
        offsets.run_optimize()
    return found


def _read(
    consumer: Consumer,
    ends: dict[TopicPartition, int],
    found: dict[TopicPartition, BitMap64],
    on_progress: Callable[[str], None] | None,
) -> None:
    """Read until each partition of `ends` has reached its end."""
    reading, deadline, turns = set(ends), Deadline.after(STALL_S), 0
    while reading:
        messages = receive(consumer, _BATCH, 0.5)
        if messages:
            deadline, turns = Deadline.after(STALL_S), turns + 1
        elif deadline.passed:
            at = min(reading)
            raise Unreachable(
                f"{at}: no record and no end for {STALL_S:.0f} s, {len(found[at])} records so far",
                code=Code.SILENT_PARTITION,
            )
        for at in _take(messages, ends, found) & reading:
            reading.discard(at)
            consumer.incremental_unassign([KafkaPartition(*at)])
        if on_progress and turns % _PROGRESS_EVERY == 1:
            on_progress(f"recounting: {sum(map(len, found.values()))} records, {len(reading)} partitions to go")


def _take(
    messages: Iterable[Message], ends: dict[TopicPartition, int], found: dict[TopicPartition, BitMap64]
) -> set[TopicPartition]:
    """Note the offsets; returns the partitions that are done."""
    done: set[TopicPartition] = set()
    offsets: dict[TopicPartition, list[int]] = {}
    for message in messages:
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        offset, error = message.offset() or 0, message.error()
        if error is None:
            offsets.setdefault(at, []).append(offset)
            offset = after(offset)
        elif error.code() in (AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            found.pop(at, None)
            done.add(at)
        elif error.code() != PARTITION_EOF:
            if error.retriable():
                continue
            raise classify(error, f"recounting {at}")
        if at in ends and offset >= ends[at]:
            done.add(at)
    for at, read in offsets.items():
        if at in found:
            found[at].update([offset for offset in read if offset < ends[at]])
    return done


def compacted(admin: AdminClient, topics: Iterable[str], *, timeout_s: float) -> set[str]:
    """Those of `topics` whose records the broker may remove one by one (`cleanup.policy` holds `compact`)."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not resources:
        return set()
    doing = "reading topic configurations"
    with reported(doing):
        futures = admin.describe_configs(resources, request_timeout=timeout_s)
    configs = {resource.name: answered(future, doing, timeout_s) for resource, future in futures.items()}
    return {topic for topic, config in configs.items() if "compact" in str(config["cleanup.policy"].value)}
