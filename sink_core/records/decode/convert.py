"""Parsed columns brought to the types of the table: lossless, or an error for that row."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from calve.sink_core.records.columns.arrow import Leaf, arrow_schema, file_schema, misfit_at, missing, rebuild
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.decode.bisection import Part, bisect
from calve.sink_core.records.decode.maps import has_typed_keys, key_twice
from calve.sink_core.records.decode.text import from_text

_DAY_MICROS = 24 * 60 * 60 * 1_000_000


class Converter:
    """Converts batches of a parser's types to the in-memory types of `schema`; `leaf` does so for what isn't nested,
    and raises ArrowInvalid for what doesn't fit."""

    def __init__(self, schema: Schema, leaf: Leaf) -> None:
        self._leaf = leaf
        # Types of files tell a UUID from fixed[16], those in memory don't.
        self._typed, self._target = file_schema(schema), arrow_schema(schema)
        self._has_keys = [has_typed_keys(field.field_type) for field in schema.fields]

    def convert(self, parsed: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows that fit, and by row number what is wrong with each of the others."""
        try:
            return self._all(parsed), {}
        except pa.ArrowInvalid:
            bad = self._misfits(parsed)
        keep = np.ones(len(parsed), np.bool_)
        keep[list(bad)] = False
        return self._all(parsed.filter(pa.array(keep))), bad

    def _all(self, parsed: pa.RecordBatch) -> pa.RecordBatch:
        columns = [self._column(i, column) for i, column in enumerate(parsed.columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _misfits(self, parsed: pa.RecordBatch) -> dict[int, str]:
        """What is wrong with the first column of each row in which anything is."""
        bad: dict[int, str] = {}
        for i in range(parsed.num_columns):
            rows = [row for row in range(len(parsed)) if row not in bad]
            _, unfit = bisect(len(rows), partial(self._try, i, parsed.column(i), rows), pa.ArrowInvalid)
            bad |= {rows[place]: str(error) for place, error in unfit.items()}
        return bad

    def _try(self, i: int, column: pa.Array, rows: list[int], part: Part) -> None:
        # Not a slice: its lists would still hold the values of all rows.
        self._column(i, column.take(pa.array(rows[part[0] : part[-1] + 1], pa.int64())))

    def _column(self, i: int, parsed: pa.Array) -> pa.Array:
        """Raises ArrowInvalid beginning with the field's name if a row doesn't fit."""
        target = self._target.field(i)
        try:
            column = rebuild(rebuild(parsed, self._typed.field(i).type, self._leaf), target.type)
            if "decimal" in str(target.type):
                # The parser checks a number's own digits, not those it has at the column's scale.
                column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise misfit_at(str(target.name), error) from error
        if name := missing(column, target):
            raise pa.ArrowInvalid(f"{name}: required, but missing or null")
        if self._has_keys[i] and (twice := key_twice(column)):
            raise pa.ArrowInvalid(f"{target.name}: key {twice} stands twice in one map")
        return column


def from_json(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """What JSON's parser made of a leaf, as the wanted type. Raises ArrowInvalid for what doesn't fit."""
    if array.type == wanted:
        return array
    if pa.types.is_decimal(wanted):
        return as_decimal(array, wanted)
    if not pa.types.is_float32(wanted):
        return from_text(array, wanted)
    narrow = pc.cast(array, wanted)
    if pc.any(pc.and_(pc.is_inf(narrow), pc.is_finite(array))).as_py():
        raise pa.ArrowInvalid("number too big for float")
    return narrow


def as_decimal(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Decimals as others, of another scale perhaps. Raises ArrowInvalid for one that has too many digits."""
    # In 128 bits Arrow may not notice that a number doesn't fit these.
    return pc.cast(pc.cast(array, pa.decimal256(2 * DECIMAL_DIGITS, array.type.scale)), wanted)


def from_typed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A leaf of a type of its own as the wanted type. Raises ArrowInvalid for what doesn't fit."""
    if pa.types.is_time(wanted):
        return _within_a_day(pc.cast(array, wanted))
    if array.type == wanted:
        return array
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(array.type):
        return as_decimal(array, wanted)
    if isinstance(wanted, pa.UuidType):
        is_text = pa.types.is_string(array.type)
        return from_text(array, wanted) if is_text else pa.ExtensionArray.from_storage(wanted, array)
    narrow = pc.cast(array, wanted, safe=not pa.types.is_float32(wanted))
    return _exact(array, narrow) if pa.types.is_float32(wanted) else narrow


def _exact(array: pa.Array, narrow: pa.Array) -> pa.Array:
    same = pc.or_(pc.equal(pc.cast(narrow, array.type), array), pc.is_nan(array))
    if pc.all(same).as_py() is False:
        raise pa.ArrowInvalid(f"{array.filter(pc.invert(same))[0].as_py()} is not exactly a float")
    return narrow


def _within_a_day(times: pa.Array) -> pa.Array:
    micros = times.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(micros, 0), pc.less(micros, _DAY_MICROS))
    if pc.all(fits).as_py() is False:
        raise pa.ArrowInvalid(f"{micros.filter(pc.invert(fits))[0].as_py()} µs is no time of a day")
    return times


def column_name(wanted: pa.DataType) -> str:
    """The column's type as Iceberg calls it."""
    for matches, name in _NAMES:
        if matches(wanted):
            return name
    return str(wanted)


_NAMES: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_struct, "a struct"),
    (pa.types.is_large_list, "a list"),
    (pa.types.is_map, "a map"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_large_binary, "binary"),
    (lambda wanted: isinstance(wanted, pa.UuidType), "uuid"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (lambda wanted: pa.types.is_timestamp(wanted) and cast(pa.TimestampType, wanted).tz is not None, "timestamptz"),
    (pa.types.is_timestamp, "timestamp"),
]
