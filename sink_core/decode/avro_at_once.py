"""Many Avro records of one schema read field by field, each field of all records at once, with numpy.

Ten times as fast as fastavro, but only for what has no loops in it: records, unions of one type with null, and leaves.
Whatever is unusual about a batch (a value that is cut short, a number of ten bytes, text that is not UTF-8) gives it
up, and the records are read one by one; so verdicts come from one place only.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sink_core.decode.avro_schema import Node, WriterSchema, exact, logical

_Int64s = npt.NDArray[np.int64]
_PADDING = bytes(16)
# Up to nine bytes of seven bits; a tenth one would hold the 64th bit.
_LAST_SHIFT = 56
_WHOLE = ("int", "long")


class GaveUp(Exception):
    """The batch is not one for this reader."""


class _Batch:
    """The bytes of the records, and how far each is read. `ends` are where they end."""

    def __init__(self, data: npt.NDArray[np.uint8], at: _Int64s, ends: _Int64s) -> None:
        self.data, self.at, self.ends = data, at, ends

    def __len__(self) -> int:
        return len(self.at)

    def advance(self, to: _Int64s) -> None:
        if (to > self.ends).any():
            raise GaveUp
        self.at = to

    def some(self, places: _Int64s) -> _Batch:
        return _Batch(self.data, self.at[places], self.ends[places])

    def bytes_at(self, size: int) -> npt.NDArray[np.uint8]:
        """The next bytes of each record, one row for each."""
        start = self.at
        self.advance(start + size)
        if size == 0 or not len(self):
            return np.zeros((len(self), size), np.uint8)
        return np.lib.stride_tricks.sliding_window_view(self.data, size)[start]

    def whole(self) -> _Int64s:
        """The next int or long of each record."""
        at = self.at
        byte = self.data[at]
        found = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        going, shift = np.flatnonzero(byte & 0x80), 7
        while len(going):
            if shift > _LAST_SHIFT:
                raise GaveUp
            byte = self.data[at[going]]
            found[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[going] += 1
            going, shift = going[(byte & 0x80) != 0], shift + 7
        self.advance(at)
        return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)

    def slices(self) -> pa.Array:
        """The next bytes or string of each record, as large_binary."""
        lengths = self.whole()
        if (lengths < 0).any():
            raise GaveUp
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


_Read = Callable[[_Batch], pa.Array]


def reader(
    schema: WriterSchema, carrier: pa.DataType
) -> Callable[[Sequence[bytes], int], pa.RecordBatch | None] | None:
    """Reads values, whose data begins after so many bytes, to columns of the struct `carrier`, as `Carriers` chose it.

    None if the schema is not for this; what it returns gives None for values that are not.
    """
    record = schema.record
    if record is None or schema.resolved(schema.root) != record:
        return None
    try:
        read = _record(schema, record, carrier)
    except (GaveUp, RecursionError):  # a record within itself has no end
        return None

    def read_all(values: Sequence[bytes], header_bytes: int) -> pa.RecordBatch | None:
        data = np.frombuffer(b"".join((*values, _PADDING)), np.uint8)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        ends = np.cumsum(lengths)
        batch = _Batch(data, ends - lengths + header_bytes, ends)
        try:
            if (batch.at > ends).any():
                return None
            rows = read(batch)
        except (GaveUp, pa.ArrowInvalid, pa.ArrowTypeError):
            return None
        return pa.RecordBatch.from_struct_array(rows) if (batch.at == ends).all() else None

    return read_all


def _of(schema: WriterSchema, given: Node, carrier: pa.DataType | None) -> _Read:
    """Reads a value of `given`; without a carrier only past it. Raises GaveUp for a type that isn't for this reader."""
    node = schema.resolved(given)
    if isinstance(node, list):
        return _union(schema, cast(list[Node], node), carrier)
    if node == "null":
        return lambda batch: pa.nulls(len(batch))
    if carrier is not None and pa.types.is_null(carrier):
        # A value here makes its record a bad one.
        raise GaveUp
    kind = str(node["type"]) if isinstance(node, dict) else node
    if kind in ("record", "error"):
        return _record(schema, cast(dict[str, Any], node), carrier)
    return _leaf(node, kind, carrier)


def _record(schema: WriterSchema, node: dict[str, Any], carrier: pa.DataType | None) -> _Read:
    wanted = {field.name: field.type for field in carrier} if carrier is not None else {}
    steps = [(str(m["name"]), _of(schema, m["type"], wanted.get(str(m["name"])))) for m in node["fields"]]

    def read(batch: _Batch) -> pa.Array:
        found = {name: step(batch) for name, step in steps}
        if carrier is None:
            return pa.nulls(len(batch))
        columns = [found.get(field.name) for field in carrier]
        nothing = pa.nulls(len(batch))
        return pa.StructArray.from_arrays([nothing if c is None else c for c in columns], fields=list(carrier))

    if carrier is not None and not carrier.num_fields:
        raise GaveUp
    return read


def _union(schema: WriterSchema, branches: list[Node], carrier: pa.DataType | None) -> _Read:
    values = [branch for branch in branches if branch != "null"]
    if len(values) != 1:
        raise GaveUp
    # A value where none fits the column makes its record a bad one; nulls are well.
    only_null = carrier is not None and pa.types.is_null(carrier)
    inner, place = _of(schema, values[0], None if only_null else carrier), branches.index(values[0])

    def read(batch: _Batch) -> pa.Array:
        chosen = batch.whole()
        if ((chosen < 0) | (chosen >= len(branches))).any():
            raise GaveUp
        there = chosen == place
        if only_null and there.any():
            raise GaveUp
        if only_null:
            return pa.nulls(len(batch))
        if there.all():
            return inner(batch)
        places = np.flatnonzero(there)
        some = batch.some(places)
        found = inner(some)
        batch.at[places] = some.at
        return _spread(found, there)

    return read


def _spread(found: pa.Array, there: npt.NDArray[np.bool_]) -> pa.Array:
    """The values found at the places that have one, null at the others.

    Within a null struct stand empty values rather than nulls: Parquet's writer takes no null for a required field, even
    where the struct around it is null.
    """
    places = np.cumsum(there) - 1
    if not pa.types.is_struct(found.type):
        return found.take(pa.array(places, mask=~there))
    with_empty = pa.concat_arrays([found, pa.array([None], found.type)])
    rows = with_empty.take(pa.array(np.where(there, places, len(found))))
    children = [rows.field(i) for i in range(found.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(found.type), mask=pa.array(~there))


def _leaf(node: Node, kind: str, carrier: pa.DataType | None) -> _Read:
    if logical(node) == "decimal":
        return _decimal(cast(dict[str, Any], node), kind, carrier)
    if kind == "fixed":
        return _fixed(int(cast(dict[str, Any], node)["size"]), carrier)
    if kind == "enum":
        return _enum(cast(dict[str, Any], node)["symbols"], carrier)
    if kind not in _LEAVES:
        raise GaveUp
    read = _LEAVES[kind]
    return read if carrier is None else lambda batch: _carried(read(batch), carrier)


def _carried(found: pa.Array, carrier: pa.DataType) -> pa.Array:
    if found.type == carrier:
        return found
    if pa.types.is_decimal(carrier):
        raise GaveUp
    if pa.types.is_date32(carrier) or pa.types.is_time32(carrier):
        found = found.cast(pa.int32())
    return found.cast(carrier)


def _decimal(node: dict[str, Any], kind: str, carrier: pa.DataType | None) -> _Read:
    read, scale = _fixed(int(node["size"]), None) if kind == "fixed" else _LEAVES["bytes"], int(node.get("scale", 0))
    if carrier is None:
        return read
    return lambda batch: pa.array([exact(value, scale) for value in read(batch).to_pylist()], carrier)


def _fixed(size: int, carrier: pa.DataType | None) -> _Read:
    if size == 0:
        raise GaveUp

    def read(batch: _Batch) -> pa.Array:
        rows = np.ascontiguousarray(batch.bytes_at(size))
        found = pa.Array.from_buffers(pa.binary(size), len(batch), [None, pa.py_buffer(rows)])
        return found if carrier is None else _carried(found, carrier)

    return read


def _enum(symbols: Sequence[str], carrier: pa.DataType | None) -> _Read:
    names = pa.array(symbols, carrier or pa.large_string())

    def read(batch: _Batch) -> pa.Array:
        chosen = batch.whole()
        if ((chosen < 0) | (chosen >= len(symbols))).any():
            raise GaveUp
        return names.take(pa.array(chosen))

    return read


def _boolean(batch: _Batch) -> pa.Array:
    found = batch.bytes_at(1).ravel()
    if (found > 1).any():
        raise GaveUp
    return pa.array(found.astype(np.bool_))


def _numbers(kind: str, size: int) -> _Read:
    def read(batch: _Batch) -> pa.Array:
        return pa.array(np.ascontiguousarray(batch.bytes_at(size)).view(kind).ravel().astype(np.float64))

    return read


_LEAVES: dict[str, _Read] = {
    "boolean": _boolean,
    "int": lambda batch: pa.array(batch.whole()),
    "long": lambda batch: pa.array(batch.whole()),
    "float": _numbers("<f4", 4),
    "double": _numbers("<f8", 8),
    "bytes": lambda batch: batch.slices(),
    # Also where it isn't wanted: text that isn't UTF-8 makes the record a bad one.
    "string": lambda batch: batch.slices().cast(pa.large_string()),
}
