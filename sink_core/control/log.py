"""The control topic: created with the settings the protocol needs, read from its start under `read_committed`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.control import checks
from calve.sink_core.control.events import Event
from calve.sink_core.control.fold import Fold
from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import (
    CalveError,
    ConfigError,
    FindingError,
    ForeignEvent,
    OtherKind,
    ProtocolError,
    RetriableError,
    Unreachable,
)
from calve.sink_core.finding import Finding
from calve.sink_core.findings import CONTROL_TOPIC_TRUNCATED
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import AUTO_OFFSET_RESET, PARTITION_EOF, ConfigResource, NewTopic, ResourceType
from calve.sink_core.kafka.creation import create_missing
from calve.sink_core.kafka.failures import answered, classify, reported
from calve.sink_core.kafka.source import end_offsets, high_watermarks, log_starts, offsets_at, topic_ids
from calve.sink_core.offsets import TopicPartition, after
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.timing import LONG_STEP, Deadline

S = TypeVar("S", bound=AnyState)

PARTITION = 0
READ_TIMEOUT_S = 60.0
"""For each answer of the broker. A read of the log ends after so long without an event, however long the log is."""

_TELL_EVERY_S = 5.0
LSO_POLL_S = 0.01

REQUIRED_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Without these the broker forgets events that a table may still lack."""

CREATED_CONFIG = {**REQUIRED_CONFIG, "message.timestamp.type": "LogAppendTime", "max.message.bytes": "8388608"}
"""LogAppendTime makes the append of `START_COMMIT` tell the broker's time."""


_READS: dict[str, object] = {
    # The log ends in a transaction's marker, which shows as an empty fetch only: the broker holds that back this long.
    # Between two reads nothing is fetched, as the end that was seen lies in the queue.
    "fetch.wait.max.ms": 2,
    "fetch.queue.backoff.ms": 1,
}


class Trimmed(Exception):
    """The events that a reader wants next were deleted: it has to begin again, at the log start."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a plain write landed, and the broker's clock at that moment (-1 where the topic keeps CreateTime)."""

    offset: int
    broker_time_ms: int


class ControlLog(Generic[S]):
    """One pipeline's control topic. `state` is the fold of everything read so far; `refresh` reads on. What the events
    are and add up to is for the `fold` of the pipeline's kind to say.

    What another pipeline or another program has written stops every reader with a FindingError, again and again.
    Where a trim has deleted what a reader would read next, it begins again at the log start, and `state` with it.
    """

    def __init__(
        self,
        settings: clients.Settings,
        topic: str,
        fold: Fold[S],
        *,
        admin: AdminClient,
        pipeline_file: str = "FILE",
        rules: Rules = ALL,
    ) -> None:
        """`pipeline_file` only serves the commands in messages."""
        self._settings = settings
        self._pipeline_file = pipeline_file
        self.topic = topic
        self.fold = fold
        self._admin = admin
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self.topic_id = ""
        self._rules = rules
        self.state = fold.state_type(rules=rules)
        self._about_to_replace = False
        self._took_in = False
        self._broken_off_by: CalveError | None = None
        self.patience_s = READ_TIMEOUT_S
        """How long `refresh_to_end` waits for the end of a transaction."""

    def open(self, *, create: bool) -> bool:
        """Look the topic up, create it if asked to; False if it doesn't exist.

        Raises ConfigError when the topic's settings would let the broker forget events.
        """
        if create and self._producer is None:
            # Who may create the topic is about to write to it. An idempotent producer whose first event is there before
            # it has an id, a few hundredths of a second after its start, sends it half a second later.
            self._producer = clients.producer(self._settings)
        if not self._exists():
            if not create:
                return False
            self._create()
        self._check_config()
        self.topic_id = self._id_now()
        return True

    def refresh(self, *, within_s: float | None = None) -> S:
        """Read up to the LSO as it is now and fold it in. Raises FindingError as `refresh_to_end` does, after news.

        With `within_s` Unreachable after so long: for whoever comes again, and goes on where this read was.
        """
        return self._read(self._stable_end, within_s)

    def refresh_to_end(self, *, timeout_s: float | None = None) -> S:
        """Read until the LSO has reached the end offset seen at the call.

        After a fence every transaction below that end is decided, but its marker may still be on its way: reading only
        to the LSO of the moment could miss a batch that was published.

        Raises FindingError if the topic is another one than was opened: its offsets mean something else.
        """
        patience_s = self.patience_s if timeout_s is None else timeout_s
        deadline = Deadline.after(patience_s)

        def stable_end() -> int:
            end = self._ask(high_watermarks) if self._rules.log_is_read_to_its_end else 0
            while (lso := self._stable_end()) < end:
                if (now := self._ask(high_watermarks)) < end:
                    raise self._truncated(now)
                if deadline.passed:
                    raise Unreachable(
                        f"the last stable offset of {self.topic} stays at {lso} below its end {end} for "
                        f"{patience_s:.0f} s",
                        hint="a transaction is open on the control topic; it ends after its transaction.timeout.ms",
                        code=Code.OPEN_TRANSACTION,
                    )
                time.sleep(LSO_POLL_S)
            return lso

        return self._read(stable_end, same_topic=True)

    def append(self, event: Event) -> Appended:
        """A plain write, durable when this returns. For events that are harmless twice."""
        landed: list[Message] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            landed.append(message)

        doing = f"writing {event.event_type} to {self.topic}"
        with reported(doing):
            if self._producer is None:
                self._producer = clients.producer(self._settings)
                clients.await_broker(self._producer, self.topic, READ_TIMEOUT_S)
            self._producer.produce(
                self.topic, self.fold.encode(event), partition=PARTITION, headers=headers(event), on_delivery=delivered
            )
            self._producer.flush(READ_TIMEOUT_S)
        if not landed:
            raise Unreachable(
                f"{doing}: no answer after {READ_TIMEOUT_S:.0f} s", hint="is the broker reachable?", code=Code.NO_ANSWER
            )
        kind, timestamp_ms = landed[0].timestamp()
        return Appended(landed[0].offset() or 0, timestamp_ms if kind == 2 else -1)

    def log_start(self) -> int:
        """The first offset the broker holds now; `state.log_start` is where this reader began."""
        return self._ask(log_starts)

    def is_same_topic(self) -> bool:
        """Whether the topic of this name is still the one that was opened."""
        return self._id_now() == self.topic_id

    def first_since(self, timestamp_ms: int) -> int:
        """The first offset whose event was appended at `timestamp_ms` or later; the end if there is none."""
        at = TopicPartition(self.topic, PARTITION)
        return offsets_at(self._admin, [at], timestamp_ms, timeout_s=clients.ADMIN_TIMEOUT_S)[at]

    def delete_below(self, offset: int) -> None:
        """Delete the events below `offset`; nothing if they are gone already."""
        doing = f"deleting the events of {self.topic} below offset {offset}"
        at = KafkaTopicPartition(self.topic, PARTITION, offset)
        with reported(doing):
            futures = self._admin.delete_records([at], request_timeout=clients.ADMIN_TIMEOUT_S)
        answered(futures[at], doing, clients.ADMIN_TIMEOUT_S)

    @contextmanager
    def about_to_replace(self) -> Generator[None]:
        """Read over what is missing and what others have written: for whoever is about to delete what is there."""
        self._about_to_replace = True
        try:
            yield
        finally:
            self._about_to_replace = False

    @property
    def whole(self) -> bool:
        """Whether the last read came to its end; else `state` may lack anything."""
        return self._broken_off_by is None

    def require_whole(self) -> None:
        """Raise again what the last read was broken off by."""
        if self._broken_off_by is not None and self._rules.broken_read_is_not_used:
            raise copy(self._broken_off_by)

    def close(self) -> None:
        """What was read stays in `state`; the next read begins again at the log start."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _id_now(self) -> str:
        return topic_ids(self._admin, [self.topic], timeout_s=clients.ADMIN_TIMEOUT_S)[self.topic]

    def _exists(self) -> bool:
        with reported(f"looking for topic {self.topic}"):
            metadata = self._admin.list_topics(timeout=READ_TIMEOUT_S)
        return self.topic in metadata.topics

    def _create(self) -> None:
        create_missing(self._admin, [NewTopic(self.topic, num_partitions=1, config=dict(CREATED_CONFIG))])
        self._await_creation()

    def _await_creation(self) -> None:
        """A topic that was just created is unknown to some brokers for a moment."""
        deadline = Deadline.after(READ_TIMEOUT_S)
        while True:
            try:
                self._id_now()
                self._ask(end_offsets)
            except (ConfigError, RetriableError):
                if deadline.passed:
                    raise
                time.sleep(LSO_POLL_S)
            else:
                return

    def _check_config(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        doing = f"reading the settings of topic {self.topic}"
        with reported(doing):
            futures = self._admin.describe_configs([resource], request_timeout=clients.ADMIN_TIMEOUT_S)
        found = answered(futures[resource], doing, clients.ADMIN_TIMEOUT_S)
        wrong = {k: found[k].value for k, v in REQUIRED_CONFIG.items() if k in found and found[k].value != v}
        if wrong:
            settings = ",".join(f"{key}={value}" for key, value in REQUIRED_CONFIG.items())
            raise ConfigError(
                f"topic {self.topic} has {wrong}; with these the broker may forget events that a table still lacks",
                hint=f"kafka-configs --alter --topic {self.topic} --add-config {settings}",
                code=Code.CONTROL_TOPIC_SETTINGS,
            )

    def _stable_end(self) -> int:
        return self._ask(end_offsets if self._rules.events_are_committed else high_watermarks)

    def _ask(self, question: Callable[..., dict[TopicPartition, int]]) -> int:
        at = TopicPartition(self.topic, PARTITION)
        return question(self._admin, [at], timeout_s=clients.ADMIN_TIMEOUT_S)[at]

    def _read(self, end: Callable[[], int], within_s: float | None = None, *, same_topic: bool = False) -> S:
        """Read up to `end`, which is asked for after the log start: below it then lies the checkpoint for what is
        missing. With `same_topic`, and after every read that took something in, the topic must still be the one that
        was opened: a commit stores its id together with offsets of it.
        """
        self._broken_off_by, self._took_in = None, False
        try:
            began_again = self._read_whole(end, Deadline.after(within_s) if within_s is not None else None)
            if not self._about_to_replace:
                self._stop_on(checks.foreign_events(self.state, self.topic))
                self._stop_on(checks.truncated(self.state, self.topic) if began_again else None)
            # One that only looks on has not opened the topic, and stores nothing.
            must_be_same = same_topic or (self._took_in and self.topic_id and not self._about_to_replace)
            if must_be_same and (now := self._id_now()) != self.topic_id:
                self._stop_on(checks.control_topic_recreated(self.topic, self.topic_id, now))
        except CalveError as error:
            # What is raised holds this log by its frames; held here too, it would keep the clients until Python looks
            # for cycles.
            self._broken_off_by = copy(error)
            raise
        return self.state

    def _read_whole(self, end: Callable[[], int], until: Deadline | None) -> bool:
        """Returns whether it had to begin again at the log start."""
        began_again = False
        while True:
            consumer = self._consumer or self._begin()
            try:
                self._read_to(consumer, end(), until)
            except Trimmed:
                self.close()
                began_again = True
            else:
                return began_again

    def _stop_on(self, finding: Finding | None) -> None:
        if finding is not None:
            self.close()
            raise finding.error(self._pipeline_file)

    def _begin(self) -> Consumer:
        """A consumer at the log start, and the fold with it."""
        log_start = self.log_start() if self._rules.log_is_read_from_its_start else self._stable_end()
        isolation = {} if self._rules.events_are_committed else clients.UNCOMMITTED
        consumer = clients.reader(self._settings, group=f"{self.topic}.reader", **_READS, **isolation)
        self.state.restart(log_start)
        consumer.assign([KafkaTopicPartition(self.topic, PARTITION, log_start)])
        self._consumer = consumer
        return consumer

    def _read_to(self, consumer: Consumer, end: int, until: Deadline | None) -> None:
        if end < self.state.next_offset:
            raise self._truncated(end)
        silent, tell = Deadline.after(READ_TIMEOUT_S), Deadline.after(_TELL_EVERY_S)
        while (at := self.state.next_offset) < end:
            if silent.passed:
                raise Unreachable(
                    f"{self.topic}: no event for {READ_TIMEOUT_S:.0f} s at control offset {at}, before its end {end}",
                    hint="is the broker reachable?",
                    code=Code.NO_ANSWER,
                )
            if until is not None and until.passed:
                raise Unreachable(
                    f"{self.topic}: read up to {at:,} of {end:,}",
                    hint="the next look goes on from there",
                    code=Code.LONG_LOG,
                )
            for message in clients.receive(consumer, 500, 0.2):
                self._take(message)
            if self.state.next_offset > at:
                silent = Deadline.after(READ_TIMEOUT_S)
            if tell.passed:
                LONG_STEP.get()(f"reading {self.topic}: {self.state.next_offset:,} of {end:,}")
                tell = Deadline.after(_TELL_EVERY_S)

    def _take(self, message: Message) -> None:
        error = message.error()
        offset = message.offset() or 0
        if error is None:
            self._took_in = True
            self._apply(offset, message.value() or b"")
        elif error.code() == PARTITION_EOF:
            self.state.reached(offset)
        elif is_out_of_range(error):
            if self.log_start() <= self.state.next_offset:
                raise self._truncated(self._ask(high_watermarks))
            raise Trimmed
        elif not error.retriable():
            raise classify(error, f"reading {self.topic}")

    def _apply(self, offset: int, value: bytes) -> None:
        try:
            event = self.fold.decode(value)
        except OtherKind as error:
            self.close()
            found = checks.other_kind(self.topic, error.writer, self.fold.kind, self._pipeline_file)
            raise found.error(self._pipeline_file) from None
        except ForeignEvent as error:
            if self._about_to_replace:
                self.state.reached(after(offset))
                return
            self.close()
            raise checks.foreign_message(offset, error.message, self.topic).error(self._pipeline_file) from None
        except ProtocolError as error:
            # Whoever asks again must meet it again: the consumer is past it, and the fold is not.
            self.close()
            raise ProtocolError(
                f"control offset {offset} of {self.topic}: {error.message}", hint=error.hint, code=error.code
            ) from None
        self.fold.apply(self.state, offset, event)

    def _truncated(self, end: int) -> FindingError:
        stored = f"events up to offset {self.state.next_offset} had been read by this process"
        finding = CONTROL_TOPIC_TRUNCATED.of(self.topic, stored=stored, found=f"end offset {end}")
        return finding.error(self._pipeline_file)


def is_out_of_range(error: KafkaError) -> bool:
    """Whether the broker does not hold the offset that was asked for."""
    return error.code() in (AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def headers(event: Event) -> list[tuple[str, str | bytes | None]]:
    """The event's type as a header, for people who look at the topic with other tools."""
    return [("calve.event", event.event_type)]
