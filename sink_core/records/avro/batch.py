"""Many Avro records of one schema as bytes in a row, each read as far as the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
# Up to nine bytes of seven bits; a tenth one would hold the 64th bit.
_LAST_SHIFT = 56
# Each costs some 20 µs, however few records it is for.
_MOST_STEPS = 2000


class Suspects(Exception):
    """Records, by their places among the values, that are not for this reader."""

    def __init__(self, places: Int64s) -> None:
        super().__init__()
        self.places = places


class TooManySteps(Exception):
    """Items within items: reading the records one by one is faster."""


class Batch:
    """The bytes of the records, and how far each is read. `ends` are where they end, `places` say which they are."""

    def __init__(self, data: npt.NDArray[np.uint8], at: Int64s, ends: Int64s, places: Int64s) -> None:
        self.data, self.at, self.ends, self.places = data, at, ends, places
        self._steps = [_MOST_STEPS]

    def __len__(self) -> int:
        return len(self.at)

    def advance(self, to: Int64s) -> None:
        self.refuse(to > self.ends)
        self.at = to

    def refuse(self, suspect: npt.NDArray[np.bool_]) -> None:
        """Raise Suspects if there are any."""
        if suspect.any():
            raise Suspects(self.places[suspect])

    def some(self, rows: Int64s) -> Batch:
        found = Batch(self.data, self.at[rows], self.ends[rows], self.places[rows])
        found._steps = self._steps
        return found

    def step(self) -> None:
        """Count an item that is read of some records. Raises TooManySteps."""
        self._steps[0] -= 1
        if self._steps[0] < 0:
            raise TooManySteps

    def bytes_at(self, size: int) -> npt.NDArray[np.uint8]:
        """The next bytes of each record, one row for each."""
        start = self.at
        self.advance(start + size)
        if size == 0 or not len(self):
            return np.zeros((len(self), size), np.uint8)
        return np.lib.stride_tricks.sliding_window_view(self.data, size)[start]

    def whole(self) -> Int64s:
        """The next int or long of each record."""
        at = self.at
        byte = self.data[at]
        found = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        going, shift = np.flatnonzero(byte & 0x80), 7
        while len(going):
            if shift > _LAST_SHIFT:
                raise Suspects(self.places[going])
            byte = self.data[at[going]]
            found[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[going] += 1
            going, shift = going[(byte & 0x80) != 0], shift + 7
        self.advance(at)
        return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)

    def slices(self) -> pa.Array:
        """The next bytes or string of each record, as large_binary."""
        lengths = self.whole()
        self.refuse(lengths < 0)
        start = self.at
        # A length beyond all measure would overflow the sum.
        self.advance(start + np.minimum(lengths, len(self.data)))
        if not len(self):
            return pa.array([], pa.large_binary())
        # Records follow one another, so their parts and the gaps between them are a binary array over the very bytes.
        borders = np.column_stack((start, self.at)).ravel()
        buffers = [None, pa.py_buffer(borders), pa.py_buffer(self.data)]
        parts_and_gaps = pa.Array.from_buffers(pa.large_binary(), len(borders) - 1, buffers)
        return parts_and_gaps.take(pa.array(np.arange(0, len(borders) - 1, 2)))
