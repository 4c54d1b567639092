"""Maps for a parser that doesn't know them: a record is written again with each map as a list of its entries.

Only tables with map columns pay for this. Numbers keep their digits, and nothing is judged here that the parser judges
as well: where an object is wanted and something else stands, or the other way round, the parser gets to see a mismatch.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import cast

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.python_json import Digits, as_written, is_not_finite

_LONG_DIGITS = 19
_UNQUOTED = (BooleanType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
_NUMBER_OR_BOOLEAN = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false")


def has_maps(schema: Schema) -> bool:
    """Whether a field of the schema, nested ones included, is a map."""
    return any(isinstance(field.field_type, MapType) for field in index_by_id(schema).values())


def with_entries(value: bytes, wanted: StructType, names: Names = EXACT) -> bytes:
    """The JSON object `value` with `wanted` fields only, under their own names, each map in them as a list of
    `{"key": …, "value": …}`.

    Raises TwoOfOne, ValueError (also for broken UTF-8 and JSON) for what isn't a JSON object or has a key twice, and
    RecursionError for a value nested too deeply.
    """
    decoded = as_written(value)
    if not isinstance(decoded, dict):
        raise ValueError("not a JSON object")
    return _rewrite(cast(object, decoded), wanted, names).encode()


def with_plain_numbers(value: bytes, wanted: StructType) -> bytes | None:
    """The JSON object `value` with numbers as the parser takes them: what stands for a whole one without fraction and
    exponent (`1.0`, `2e3`), what stands for a float that is none without quotes (`"NaN"`); all else as it is. None if
    there is no such number.

    Raises as `with_entries` does.
    """
    decoded = as_written(value)
    changed = [False]
    text = _plain(decoded, wanted, changed)
    return text.encode() if changed[0] else None


def _plain(value: object, wanted: IcebergType | None, changed: list[bool]) -> str:
    if isinstance(value, dict):
        members = cast(dict[str, object], value)
        kinds = {field.name: field.field_type for field in wanted.fields} if isinstance(wanted, StructType) else {}
        return f"{{{','.join(f'{json.dumps(k)}:{_plain(v, kinds.get(k), changed)}' for k, v in members.items())}}}"
    if isinstance(value, list):
        element = wanted.element_type if isinstance(wanted, ListType) else None
        return f"[{','.join(_plain(item, element, changed) for item in cast(list[object], value))}]"
    if isinstance(value, Digits):
        whole = _whole(value, wanted)
        changed[0] = changed[0] or whole is not value
        return whole
    changed[0] = changed[0] or (wanted is not None and is_not_finite(value, wanted))
    return _written(value, wanted)


def _written(value: object, wanted: IcebergType | None) -> str:
    """A leaf, which is no number."""
    return str(value) if wanted is not None and is_not_finite(value, wanted) else json.dumps(value)


def _whole(number: Digits, wanted: IcebergType | None) -> str:
    """As an integer is written, if it is one and the type is an integer's."""
    if not isinstance(wanted, IntegerType | LongType) or number.lstrip("-").isdigit():
        return number
    try:
        found = Decimal(number)
    except InvalidOperation:
        return number
    if not found:
        return "0"
    # An exponent may stand for any number of digits.
    is_whole = found.is_finite() and found.adjusted() < _LONG_DIGITS and found == found.to_integral_value()
    return str(int(found)) if is_whole else number


def _rewrite(value: object, wanted: IcebergType, names: Names) -> str:
    if isinstance(value, dict):
        members = cast(dict[str, object], value)
        return _entries(members, wanted, names) if isinstance(wanted, MapType) else _object(members, wanted, names)
    if isinstance(value, list):
        return _list(cast(list[object], value), wanted, names)
    return _whole(value, wanted) if isinstance(value, Digits) else _written(value, wanted)


def _entries(members: dict[str, object], wanted: MapType, names: Names) -> str:
    pairs = ((_key(key, wanted.key_type), _rewrite(value, wanted.value_type, names)) for key, value in members.items())
    entries = ",".join(f'{{"key":{key},"value":{value}}}' for key, value in pairs)
    return f"[{entries}]"


def _object(members: dict[str, object], wanted: IcebergType, names: Names) -> str:
    if not isinstance(wanted, StructType):
        return "{}"
    kinds = {field.name: field.field_type for field in wanted.fields}
    own = own_names(members, wanted, names)
    kept = ",".join(f"{json.dumps(own[key])}:{_rewrite(members[key], kinds[own[key]], names)}" for key in own)
    return f"{{{kept}}}"


def own_names(members: dict[str, object], wanted: StructType, names: Names) -> dict[str, str]:
    """As `Names.own_names`, of an object for a struct."""
    kinds = {field.name for field in wanted.fields}
    given = (key for key, value in members.items() if value is not None or key in kinds)
    return names.own_names(((field.field_id, field.name) for field in wanted.fields), given)


def _list(items: list[object], wanted: IcebergType, names: Names) -> str:
    if not isinstance(wanted, ListType):
        # A list of entries must not pass for a map; anywhere else a list is a mismatch already.
        return "{}" if isinstance(wanted, MapType) else "[]"
    return f"[{','.join(_rewrite(item, wanted.element_type, names) for item in items)}]"


def has_typed_keys(kind: IcebergType) -> bool:
    """Whether there are maps in the type whose keys are not text, so that two texts may be one key."""
    if isinstance(kind, StructType):
        return any(has_typed_keys(of.field_type) for of in kind.fields)
    if isinstance(kind, ListType):
        return has_typed_keys(kind.element_type)
    return isinstance(kind, MapType) and (not isinstance(kind.key_type, StringType) or has_typed_keys(kind.value_type))


def key_twice(array: pa.Array) -> str | None:
    """A key that a map in the array has twice, though it was written in two ways; None if there is none."""
    kind = array.type
    if pa.types.is_struct(kind):
        return next(filter(None, map(key_twice, array.flatten())), None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return key_twice(array.flatten())
    if not pa.types.is_map(kind):
        return None
    # A null has no entries, but may hold some.
    maps = array.drop_null()
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    keys, items = maps.keys[first:last], maps.items[first:last]
    return (None if pa.types.is_large_string(kind.key_type) else _twice(maps, keys)) or key_twice(items)


def _twice(maps: pa.Array, keys: pa.Array) -> str | None:
    plain = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    numbers = plain.dictionary_encode().indices.to_numpy().astype(np.int64)
    of = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
    order = np.lexsort((numbers, of))
    same = (np.diff(of[order]) == 0) & (np.diff(numbers[order]) == 0)
    return str(keys[int(order[np.argmax(same)])].as_py()) if same.any() else None


def _key(key: str, wanted: IcebergType) -> str:
    """JSON's keys are in quotes always; the parser wants numbers and booleans without."""
    bare = isinstance(wanted, _UNQUOTED) and _NUMBER_OR_BOOLEAN.fullmatch(key)
    return key if bare else _written(key, wanted)
