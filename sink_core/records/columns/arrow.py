"""Iceberg schemas as Arrow's, arrays brought to a type that differs only in names, nullability or leaves, and what
holds for which rows, as NumPy has it.

UUIDs are 16 plain bytes in memory, since Arrow can neither filter nor concatenate its extension types within structs;
in files they are Arrow's extension type, which writes Parquet's UUID annotation.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, SchemaVisitor, visit
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

_FIELD_ID, _DOC = b"PARQUET:field_id", b"doc"

_PLAIN: Mapping[type[PrimitiveType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.large_string(),
    BinaryType: pa.large_binary(),
    GeometryType: pa.large_binary(),
    GeographyType: pa.large_binary(),
    UnknownType: pa.null(),
}
"""Arrow's types of those that have no parameters there."""

Leaf = Callable[[pa.Array, pa.DataType], pa.Array]
Bools = npt.NDArray[np.bool_]


def file_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema a Parquet file is written with: field ids in the metadata, required fields not nullable."""
    return visit(schema, _ToArrow(pa.uuid()))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of batches in memory: as `file_schema`, with 16 bytes for a UUID."""
    return visit(schema, _ToArrow(pa.uuid().storage_type))


def iceberg_id(field: pa.Field) -> int:
    """The Iceberg id of a field of a file's schema, -1 if it has none."""
    return int((field.metadata or {}).get(_FIELD_ID, -1))


def conform(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """`columns`, in the order of `schema`, as a batch of exactly that schema; data is shared, not copied.

    Raises ArrowTypeError if a type differs in more than names, field ids, nullability and UUID annotation.
    """
    arrays = [rebuild(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def unchanged(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A leaf that must be of the wanted type already. Raises ArrowTypeError if it is not."""
    if isinstance(array, pa.UuidArray):
        return unchanged(array.storage, wanted)
    if isinstance(wanted, pa.UuidType):
        return pa.ExtensionArray.from_storage(wanted, unchanged(array, wanted.storage_type))
    if array.type != wanted:
        raise pa.ArrowTypeError(f"expected {wanted}, got {array.type}")
    return array


class Misfit(pa.ArrowInvalid):  # pyright: ignore[reportUntypedBaseClass]
    """Values that don't fit at a dotted `path` below a column, and `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


def misfit_at(name: str, error: pa.ArrowInvalid) -> Misfit:
    """What doesn't fit in a field of this name, or below it."""
    return Misfit(f"{name}.{error.path}", error.why) if isinstance(error, Misfit) else Misfit(name, str(error))


def _rebuild_at(name: str, array: pa.Array, wanted: pa.DataType, leaf: Leaf) -> pa.Array:
    try:
        return rebuild(array, wanted, leaf)
    except pa.ArrowInvalid as error:
        raise misfit_at(name, error) from error


def rebuild(array: pa.Array, wanted: pa.DataType, leaf: Leaf = unchanged) -> pa.Array:
    """`array` with the structure of `wanted`; what isn't nested goes through `leaf`.

    Structs match by position. A list of two-field structs becomes a map, an array of type null one of nulls. Offsets
    and validity are kept, so a value is null where it was null before; but not what is required below a null struct,
    where Parquet's writer takes no null. Raises what `leaf` raises, ArrowInvalid below structs and lists as Misfit.
    """
    if array.type.equals(wanted, check_metadata=True) and not _requires_below(wanted):
        return array
    if pa.types.is_null(array.type):
        nothing = pa.nulls(len(array), wanted)
        return _rebuild_struct(nothing, wanted, unchanged) if pa.types.is_struct(wanted) else nothing
    if pa.types.is_struct(wanted):
        return _rebuild_struct(array, wanted, leaf)
    if pa.types.is_large_list(wanted) and pa.types.is_list(array.type):
        array = _with_large_offsets(array)
    if pa.types.is_large_list(wanted) or pa.types.is_list(wanted):
        return with_values(array, wanted, _rebuild_at("element", array.values, wanted.value_type, leaf))
    if pa.types.is_map(wanted):
        entries = pa.struct([wanted.key_field, wanted.item_field])
        return with_values(array, wanted, rebuild(_entries(array), entries, leaf))
    return leaf(array, wanted)


def missing(array: pa.Array, field: pa.Field, path: str = "", absent: int = 0) -> str | None:
    """The dotted name of a required field that is null somewhere although what it belongs to is not; None if none is.

    List elements are called `element`, a map's parts `key` and `value`, as in the Iceberg specification. `absent` is
    how many of the nulls are due to the struct the field belongs to.
    """
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and array.null_count > absent:
        return path
    found = (missing(child, of, path, nulls) for child, of, nulls in _children(array))
    return next((name for name in found if name), None)


class _ToArrow(SchemaVisitor[Any]):
    """Arrow's schema of an Iceberg one, UUIDs as the type given: what pyiceberg's own makes of it, as a test holds."""

    def __init__(self, uuid: pa.DataType) -> None:
        self._uuid = uuid

    def schema(self, schema: Schema, struct_result: pa.StructType) -> pa.Schema:  # noqa: ARG002 - as all visitors
        return pa.schema(list(struct_result))

    def struct(self, struct: StructType, field_results: Sequence[pa.Field]) -> pa.DataType:  # noqa: ARG002
        return pa.struct(field_results)

    def field(self, field: NestedField, field_result: pa.DataType) -> pa.Field:
        doc = {_DOC: field.doc} if field.doc else {}
        metadata = {**doc, _FIELD_ID: str(field.field_id)}
        return pa.field(field.name, field_result, nullable=field.optional, metadata=metadata)

    def list(self, list_type: ListType, element_result: pa.DataType) -> pa.DataType:
        return pa.large_list(self.field(list_type.element_field, element_result))

    def map(self, map_type: MapType, key_result: pa.DataType, value_result: pa.DataType) -> pa.DataType:
        return pa.map_(self.field(map_type.key_field, key_result), self.field(map_type.value_field, value_result))

    def primitive(self, primitive: PrimitiveType) -> pa.DataType:
        match primitive:
            case DecimalType():
                return pa.decimal128(primitive.precision, primitive.scale)
            case FixedType():
                return pa.binary(len(primitive))
            case UUIDType():
                return self._uuid
            case _:
                return _PLAIN[type(primitive)]


def _rebuild_struct(array: pa.Array, wanted: pa.DataType, leaf: Leaf) -> pa.Array:
    # What lies below a null struct may be anything, and is no value that `leaf` is to judge.
    parts = array.flatten() if array.null_count else [array.field(i) for i in range(wanted.num_fields)]
    children = [_rebuild_at(str(f.name), part, f.type, leaf) for part, f in zip(parts, wanted, strict=True)]
    if not array.null_count:
        return pa.StructArray.from_arrays(children, fields=list(wanted))
    absent = array.is_null()
    flags = absent.to_numpy(zero_copy_only=False)
    children = [c if f.nullable else _present(c, flags) for c, f in zip(children, wanted, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=absent)


def _present(array: pa.Array, at: npt.NDArray[np.bool_]) -> pa.Array:
    """`array` without the nulls it has where `at` is set: whatever lies beneath them stands there."""
    if not array.null_count:
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _present(array.storage, at))
    null = array.is_null().to_numpy(zero_copy_only=False) & ~at
    if pa.types.is_struct(array.type):
        fields = list(array.type)
        children = [array.field(i) if f.nullable else _present(array.field(i), at) for i, f in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(null))
    bits = np.packbits(np.concatenate([np.zeros(array.offset, np.bool_), ~null]), bitorder="little")
    nested = pa.types.is_large_list(array.type) or pa.types.is_list(array.type) or pa.types.is_map(array.type)
    beneath = array.buffers()[1:2] if nested else array.buffers()[1:]
    children = [_entries(array)] if nested else None
    return pa.Array.from_buffers(
        array.type, len(array), [pa.py_buffer(bits), *beneath], -1, array.offset, children=children
    )


def _requires_below(wanted: pa.DataType) -> bool:
    """Whether a struct in the type has a field that must not be null."""
    if not pa.types.is_nested(wanted):
        return False
    if pa.types.is_struct(wanted):
        return any(not field.nullable or _requires_below(field.type) for field in wanted)
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        return _requires_below(wanted.value_type)
    return pa.types.is_map(wanted) and (_requires_below(wanted.key_type) or _requires_below(wanted.item_type))


def with_values(array: pa.Array, wanted: pa.DataType, values: pa.Array) -> pa.Array:
    """A list or map of the wanted type with the offsets and nulls of `array`, and other values; a map's are structs."""
    return pa.Array.from_buffers(
        wanted, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _with_large_offsets(array: pa.Array) -> pa.Array:
    offsets = array.offsets.cast(pa.int64())
    mask = array.is_null() if array.null_count else None
    return pa.LargeListArray.from_arrays(offsets, array.values, type=pa.large_list(array.type.value_field), mask=mask)


def _entries(array: pa.Array) -> pa.Array:
    if pa.types.is_map(array.type):
        return pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
        )
    return array.values


def _children(array: pa.Array) -> list[tuple[pa.Array, pa.Field, int]]:
    """Children, their fields, and how many of their nulls come from the parent."""
    if pa.types.is_struct(array.type):
        # `flatten` shows a struct's own nulls in each child.
        return [(child, field, array.null_count) for child, field in zip(array.flatten(), array.type, strict=True)]
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return [(array.flatten(), array.type.value_field.with_name("element"), 0)]
    if pa.types.is_map(array.type):
        key, value = array.type.key_field.with_name("key"), array.type.item_field.with_name("value")
        return [(array.keys, key, 0), (array.items, value, 0)]
    return []


def column_of(rows: pa.Table, field_id: int, schema: Schema) -> pa.ChunkedArray:
    """The column of a field id, within structs if it is nested; `rows` begin with the columns of `schema`."""
    path = schema.accessor_for_field(field_id)
    column = rows.column(path.position)
    while path.inner is not None:
        path = path.inner
        column = pc.struct_field(column, [path.position])  # pyright: ignore[reportAttributeAccessIssue] (made at import)
    return column


def true(flags: pa.Array) -> Bools:
    """Where a boolean is there and true."""
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)


def nulls(column: pa.Array) -> Bools:
    """Where there is no value."""
    return true(pc.is_null(column))


def is_in(column: pa.Array, values: Sequence[str]) -> Bools:
    """Where the text is one of these."""
    return true(pc.is_in(column, value_set=pa.array(values, column.type)))
