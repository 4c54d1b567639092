"""A checksum of all that records carry, in order: keys, values, timestamps, headers; equal for equal records only."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

Headers = list[tuple[str, bytes | None]] | None


class Digest:
    """Of one partition's records, however they are divided into batches.

    Keys and values are joined, which alone says nothing of where one ends: their lengths, -1 for null, and the
    timestamps are a stream of their own, and so are headers, of which most records have none.
    """

    def __init__(self) -> None:
        self._values = self._keys = self._shape = self._headers = self._records = 0

    def add(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int] | npt.NDArray[np.int64],
        headers: Sequence[Headers],
    ) -> None:
        """The next records, as columns of one length."""
        shape = np.empty((3, len(values)), np.int64)
        self._values, shape[0] = _joined(values, self._values)
        self._keys, shape[1] = _joined(keys, self._keys)
        shape[2] = timestamps_ms
        self._shape = crc32(shape.T.tobytes(), self._shape)
        if any(headers):
            for place, own in enumerate(headers, self._records):
                if own:
                    self._headers = crc32(repr((place, own)).encode(), self._headers)
        self._records += len(values)

    @property
    def value(self) -> int:
        """32 bits; 0 of no records."""
        if not self._records:
            return 0
        return crc32(struct.pack("<4I", self._values, self._keys, self._shape, self._headers))


def _joined(column: Sequence[bytes | None], before: int) -> tuple[int, Sequence[int] | int]:
    """The checksum with the column's bytes, and their lengths."""
    try:
        return crc32(b"".join(column), before), list(map(len, column))  # pyright: ignore[reportArgumentType]
    except TypeError:
        # Some are null; most columns have none, or nothing else.
        if column.count(None) == len(column):
            return before, -1
        filled = [each or b"" for each in column]
        return crc32(b"".join(filled), before), [-1 if each is None else len(each) for each in column]
