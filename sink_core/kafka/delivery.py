"""What a client delivers of the partitions that it is assigned, however it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaError

from calve.sink_core.kafka.messages import Messages
from calve.sink_core.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Event:
    """What is no record: an error of a partition, or its end at `offset`; an error of the client has no slice."""

    error: KafkaError
    slice: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records, and what came between them; no records are None."""

    messages: Messages | None
    events: Sequence[Event]


class Delivery(Protocol):
    """A client that reads slices. Its calls raise KafkaException."""

    def assign(self, slices: Sequence[OffsetRange]) -> None:
        """Begin to read."""
        ...

    def receive(self, most: int, timeout_s: float) -> Delivered | None:
        """What is queued, up to `most` messages; None if nothing came for `timeout_s`."""
        ...

    def pause(self, part: OffsetRange) -> None:
        """Deliver no more of a slice."""
        ...

    def watermarks(self, part: OffsetRange, timeout_s: float) -> tuple[int, int]:
        """The log start and the end of a slice's partition."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
