"""Dead letters that a publish tells a topic, in its own transaction: they are there if and only if the batch counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from calve.sink_core.codes import Code
from calve.sink_core.errors import UnknownOutcome
from calve.sink_core.kafka import clients

SENT_BYTES = 16 * 1024 * 1024
"""So much is handed to the client at a time, and waited for; a single message may be larger."""

_SOFT_BATCH_BYTES = 1_000_000
_MOST_MESSAGE_BYTES = 1_000_000_000
_SLOWEST_PER_S = 2_000
_MOST_MS = 15 * 60_000
# A record batch, and a record with its lengths; a header's two lengths.
_BATCH_OVERHEAD, _HEADER_OVERHEAD = 200, 10


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be appended; `timestamp_ms` 0 stands for the moment of appending."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int

    @property
    def size(self) -> int:
        """The most bytes that it needs in a batch of its own, uncompressed."""
        of_headers = sum(len(name.encode()) + len(v or b"") + _HEADER_OVERHEAD for name, v in self.headers)
        return _BATCH_OVERHEAD + len(self.key or b"") + len(self.value or b"") + of_headers


@dataclass(frozen=True, slots=True)
class Letters:
    """About `number` messages for `topic`, whose brokers take batches of up to `most_bytes`.

    `messages` gives them anew for each try.
    """

    topic: str
    number: int
    most_bytes: int
    messages: Callable[[], Iterable[Message]]

    @property
    def settings(self) -> dict[str, object]:
        """What a producer needs for them. The transaction's time-out grows with their number, up to the broker's own
        greatest.
        """
        needed_ms = clients.TRANSACTION_TIMEOUT_MS + self.number * 1000 // _SLOWEST_PER_S
        return {
            "transaction.timeout.ms": min(_MOST_MS, needed_ms),
            "message.max.bytes": min(max(self.most_bytes, _SOFT_BATCH_BYTES), _MOST_MESSAGE_BYTES),
            "batch.size": min(self.most_bytes, _SOFT_BATCH_BYTES),
            # What is sent at a time always has room.
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 2**20,
        }

    def send(self, producer: Producer, timeout_s: float) -> None:
        """Append them to the open transaction. Memory: `SENT_BYTES`, or one message.

        A message that the broker refuses makes the transaction's end fail. Raises KafkaException, and UnknownOutcome
        if one is not acknowledged in `timeout_s`.
        """
        waiting = 0
        for message in self.messages():
            headers: list[tuple[str, str | bytes | None]] = [*message.headers]
            producer.produce(self.topic, message.value, message.key, headers=headers, timestamp=message.timestamp_ms)
            waiting += message.size
            if waiting >= SENT_BYTES:
                self._flush(producer, timeout_s)
                waiting = 0
        self._flush(producer, timeout_s)

    def _flush(self, producer: Producer, timeout_s: float) -> None:
        if (left := producer.flush(timeout_s)) > 0:
            raise UnknownOutcome(
                f"{left:,} dead letters for {self.topic} were not acknowledged in {timeout_s:.0f} s",
                code=Code.NOT_ACKNOWLEDGED,
            )


NONE = Letters("", 0, _SOFT_BATCH_BYTES, tuple)
"""Of a publish that has none to tell."""
