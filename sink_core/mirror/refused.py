"""Topics that can't be copied as they are, so that all others go on; and which record a target has refused.

The client says it of a transaction, not of a record. A callback on each record would tell, for a twentieth of all time.
So what was to be copied is read and sent once more, with one, in a transaction that is aborted whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.slot import Overtaken, Refused, Slot
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.mirror.part import OnRefused, Part
from calve.sink_core.offsets import OffsetRange, TopicPartition

_TRIES = 2

_ANSWERS: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of {topic}, which target.config sets if it names it",
    KafkaError.RECORD_LIST_TOO_LARGE: "lower the batch.size of target.kafka below segment.bytes of {topic}",
    KafkaError.INVALID_TIMESTAMP: "set message.timestamp.before.max.ms and message.timestamp.after.max.ms of {topic} to"
    f" {2**63 - 1}, or leave them out of target.config",
    KafkaError.INVALID_RECORD: "a compacted topic takes no record without a key: correct cleanup.policy of {topic}",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "somebody deleted {topic} or its partition while it was written: run again",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the principal WRITE on {topic}",
    KafkaError.POLICY_VIOLATION: "see what policy the brokers have for {topic}",
}
"""What to do about records that a broker refuses again and again."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a topic of the source stands still: a record of partition `at`, the first at `offset`, or, where both numbers
    are -1, the topic as a whole. `error` holds no frames, and with them no clients.
    """

    at: TopicPartition
    offset: int
    error: CalveError

    @classmethod
    def of_topic(cls, topic: str, error: CalveError) -> Refusal:
        return cls(TopicPartition(topic, -1), -1, copy(error))


class _Told(NamedTuple):
    offset: int
    error: KafkaError


@dataclass(slots=True)
class _Ear:
    """Hears what becomes of the records of one partition."""

    source: TopicPartition
    remote: TopicPartition
    refused: list[_Told] = field(default_factory=list[_Told])

    def hear(self, offset: int, error: KafkaError) -> None:
        # Negative codes are the client's own: it gives up all that comes behind a record that was refused.
        if error.code() > 0:
            self.refused.append(_Told(offset, error))

    def refusal(self) -> Refusal | None:
        answers = [told for told in self.refused if told.error.code() in _ANSWERS]
        if not answers:
            return None
        first = answers[0]
        last = max(told.offset for told in answers if told.error.code() == first.error.code())
        # A batch is refused as a whole.
        which = f"offset {first.offset}" if last == first.offset else f"one of the offsets {first.offset} to {last}"
        error = ConfigError(
            f"{self.source} at {which}: {self.remote} refuses it: {first.error.name()}: {first.error.str()}",
            hint=_ANSWERS[first.error.code()].format(topic=self.remote.topic),
            code=Code.REFUSED,
        )
        return Refusal(self.source, first.offset, error)


def refusals(
    refused: Refused,
    slot: Slot,
    ranges: Sequence[tuple[OffsetRange, TopicPartition]],
    *,
    source: clients.Settings,
    group: str,
) -> tuple[Refusal, ...]:
    """Of the topics of `ranges`, of which `slot` could not commit the copy to their partitions: one of each at least
    that has a record which is refused again. Raises `refused` if none is, or it can't be found out.
    """
    ears = [_Ear(part.at, at) for part, at in ranges]
    # Another producer of its id, whose fence ends what the refused one has open. What the client says of a transaction
    # may come before what it says of the record.
    for _ in range(_TRIES):
        with suppress(CalveError, Overtaken), Slot(slot.spec) as again:
            again.check(())
            again.begin()
            _send(again, ranges, [ear.hear for ear in ears], source, group)
        if any(ear.refused for ear in ears):
            break
    # Readers of the target are not to wait for the broker's time-out.
    with suppress(CalveError, Overtaken), Slot(slot.spec) as last:
        last.check(())
    found = {each.at.topic: each for each in (ear.refusal() for ear in reversed(ears)) if each is not None}
    if not found:
        raise refused
    return tuple(found.values())


def _send(
    slot: Slot,
    ranges: Sequence[tuple[OffsetRange, TopicPartition]],
    hear: Sequence[OnRefused],
    source: clients.Settings,
    group: str,
) -> None:
    parts = [
        Part(part, at, slot.producer, adjusts=True, on_refused=h) for (part, at), h in zip(ranges, hear, strict=True)
    ]
    with RangeReader(source, [part for part, _ in ranges], group=group) as reader, slot.reported("sending records"):
        for messages in reader:
            for i, places in messages.by_slice():
                parts[i].copy(messages, places)
    slot.flush()
