"""`CLUSTER.checkpoints.internal` on the target: where groups go on, as MirrorMaker 2's own client looks for it.

Its format is that of Kafka's `Checkpoint`: a key and a value of big-endian numbers, and of strings behind their length.
The client finds out which clusters there are by topics called `CLUSTER.heartbeats`; nobody needs records in them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Protocol

from calve.sink_core.mirror import compacted
from calve.sink_core.mirror.plane import MirrorPlane

VERSION = 0


class Translated(Protocol):
    """A group's offset on a partition of the source, and what it is in the remote topic."""

    @property
    def group(self) -> str: ...
    @property
    def remote(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def source_offset(self) -> int: ...
    @property
    def target_offset(self) -> int | None: ...
    @property
    def metadata(self) -> str: ...


def key(place: Translated) -> bytes:
    return _string(place.group) + _string(place.remote) + struct.pack(">i", place.partition)


def value(place: Translated) -> bytes:
    """Of one that has a `target_offset`."""
    return struct.pack(">hqq", VERSION, place.source_offset, place.target_offset) + _string(place.metadata)


class Checkpoints:
    """Writes those of one mirror, each once until it changes."""

    def __init__(self, plane: MirrorPlane) -> None:
        self._plane = plane
        self._topic, self._heartbeats = plane.pipeline.looked_into
        self._written: dict[bytes, bytes] = {}

    def write(self, places: Iterable[Translated]) -> None:
        """Write what is translated and was not written so before. Raises Unreachable if a broker does not take it."""
        records = {key(place): value(place) for place in places if place.target_offset is not None}
        fresh = {key: value for key, value in records.items() if self._written.get(key) != value}
        if not fresh:
            return
        if not self._written:
            compacted.ensure(self._plane, {self._topic: 1, self._heartbeats: 1})
        compacted.write(self._plane, self._topic, fresh)
        self._written |= fresh


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
