"""Messages read by the kernel: rows of words, and the Arrow arrays that `types` makes of the values themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from calve.sink_core.packed import Int64s, Packed
from calve.sink_core.records.protobuf import kernel
from calve.sink_core.texts import gather

_F = FieldDescriptor
# Digits that any number of 64 bits has at most.
_DIGITS = 20
_FLOATS = {_F.TYPE_FLOAT: np.dtype("<f4"), _F.TYPE_DOUBLE: np.dtype("<f8")}
_UNSIGNED = (_F.TYPE_UINT64, _F.TYPE_FIXED64)


Make = Callable[["Words"], pa.Array]


class Lacks(Exception):
    """A schema, or what a column is to be, that the kernel is not for."""


@dataclass(frozen=True, slots=True)
class Words:
    """What was read of `data`. A row begins at its `base` in `words`, which has one for each of its level's `counts`.

    Arrays are null where the row `valid` has no one; -1 is for arrays that have no nulls.
    """

    data: npt.NDArray[np.uint8]
    words: Int64s
    base: Int64s
    level_of: Int64s
    counts: Int64s

    def row(self, row: int) -> Int64s:
        begin = int(self.base[row])
        return self.words[begin : begin + int(self.counts[self.level_of[row]])]

    def there(self, valid: int) -> npt.NDArray[np.bool_] | None:
        """Where there is no null; None if there is none at all."""
        there = None if valid < 0 else self.row(valid).astype(np.bool_)
        return None if there is None or there.all() else there

    def array(self, kind: pa.DataType, values: npt.NDArray[Any], valid: int) -> pa.Array:
        """An array of a fixed width of the values."""
        # A part of `words` would keep all of these.
        own = values.copy() if np.may_share_memory(values, self.words) else values
        return pa.Array.from_buffers(kind, len(values), [self._bitmap(valid), pa.py_buffer(own)])

    def booleans(self, row: int, valid: int) -> pa.Array:
        values = self.row(row)
        bits = pa.py_buffer(np.packbits(values.astype(np.bool_), bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [self._bitmap(valid), bits])

    def bytes(self, kind: pa.DataType, row: int, valid: int) -> pa.Array:
        """Of large_binary or large_string."""
        starts, sizes = self.row(row), self.row(row + 1)
        offsets = _offsets(sizes)
        found = np.empty(int(offsets[-1]), np.uint8)
        gather(self.data, starts, offsets, found)
        buffers = [self._bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(found)]
        return pa.Array.from_buffers(kind, len(starts), buffers)

    def lists(self, many: int, values: pa.Array) -> pa.Array:
        """Of so many of the values as the row `many` says."""
        return pa.LargeListArray.from_arrays(pa.array(_offsets(self.row(many))), values)

    def struct(self, columns: dict[str, pa.Array], number: int, valid: int) -> pa.Array:
        there = self.there(valid)
        mask = pa.array(np.zeros(number, np.bool_) if there is None else ~there)
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        return pa.StructArray.from_arrays(list(columns.values()), fields=fields, mask=mask)

    def _bitmap(self, valid: int) -> pa.Buffer | None:
        there = self.there(valid)
        return None if there is None else pa.py_buffer(np.packbits(there, bitorder="little"))


@dataclass(frozen=True, slots=True)
class Table:
    """What the kernel goes by, as it says; of each row its level and default. `room` will do for most batches."""

    fields: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]
    enums: Int64s
    level_of: Int64s
    defaults: Int64s
    room: Int64s
    make: Make

    def read(self, values: Packed, header_bytes: int) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The messages behind headers of that size, and which of them are suspects and left out."""
        starts, ends = np.ascontiguousarray(values.starts), np.ascontiguousarray(values.ends)
        self.room[0] = len(values)
        self.room[1:] = np.maximum(self.room[1:], len(values))
        stack, suspect = np.empty((kernel.DEEPEST, kernel.FRAME_WORDS), np.int64), np.zeros(len(values), np.uint8)
        while True:
            sizes, counts = self.room[self.level_of], np.zeros((2, len(self.room)), np.int64)
            words, base = np.repeat(self.defaults, sizes), np.cumsum(sizes) - sizes
            rows = (self.room, self.level_of, self.defaults, base, counts, stack, words, suspect)
            number = kernel.read(values.data, starts, ends, header_bytes, self.fields, self.nodes, self.enums, *rows)
            if number != kernel.NO_ROOM:
                break
            self.room[1:] *= 1 + (counts[0, 1:] >= self.room[1:])
        # What one batch was too large for is not kept for all that come.
        self.room[1:] = 2 * counts[0, 1:]
        found = self.make(Words(values.data, words, base, self.level_of, counts[0]))
        return pa.RecordBatch.from_struct_array(found), suspect.astype(np.bool_)


Leaf = Callable[[Words, int, int], pa.Array]
"""Makes an array of a row, null as the one that comes next says."""


def leaf(kind: int, carrier: pa.DataType) -> Leaf:
    """Of fields of a kind, as `FieldDescriptor` has them, on their way to the carrier. Raises Lacks."""
    if pa.types.is_boolean(carrier):
        return Words.booleans
    if pa.types.is_decimal(carrier):
        return _decimals(kind, carrier)
    if pa.types.is_int64(carrier) or pa.types.is_float64(carrier):
        return _widened(_numbers(kind), carrier)
    if pa.types.is_string(carrier):
        return lambda words, row, valid: words.bytes(pa.large_string(), row, valid).cast(carrier)
    if pa.types.is_fixed_size_binary(carrier):
        return lambda words, row, valid: words.bytes(pa.large_binary(), row, valid).cast(carrier)
    return lambda words, row, valid: words.bytes(carrier, row, valid)


def chosen(values: pa.Array) -> Leaf:
    """Of a row of places among the values."""
    return lambda words, row, valid: values.take(words.array(pa.int64(), words.row(row), valid))


def _numbers(kind: int) -> Callable[[Int64s], npt.NDArray[Any]]:
    """Makes numbers of words: those of 32 bits are the lower half of theirs."""
    if kind in _FLOATS:
        of = _FLOATS[kind]
        return lambda words: words.view(of)[:: words.itemsize // of.itemsize]
    return (lambda words: words.view("<i4")[::2]) if kind == _F.TYPE_SFIXED32 else lambda words: words


def _widened(numbers: Callable[[Int64s], npt.NDArray[Any]], carrier: pa.DataType) -> Leaf:
    width = np.float64 if pa.types.is_float64(carrier) else np.int64

    def make(words: Words, row: int, valid: int) -> pa.Array:
        # NumPy warns of a NaN that signals, which here is as good as any.
        with np.errstate(invalid="ignore"):
            return words.array(carrier, numbers(words.row(row)).astype(width, copy=False), valid)

    return make


def _decimals(kind: int, carrier: pa.DataType) -> Leaf:
    if carrier.scale or carrier.precision < _DIGITS or not pa.types.is_decimal128(carrier):
        raise Lacks
    numbers, is_signed = _numbers(kind), kind not in _UNSIGNED

    def make(words: Words, row: int, valid: int) -> pa.Array:
        low = numbers(words.row(row)).astype(np.int64, copy=False)
        return words.array(carrier, np.column_stack((low, low >> 63 if is_signed else np.zeros_like(low))), valid)

    return make


def _offsets(sizes: Int64s) -> Int64s:
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found
