"""Clients of records with all that they carry: what slots read and write, beside what the control plane does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from zlib import crc32

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from calve.sink_core.kafka.compat import ConfigSource, NewPartitions
from tests.simulation.broker import At, refused
from tests.simulation.clients import Answer, Network, SimAdmin, SimConsumer, SimProducer

READ_AT_ONCE = (1, 1, 2, 3, 5)
"""How many records a consumer may be given at once."""

TRIES = 3
"""Of a request to produce, whose answer may be lost; a broker takes it once."""

TOPIC_CONFIG = {"max.message.bytes": "1048588", "message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}

Callback = Callable[[KafkaError | None, Message], None]


class Record(NamedTuple):
    """A record as it is stored. Nothing of it may change on its way."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class RecordConsumer(SimConsumer):
    """Gives records as the client's own messages, a few at a time; events of the control log as they are."""

    def __init__(self, network: Network, group: str, chance: random.Random, *, uncommitted: bool = False) -> None:
        super().__init__(network, group, uncommitted=uncommitted)
        self._chance = chance
        self._paused: set[At] = set()

    def consume(self, number: int, timeout: float) -> list[Any]:
        self._network.scheduler.give_way()
        found = super().consume(min(number, self._chance.choice(READ_AT_ONCE)), timeout)
        return [_message(m.at, m.position, m.content, m.timestamp_ms, m.failure) for m in found]

    def _read(self, at: At, number: int) -> list[Any]:
        return [] if at in self._paused else super()._read(at, number)

    def pause(self, partitions: Sequence[KafkaPartition]) -> None:
        self._paused.update((p.topic, p.partition) for p in partitions)

    def get_watermark_offsets(self, at: KafkaPartition, timeout: float) -> tuple[int, int]:
        del timeout
        log = self._network.ask(lambda: self._cluster.log((at.topic, at.partition)))
        return log.start, log.end


class _Batch:
    """Records for one partition, which go together. `landed` is the first one's offset, `tried` if it was sent."""

    def __init__(self, at: At) -> None:
        self.at = at
        self.records: list[object] = []
        self.callbacks: list[Callback | None] = []
        self.landed: int | None = None
        self.tried = False


class RecordProducer(SimProducer):
    """Sends what it holds by partition, at its own time or when it is flushed, and remembers when it was fenced.

    A request that arrives late counts for the transaction that it was made in only, as brokers since 4.0 see to.
    """

    def __init__(self, network: Network, transactional_id: str | None, chance: random.Random) -> None:
        super().__init__(network, transactional_id)
        self._chance = chance
        self._held: list[_Batch] = []
        self._told: list[tuple[_Batch, KafkaError | None]] = []
        self._fatal: KafkaError | None = None
        self._number = 0
        self._begun = False

    def produce(  # pyright: ignore[reportIncompatibleMethodOverride] - as the real one
        self,
        topic: str,
        value: object = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        self._stop_if_fenced()
        if partition < 0:
            partition = crc32(key or b"") % len(self._cluster.topics[topic].logs)
        batch = self._open_batch((topic, partition))
        is_data = timestamp or isinstance(value, bytes) or value is None
        batch.records.append(Record(key, value, timestamp, tuple(headers or ())) if is_data else value)
        batch.callbacks.append(callback or on_delivery)
        if self._id is not None and self._chance.random() < 0.1:
            self._send_some()

    def flush(self, timeout: float = 0) -> int:
        """Raises what the client raises of its own accord: a fence, which becomes a SystemError where it has
        deliveries to tell of after it.
        """
        del timeout
        fenced_before = self._fatal is not None
        for _ in range(TRIES):
            self._send_some()
        told, self._told = self._told, []
        if self._fatal is not None and not fenced_before:
            fenced = KafkaException(self._fatal)
            if any(callback for batch, _ in told for callback in batch.callbacks):
                raise SystemError("a callback returned a result with an exception set") from fenced
            raise fenced
        for batch, error in told:
            for place, callback in enumerate(batch.callbacks):
                if callback is not None:
                    callback(error, _message(batch.at, (batch.landed or 0) + place, None, self._cluster.now_ms(), None))
        left = sum(len(batch.records) for batch in self._held)
        if left and self._id is None:
            raise refused(KafkaError._TIMED_OUT, retriable=True)
        return left

    def poll(self, timeout: float = 0) -> int:
        del timeout
        return 0

    def purge(self) -> None:
        """Who calls it does not ask what became of the records."""

    def begin_transaction(self) -> None:
        self._stop_if_fenced()
        if self._begun:
            raise refused(KafkaError._STATE)
        self._number += 1
        self._begun = True

    def send_offsets_to_transaction(self, offsets: Sequence[KafkaPartition], group: str, timeout: float = 0) -> None:
        del timeout
        wanted = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in offsets}
        self._ask("add_offsets", lambda: self._cluster.add_offsets(self._own_id, self._epoch, group, wanted))

    def commit_transaction(self, timeout: float = 0) -> None:
        del timeout
        self._ask("commit", lambda: self._cluster.commit(self._own_id, self._epoch))
        self._begun = False

    def abort_transaction(self, timeout: float = 0) -> None:
        del timeout
        self._held = []
        self._ask("abort", lambda: self._cluster.abort(self._own_id, self._epoch))
        self._number += 1
        self._begun = False

    @property
    def _own_id(self) -> str:
        return self._of_transactions()

    def _ask(self, name: str, request: Callable[[], Any]) -> Any:
        """A request of the transaction that is open now."""
        self._stop_if_fenced()
        number = self._number

        def if_open() -> Any:
            if self._number != number:
                raise refused(KafkaError.INVALID_PRODUCER_EPOCH)
            return request()

        try:
            return self._network.change(name, if_open)
        except KafkaException as raised:
            if raised.args[0].fatal():
                self._fatal = raised.args[0]
            raise

    def _open_batch(self, at: At) -> _Batch:
        """The last one for a partition that was not sent yet, a new one if there is none."""
        batch = next((b for b in self._held if b.at == at and not b.tried), None)
        if batch is None:
            self._held.append(batch := _Batch(at))
        return batch

    def _send_some(self) -> None:
        """Each batch once, those of a partition in their order; what gets no answer stays."""
        stuck = set[At]()
        for batch in list(self._held):
            if batch.at in stuck or self._fatal is not None:
                continue
            batch.tried = True
            try:
                self._ask("produce", lambda batch=batch: self._take(batch))
            except KafkaException as raised:
                if self._fatal is None and not raised.args[0].retriable():
                    raise
                stuck.add(batch.at)
            else:
                self._held.remove(batch)
                self._told.append((batch, None))
        if self._fatal is not None:
            self._told += [(batch, self._fatal) for batch in self._held]
            self._held = []

    def _take(self, batch: _Batch) -> None:
        """By the broker, once."""
        if batch.landed is None:
            for record in batch.records:
                offset = self._send(batch.at, record)
                batch.landed = offset if batch.landed is None else batch.landed

    def _stop_if_fenced(self) -> None:
        if self._fatal is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "a newer producer has taken over"))


class RecordAdmin(SimAdmin):
    """Also adds partitions, and says what is set of topics."""

    def create_partitions(self, wanted: Sequence[NewPartitions], **_options: object) -> dict[str, Answer]:
        return {
            each.topic: self._answered(
                lambda each=each: self._cluster.create_partitions(each.topic, each.new_total_count)
            )
            for each in wanted
        }

    def _config(self, name: str) -> dict[str, SimpleNamespace]:
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        set_here = {key: SimpleNamespace(value=e.value, source=own) for key, e in super()._config(name).items()}
        default = {key: SimpleNamespace(value=value, source=0) for key, value in TOPIC_CONFIG.items()}
        entries = default | set_here
        for entry in entries.values():
            entry.is_sensitive = False
        return entries


def _message(at: At, offset: int, content: object, written_ms: int, failure: KafkaError | None) -> Message:
    record = content if isinstance(content, Record) else Record(None, content, written_ms, ())  # pyright: ignore[reportArgumentType]
    kind = TIMESTAMP_CREATE_TIME if isinstance(content, Record) else 2
    return Message(
        topic=at[0],
        partition=at[1],
        offset=offset,
        key=record.key,
        value=record.value,
        headers=list(record.headers) or None,
        timestamp=(kind, record.timestamp_ms),
        error=failure,
    )
