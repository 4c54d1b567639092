"""What a query gives as the columns of a table: of the table's types, or of such as these hold without loss."""

from __future__ import annotations

import uuid

import pyarrow as pa

from calve.sink_core.records.columns.arrow import misfit_at, rebuild
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN
from calve.sink_core.records.transform.query import ROW

_KINDS = (
    (pa.types.is_signed_integer, pa.types.is_signed_integer),
    (pa.types.is_unsigned_integer, pa.types.is_signed_integer),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_string, pa.types.is_large_string),
    (pa.types.is_binary, pa.types.is_large_binary),
    (pa.types.is_binary, pa.types.is_fixed_size_binary),
)


_WIDER = ("decimal", "time64")
"""Of which DuckDB has values that no table has: 128 bits of digits, and 24:00:00."""


def fitted(found: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """`found` as a batch of `schema`; columns that it lacks are null, `_kafka` is left out.

    Raises ArrowTypeError for a column that the table lacks or that is of another type, naming it, and ArrowInvalid for
    a value that its column can't hold.
    """
    given = {name: found.column(i).combine_chunks() for i, name in enumerate(found.column_names) if _is_output(i, name)}
    foreign = [name for name in given if schema.get_field_index(name) < 0]
    if foreign:
        raise pa.ArrowTypeError(f"{foreign[0]}: the table has no such column")
    columns = [
        _column(given[field.name], field) if field.name in given else pa.nulls(len(found), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _is_output(index: int, name: str) -> bool:
    """`SELECT *` brings the row's number and `_kafka` along."""
    return index > 0 and name not in (KAFKA_COLUMN, ROW)


def _column(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        _same_names(array.type, field.type)
        column = rebuild(array, field.type, _held)
        if any(kind in str(field.type) for kind in _WIDER):
            column.validate(full=True)
        return column
    except pa.ArrowTypeError as error:
        raise pa.ArrowTypeError(f"{field.name}: {error}") from None
    except pa.ArrowInvalid as error:
        raise misfit_at(str(field.name), error) from None


def _same_names(found: pa.DataType, wanted: pa.DataType) -> None:
    """Structs are matched by position later: their fields must be the same ones."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(found):
        ours, theirs = [field.name for field in wanted], [field.name for field in found]
        if ours != theirs:
            raise pa.ArrowTypeError(f"is a struct of {', '.join(theirs)}, the table has {', '.join(ours)}")
    for child in range(min(found.num_fields, wanted.num_fields)):
        _same_names(found.field(child).type, wanted.field(child).type)


def _held(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == wanted:
        return array
    if pa.types.is_string(array.type) and wanted == pa.binary(16):
        # How UUIDs leave DuckDB.
        values = [None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()]
        return pa.array(values, wanted)
    if _widens(array.type, wanted):
        return array.cast(wanted)
    raise pa.ArrowTypeError(f"is {array.type}, the table has {wanted}; cast it in the SQL")


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    if not any(of(found) and to(wanted) for of, to in _KINDS):
        return False
    if pa.types.is_timestamp(found):
        return (found.tz is None) == (wanted.tz is None) and found.unit != "ns"
    if pa.types.is_decimal(found):
        return found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale
    if pa.types.is_integer(found) or pa.types.is_floating(found):
        return found.bit_width < wanted.bit_width
    return True
