# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false
"""JSON objects, one a record, decoded straight to Arrow columns typed by an Iceberg schema.

Many records are parsed as one block. That a record is one object and nothing but that, whatever its neighbours are,
rests on this: every value begins with `{`, ends with `}`, and a newline stands between two of them. No object can reach
over such a joint: within a string a raw newline is illegal, and after `}` a `{` is illegal until the outermost object
is closed. So each value yields at least one row, and as many rows as values means one each. Whenever the block fails,
or the count differs, it is cut down, in the end to single records, and the verdict on a single record decides.

What a record may hold: numbers, strings, booleans, objects and lists for the Iceberg types of the same nature; decimals
as number or string; maps as objects; the rest as text (`sink_core.decode.text`). Nothing is rounded or coerced: `1.5`
and `"1"` are errors for a long, `1.255` is one for decimal(5, 2). The exception is what JSON numbers for float and
double always mean: the nearest value, with NaN and Infinity accepted and anything beyond the type's range an error.
Fields the schema doesn't have are ignored, missing ones are null, names match exactly. A number beyond double's range is
an error wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyiceberg.schema import Schema

from sink_core.decode.maps import has_maps, with_entries
from sink_core.decode.text import carried_as_text, from_text
from sink_core.tables.arrow import arrow_schema, conform, file_schema, missing, rebuild

DECODE = "decode"
"""Stage of a value that isn't one JSON object in UTF-8."""
FIT = "fit"
"""Stage of an object that doesn't fit the table's schema."""

_MESSAGE_LENGTH = 200
_WHITESPACE = b" \t\r\n"
_OPEN, _CLOSE = b"{}"
# Below this many, the row an error names is a better place to cut than the middle: the parse before it is repeated.
_CUT_AT_ROW = 512
_ROW = re.compile(r" in row (\d+)")


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that has no row. `index` is its place among the values given; `message` has at most 200 characters."""

    index: int
    stage: str
    message: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`columns` has one row for each good value, in order. `good` are their indices, None if all values are good."""

    columns: pa.RecordBatch
    good: list[int] | None
    bad: tuple[BadValue, ...]


class _NotOneObjectEach(ValueError):
    pass


_FAILURES = (pa.ArrowException, ValueError, RecursionError)


class JsonDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`)."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._typed = file_schema(schema)
        self._parsed = pa.schema([pa.field(field.name, _parsed_type(field.type)) for field in self._typed])
        self._target = arrow_schema(schema)
        self._holding_decimals = {field.name for field in self._target if "decimal" in str(field.type)}
        self._rewrites = has_maps(schema)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode `values`; a bad one is reported with its index and doesn't touch the others."""
        pieces: list[tuple[range, pa.RecordBatch]] = []
        bad: list[BadValue] = []
        spans = [(0, len(values))] if values else []
        while spans:
            start, end = spans.pop()
            try:
                pieces.append((range(start, end), self._parse(values[start:end])))
            except _FAILURES as error:
                if end - start == 1:
                    bad.append(self._verdict(start, values[start], error))
                else:
                    spans += _cut(start, end, error)
        return self._assemble(pieces, bad)

    def _assemble(self, pieces: list[tuple[range, pa.RecordBatch]], bad: list[BadValue]) -> Decoded:
        batches = [batch for _, batch in pieces] or [self._convert(_only_batch(self._parsed.empty_table()))]
        columns = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        if not bad:
            return Decoded(columns, None, ())
        good = [index for indices, _ in pieces for index in indices]
        return Decoded(columns, good, tuple(bad))

    def _parse(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """One row for each value, or an error; all or nothing."""
        if self._rewrites:
            values = [with_entries(value, self._schema.fields) for value in values]
        block = _join(values)
        return self._convert(_read(block, self._parsed, len(values)))

    def _convert(self, parsed: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            rebuild(column, field.type, _leaf) for column, field in zip(parsed.columns, self._typed, strict=True)
        ]
        batch = conform(columns, self._target)
        for column, field in zip(batch.columns, batch.schema, strict=True):
            if field.name in self._holding_decimals:
                # The parser checks a number's own digits, not those it has at the column's scale.
                column.validate(full=True)
            if name := missing(column, field):
                raise pa.ArrowInvalid(f"{name}: required, but missing or null")
        return batch

    def _verdict(self, index: int, value: bytes, error: Exception) -> BadValue:
        try:
            _read(_join([value]), pa.schema([]), 1)
        except _FAILURES as broken:
            return BadValue(index, DECODE, _message(str(broken)))
        return BadValue(index, FIT, _message(str(error), self._field_at_fault(value)))

    def _field_at_fault(self, value: bytes) -> str:
        """The first field that fails when it alone is decoded; the parser names it for some errors only."""
        for field in self._schema.fields:
            try:
                JsonDecoder(Schema(field))._parse([value])
            except _FAILURES:
                return field.name
        return ""


def _cut(start: int, end: int, error: Exception) -> list[tuple[int, int]]:
    """The parts to try next, in reverse, so that the first is popped first."""
    named = _ROW.search(str(error)) if end - start <= _CUT_AT_ROW else None
    row = start + int(named[1]) if named else end
    if row < end:
        parts = [(row + 1, end), (row, row + 1), (start, row)]
        return [(first, last) for first, last in parts if first < last]
    middle = (start + end) // 2
    return [(middle, end), (start, middle)]


def _join(values: Sequence[bytes]) -> bytes:
    """The values, one after the other with newlines between. Raises if one isn't framed or isn't UTF-8."""
    block = b"\n".join(values)
    if not _framed(values, block):
        values = [value.strip(_WHITESPACE) for value in values]
        block = b"\n".join(values)
        if not _framed(values, block):
            raise _NotOneObjectEach("not a JSON object: it doesn't begin with { and end with }")
    if not block.isascii():
        block.decode()
    return block


def _framed(values: Sequence[bytes], block: bytes) -> bool:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    if lengths.min() < 2:
        return False
    ends = np.cumsum(lengths + 1) - 1
    characters = np.frombuffer(block, np.uint8)
    return bool((characters[ends - lengths] == _OPEN).all() and (characters[ends - 1] == _CLOSE).all())


def _read(block: bytes, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    # open_json rather than read_json: the same parser at half the cost of a call.
    reader = pj.open_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    table = reader.read_all()
    if table.num_rows != rows:
        raise _NotOneObjectEach(f"{table.num_rows} JSON objects in {rows} record{'s' * (rows > 1)}")
    return _only_batch(table)


def _only_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one batch; copied only if it is in pieces."""
    batches = table.to_batches()
    if len(batches) != 1:
        batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return batches[0]


def _leaf(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if not pa.types.is_float32(wanted):
        return from_text(array, wanted)
    narrow = pc.cast(array, wanted)
    if pc.any(pc.and_(pc.is_inf(narrow), pc.is_finite(array))).as_py():
        raise pa.ArrowInvalid("number too big for float")
    return narrow


def _parsed_type(wanted: pa.DataType) -> pa.DataType:
    """What the parser is asked for where a column of type `wanted` is the aim."""
    if pa.types.is_struct(wanted):
        return pa.struct([pa.field(field.name, _parsed_type(field.type)) for field in wanted])
    if pa.types.is_large_list(wanted):
        return pa.list_(_parsed_type(wanted.value_type))
    if pa.types.is_map(wanted):
        entry = {"key": _parsed_type(wanted.key_type), "value": _parsed_type(wanted.item_type)}
        return pa.list_(pa.struct(list(entry.items())))
    if carried_as_text(wanted):
        return pa.string()
    return pa.float64() if pa.types.is_float32(wanted) else wanted


def _message(error: str, field: str = "") -> str:
    text = _ROW.sub("", error.removeprefix("JSON parse error: "))
    if field and not text.startswith((f"{field}:", f"{field}.", "Column(")):
        text = f"{field}: {text}"
    return text if len(text) <= _MESSAGE_LENGTH else text[: _MESSAGE_LENGTH - 1] + "…"
