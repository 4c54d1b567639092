"""What the writers of one task hold together, so that memory doesn't grow with the number of tables."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

BUFFER_BYTES = 96 * 1024 * 1024
"""Arrow bytes gathered at most, however large the tables want their row groups."""

MAX_OPEN_FILES = 64
"""On object stores each open file holds a part of some megabytes that is not yet uploaded."""


class Gathers(Protocol):
    """Holds rows until it is told to hand them on."""

    def flush(self) -> None: ...


class Closes(Protocol):
    """Holds open files, one for each partition, which is any value that can be a key."""

    def close(self, key: Any) -> None: ...


class Budget:
    """Arrow bytes gathered (splitting them takes about as much again), and open files.

    Over `buffer_bytes` the writer that has gathered most writes it out; over `max_open_files` the file that was
    written to least recently is closed, whatever its table.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, max_open_files: int = MAX_OPEN_FILES) -> None:
        self.buffer_bytes = buffer_bytes
        self._max_open_files = max_open_files
        self._gathered: dict[Gathers, int] = {}
        self._total = 0
        self._open: OrderedDict[tuple[Closes, Any], None] = OrderedDict()

    @property
    def gathered_bytes(self) -> int:
        return self._total

    @property
    def open_files(self) -> int:
        return len(self._open)

    def gathers(self, writer: Gathers, number: int) -> None:
        """`writer` holds `number` bytes now."""
        self._total += number - self._gathered.pop(writer, 0)
        if number:
            self._gathered[writer] = number
        while self._total > self.buffer_bytes:
            max(self._gathered, key=self._gathered.__getitem__).flush()

    def touched(self, files: Closes, key: Any) -> None:
        """A file of `files` was written to, and is open."""
        self._open[files, key] = None
        self._open.move_to_end((files, key))
        while len(self._open) > self._max_open_files:
            (others, oldest), _ = self._open.popitem(last=False)
            others.close(oldest)

    def closed(self, files: Closes, key: Any) -> None:
        self._open.pop((files, key), None)
