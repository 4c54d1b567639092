"""The events of a type that are still in the log, of which most are never looked at again."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeVar

from calve.sink_core.control.events import Event, Logged
from calve.sink_core.packed_values import PackedList

E = TypeVar("E", bound=Event)


class LoggedEvents(PackedList[Logged[E]]):
    """Events in the order of the log."""

    def __init__(self) -> None:
        super().__init__()
        self._offsets = array("q")

    def append(self, value: Logged[E]) -> None:
        super().append(value)
        self._offsets.append(value.offset)

    def since(self, offset: int) -> Iterator[Logged[E]]:
        """Those at `offset` and behind it."""
        return map(self.__getitem__, range(bisect_left(self._offsets, offset), len(self)))
