"""Many byte strings in one buffer: none of them is an object until somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

T = TypeVar("T")


class Packed(Sequence[bytes | None]):
    """n byte strings: the i-th is `data[starts[i]:ends[i]]`, None where `starts[i]` is negative.

    `data` is uint8. In `dense` ones a newline stands behind each string and nothing else between two of them.
    """

    __slots__ = ("_view", "data", "dense", "ends", "starts")

    def __init__(self, data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s, *, dense: bool = False) -> None:
        self.data, self.starts, self.ends, self.dense = data, starts, ends, dense
        self._view = memoryview(cast(Any, data))

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int) -> bytes | None: ...
    @overload
    def __getitem__(self, place: slice) -> Packed: ...
    def __getitem__(self, place: int | slice) -> bytes | Packed | None:
        if isinstance(place, slice):
            dense = self.dense and place.step in (None, 1)
            return Packed(self.data, self.starts[place], self.ends[place], dense=dense)
        start = self.starts[place]
        return None if start < 0 else bytes(self._view[start : self.ends[place]])

    def __iter__(self) -> Iterator[bytes | None]:
        view = self._view
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield None if start < 0 else bytes(view[start:end])

    def at(self, places: Int64s) -> Packed:
        """Those at `places`; the buffer stays."""
        return Packed(self.data, self.starts[places], self.ends[places])

    @property
    def nulls(self) -> npt.NDArray[np.bool_]:
        """Where there is None."""
        return self.starts < 0

    def sizes(self) -> Int64s:
        """Bytes of each; 0 for None."""
        return self.ends - self.starts

    def prefix(self, size: int) -> bytes | None:
        """The bytes that all begin with; None if they differ, or there is one without so many."""
        if not len(self) or int(self.sizes().min()) < size:
            return None
        first = self.data[self.starts[0] : self.starts[0] + size]
        same = all((self.data[self.starts + i] == first[i]).all() for i in range(size))
        return bytes(first) if same else None

    def block(self) -> memoryview:
        """The strings, of which none is None, with a newline between two of them."""
        if not len(self):
            return memoryview(b"")
        if self.dense:
            return self._view[int(self.starts[0]) : int(self.ends[-1])]
        return memoryview(b"\n".join(value or b"" for value in self))


def packed(values: Sequence[bytes]) -> Packed:
    """The values in one buffer, if they are not yet."""
    if isinstance(values, Packed):
        return values
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(sizes + 1) - 1
    # What kernels are compiled for can be written to.
    joined = bytearray(b"\n").join((*values, b""))
    return Packed(np.frombuffer(joined, np.uint8), ends - sizes, ends, dense=True)


def taken(values: Sequence[T], places: Int64s | Sequence[int]) -> Sequence[T]:
    """The values at `places`."""
    if isinstance(values, Packed):
        return cast(Sequence[T], values.at(np.asarray(places, np.int64)))
    return [values[place] for place in places]
