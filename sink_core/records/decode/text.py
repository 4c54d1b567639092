"""Iceberg types that JSON can only carry as text: lossless, or an error.

| Iceberg type | text |
|---|---|
| date | `2024-05-31` |
| time | `23:59:59`, up to six digits of fraction, and up to three zeros behind them |
| timestamp | ISO 8601 without zone, `T` or a blank between date and time, digits of fraction as for a time |
| timestamptz | the same with a zone: `Z`, `+02`, `+0200`, `+02:00`; stored as UTC |
| uuid | `f79c3e09-677c-4bbd-a479-3f349cb785e7`, either case |
| fixed, binary | base64 (RFC 4648, padded, standard alphabet); `fixed[n]` must have n bytes |

A zone where none belongs, or none where one belongs, is an error: whichever zone were assumed would be a guess.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?$"
_NIL = "00000000-0000-0000-0000-000000000000"


def carried_as_text(wanted: pa.DataType) -> bool:
    """Whether values of this Arrow type (a leaf) are text in JSON that has to be converted."""
    temporal = pa.types.is_date(wanted) or pa.types.is_time(wanted) or pa.types.is_timestamp(wanted)
    binary = pa.types.is_fixed_size_binary(wanted) or pa.types.is_large_binary(wanted)
    return temporal or binary or isinstance(wanted, pa.UuidType)


def from_text(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A string array as `wanted`; nulls stay null. Raises ArrowInvalid quoting a value that isn't of that form."""
    if pa.types.is_time(wanted):
        return _times(array, wanted)
    if isinstance(wanted, pa.UuidType):
        return _uuids(array, wanted)
    if pa.types.is_fixed_size_binary(wanted) or pa.types.is_large_binary(wanted):
        return pa.array([_base64(text) for text in array.to_pylist()], wanted)
    try:
        return pc.cast(array, wanted)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(wanted):
            raise
        return pc.cast(_in_micros(array), wanted)


def _in_micros(array: pa.Array) -> pa.Array:
    """Times with digits for nanoseconds, as Java, Go and .NET write them, without these where they are zeros."""
    return pc.replace_substring_regex(array, r"(\.\d{6})0{1,3}(Z|[+-][\d:]+)?$", r"\1\2")


def _times(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    array = _in_micros(array)
    _require(array, _TIME, "a time such as 23:59:59.123456")
    since_midnight = pc.cast(pc.binary_join_element_wise("1970-01-01", array, "T"), pa.timestamp("us"))
    return since_midnight.cast(pa.int64()).cast(wanted)


def _uuids(array: pa.Array, wanted: pa.UuidType) -> pa.Array:
    _require(array, _UUID, "a UUID such as f79c3e09-677c-4bbd-a479-3f349cb785e7")
    digits = "".join(text or _NIL for text in array.to_pylist()).replace("-", "")
    validity = pc.is_valid(array).buffers()[1]
    buffers = [validity, pa.py_buffer(bytes.fromhex(digits))]
    storage = pa.Array.from_buffers(pa.binary(16), len(array), buffers, array.null_count)
    return pa.ExtensionArray.from_storage(wanted, storage)


def _base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError as error:
        raise pa.ArrowInvalid(f"{text!r} is not base64: {error}") from error


def _require(array: pa.Array, pattern: str, form: str) -> None:
    matches = pc.match_substring_regex(array, pattern)
    if pc.all(matches).as_py() is False:
        wrong = array.filter(pc.invert(matches))[0].as_py()
        raise pa.ArrowInvalid(f"{wrong!r} is not {form}")
