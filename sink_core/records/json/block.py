"""Many records as one block of JSON for Arrow's parser.

That a record is one object and nothing but that, whatever its neighbours are, rests on this: every value begins with
`{`, ends with `}`, and a newline stands between two of them. No object can reach over such a joint: within a string a
raw newline is illegal, and after `}` a `{` is illegal until the outermost object is closed. So each value yields at
least one row, and as many rows as values means one each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.decode.text import carried_as_text
from calve.sink_core.records.json.decimals import has_decimals, may_be_too_fine, refuse_too_fine

UNFRAMED = "not a JSON object: it doesn't begin with { and end with }"

_OTHERS = {False: "ignore", True: "infer"}
_WHITESPACE = b" \t\r\n"
_OPEN, _CLOSE = b"{}"


def join(values: Sequence[bytes]) -> bytes:
    """The block of the values."""
    return b"\n".join(values)


def framed(values: Sequence[bytes], block: bytes) -> npt.NDArray[np.bool_]:
    """For each of n > 0 values, joined to `block`, whether it begins with `{` and ends with `}`."""
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(lengths + 1) - 1
    characters = np.frombuffer(block + b"\n", np.uint8) if lengths[-1] == 0 else np.frombuffer(block, np.uint8)
    return (lengths > 1) & (characters[ends - lengths] == _OPEN) & (characters[ends - 1] == _CLOSE)


def stripped(value: bytes) -> bytes:
    """The value without JSON's white space around it."""
    return value.strip(_WHITESPACE)


def read(block: bytes, records: int, schema: pa.Schema, *, others: bool = False) -> pa.RecordBatch:
    """One row for each of the records, framed, in `block`. All or nothing: raises ValueError if one isn't one JSON
    object in UTF-8 or doesn't have the types of `schema`, which is one of `parsed_schema`.

    With `others` fields that the schema lacks are there as well, behind those of the schema, in types that Arrow
    guesses; it is a ValueError too if a field has several.
    """
    if not block.isascii():
        block.decode()
    if has_decimals(schema) and may_be_too_fine(block):
        if records > 1:
            raise ValueError("a decimal with too many digits behind the point, perhaps")
        refuse_too_fine(block, schema)
    # open_json rather than read_json: the same parser at half the cost of a call.
    reader = pj.open_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=_OTHERS[others]),
    )
    table = reader.read_all()
    if table.num_rows != records:
        raise ValueError(f"{table.num_rows} JSON objects in {records} record{'s' * (records > 1)}")
    return only_batch(table)


def only_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one batch; copied only if it is in pieces."""
    batches = table.to_batches()
    if len(batches) != 1:
        batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return batches[0]


def parsed_schema(target: pa.Schema) -> pa.Schema:
    """What the parser is asked for where `target` is the aim."""
    return pa.schema([pa.field(field.name, _parsed_type(field.type)) for field in target])


def _parsed_type(wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(wanted):
        return pa.struct([pa.field(field.name, _parsed_type(field.type)) for field in wanted])
    if pa.types.is_large_list(wanted):
        return pa.list_(_parsed_type(wanted.value_type))
    if pa.types.is_map(wanted):
        entry = {"key": _parsed_type(wanted.key_type), "value": _parsed_type(wanted.item_type)}
        return pa.list_(pa.struct(list(entry.items())))
    if carried_as_text(wanted):
        return pa.string()
    if pa.types.is_decimal(wanted) and wanted.precision + wanted.scale > DECIMAL_DIGITS:
        # Brought to its scale a number of that many digits would not fit 128 bits, which Arrow may not notice.
        return pa.decimal256(wanted.precision, wanted.scale)
    return pa.float64() if pa.types.is_float32(wanted) else wanted
