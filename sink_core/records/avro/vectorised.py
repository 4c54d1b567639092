"""Many Avro records of one schema read field by field, each field of all records at once, with numpy.

Ten times as fast as fastavro for records, unions of one type with null, and leaves. Arrays and maps are read item by
item, the first ones of all records, then the second ones, so long ones are not for this. Whatever is unusual about a
record (cut short, a number of ten bytes, text that is not UTF-8, a key twice) makes it a suspect: it is left out, and
read on its own by others; so verdicts come from one place only.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calve.sink_core.records.avro.batch import Batch, Int64s, Suspects, TooManySteps
from calve.sink_core.records.avro.schema import Node, WriterSchema, exact, is_for_many_at_once, logical

_PADDING = bytes(16)
# Each takes out the records in which the same field is unusual.
_MOST_ATTEMPTS = 8
# Of an array or a map: each is a step over all records that have so many.
_MOST_ITEMS = 256
_WHOLE = ("int", "long")


class GaveUp(Exception):
    """The schema is not one for this reader."""


_Read = Callable[[Batch], pa.Array]


Reader = Callable[[Sequence[bytes], int], tuple[pa.RecordBatch, list[int]] | None]
"""Reads values, whose data begins after so many bytes: their columns, suspects left out, and which those are. None if
there are too many of them."""


def reader(schema: WriterSchema, carrier: pa.DataType) -> Reader | None:
    """Reads values to columns of the struct `carrier`, as `Carriers` chose it. None if the schema is not for this."""
    record = schema.record
    if record is None or schema.resolved(schema.root) != record or not is_for_many_at_once(schema):
        return None
    try:
        read = _record(schema, record, carrier)
    except GaveUp:
        return None

    def read_all(values: Sequence[bytes], header_bytes: int) -> tuple[pa.RecordBatch, list[int]] | None:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        suspect = lengths < header_bytes
        for _ in range(_MOST_ATTEMPTS):
            places = np.flatnonzero(~suspect)
            chosen = [values[place] for place in places.tolist()] if suspect.any() else values
            data = np.frombuffer(b"".join((*chosen, _PADDING)), np.uint8)
            ends = np.cumsum(lengths[places])
            batch = Batch(data, ends - lengths[places] + header_bytes, ends, places)
            try:
                rows = read(batch)
                batch.refuse(batch.at != ends)
            except Suspects as found:
                suspect[found.places] = True
            except (TooManySteps, pa.ArrowInvalid, pa.ArrowTypeError):
                return None
            else:
                return pa.RecordBatch.from_struct_array(rows), np.flatnonzero(suspect).tolist()
        return None

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
    if kind == "array":
        return _array(schema, cast(dict[str, Any], node), carrier)
    if kind == "map":
        return _map(schema, cast(dict[str, Any], node), carrier)
    return _leaf(node, kind, carrier)


def _record(schema: WriterSchema, node: dict[str, Any], carrier: pa.DataType | None) -> _Read:
    wanted = {field.name: field.type for field in carrier} if carrier is not None else {}
    steps = [(str(m["name"]), _of(schema, m["type"], wanted.get(str(m["name"])))) for m in node["fields"]]

    def read(batch: Batch) -> pa.Array:
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

    def read(batch: Batch) -> pa.Array:
        chosen = batch.whole()
        batch.refuse((chosen < 0) | (chosen >= len(branches)))
        there = chosen == place
        if only_null:
            batch.refuse(there)
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


def _array(schema: WriterSchema, node: dict[str, Any], carrier: pa.DataType | None) -> _Read:
    inner = _of(schema, node["items"], carrier.value_type if carrier is not None else None)

    def read(batch: Batch) -> pa.Array:
        items, offsets, _ = _items(batch, inner)
        if carrier is None:
            return pa.nulls(len(batch))
        items = pa.nulls(0, carrier.value_type) if items is None else items
        return pa.LargeListArray.from_arrays(pa.array(offsets), items, type=carrier)

    return read


def _map(schema: WriterSchema, node: dict[str, Any], carrier: pa.DataType | None) -> _Read:
    key = _carried_as(_LEAVES["string"], carrier.key_type if carrier is not None else None)
    value = _of(schema, node["values"], carrier.item_type if carrier is not None else None)

    def entry(batch: Batch) -> pa.Array:
        return pa.StructArray.from_arrays([key(batch), value(batch)], names=["key", "value"])

    def read(batch: Batch) -> pa.Array:
        entries, offsets, owners = _items(batch, entry)
        if entries is not None:
            batch.refuse(_with_a_key_twice(entries.field(0), owners, len(batch)))
        if carrier is None:
            return pa.nulls(len(batch))
        if entries is None:
            return pa.array([{}] * len(batch), carrier)
        keys, items = entries.field(0), entries.field(1)
        return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, items, type=carrier)

    return read


def _items(batch: Batch, inner: _Read) -> tuple[pa.Array | None, Int64s, Int64s]:
    """The items of all records' arrays or maps one after another, None if there are none, their offsets by record, and
    which record each belongs to."""
    pieces, owners = list[pa.Array](), list[Int64s]()
    active = np.arange(len(batch))
    while len(active):
        block = batch.some(active)
        counts = block.whole()
        negative = np.flatnonzero(counts < 0)
        if len(negative):
            # The count of a block that says its size in bytes as well.
            sized = block.some(negative)
            sized.whole()
            block.at[negative], counts[negative] = sized.at, -counts[negative]
        block.refuse((counts < 0) | (counts > _MOST_ITEMS))
        batch.at[active] = block.at
        active, counts = active[counts > 0], counts[counts > 0]
        for i in range(max(counts.tolist(), default=0)):
            batch.step()
            rows = active[counts > i]
            some = batch.some(rows)
            pieces.append(inner(some))
            owners.append(rows)
            batch.at[rows] = some.at
        if len(pieces) > _MOST_ITEMS and len(active):
            raise Suspects(batch.places[active])
    belongs = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(belongs, minlength=len(batch))))).astype(np.int64)
    order = np.argsort(belongs, kind="stable")
    items = pa.concat_arrays(pieces).take(pa.array(order)) if pieces else None
    return items, offsets, belongs[order]


def _with_a_key_twice(keys: pa.Array, owners: Int64s, records: int) -> npt.NDArray[np.bool_]:
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    pairs, times = np.unique(owners + codes * records, return_counts=True)
    found = np.zeros(records, np.bool_)
    found[pairs[times > 1] % records] = True
    return found


def _leaf(node: Node, kind: str, carrier: pa.DataType | None) -> _Read:
    if logical(node) == "decimal":
        return _decimal(cast(dict[str, Any], node), kind, carrier)
    if kind == "fixed":
        return _fixed(int(cast(dict[str, Any], node)["size"]), carrier)
    if kind == "enum":
        return _enum(cast(dict[str, Any], node)["symbols"], carrier)
    if kind not in _LEAVES:
        raise GaveUp
    return _carried_as(_LEAVES[kind], carrier)


def _carried_as(read: _Read, carrier: pa.DataType | None) -> _Read:
    return read if carrier is None else lambda batch: carried(read(batch), carrier)


def carried(found: pa.Array, carrier: pa.DataType) -> pa.Array:
    """What was read, as the type that its column is first brought to."""
    if found.type == carrier:
        return found
    if pa.types.is_decimal(carrier):
        return pa.array(found.to_pylist(), carrier)
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

    def read(batch: Batch) -> pa.Array:
        rows = np.ascontiguousarray(batch.bytes_at(size))
        found = pa.Array.from_buffers(pa.binary(size), len(batch), [None, pa.py_buffer(rows)])
        return found if carrier is None else carried(found, carrier)

    return read


def _enum(symbols: Sequence[str], carrier: pa.DataType | None) -> _Read:
    names = pa.array(symbols, carrier or pa.large_string())

    def read(batch: Batch) -> pa.Array:
        chosen = batch.whole()
        batch.refuse((chosen < 0) | (chosen >= len(symbols)))
        return names.take(pa.array(chosen))

    return read


def _boolean(batch: Batch) -> pa.Array:
    found = batch.bytes_at(1).ravel()
    batch.refuse(found > 1)
    return pa.array(found.astype(np.bool_))


def _text(batch: Batch) -> pa.Array:
    found = batch.slices()
    try:
        return found.cast(pa.large_string())
    except pa.ArrowInvalid:
        batch.refuse(np.array([not is_text(value) for value in found.to_pylist()], np.bool_))
        raise


def is_text(value: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _numbers(kind: str, size: int) -> _Read:
    def read(batch: Batch) -> pa.Array:
        with np.errstate(invalid="ignore"):  # a NaN of any bits is one
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
    "string": _text,
}
