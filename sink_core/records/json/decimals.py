"""Decimals with digits so far behind the point that Arrow's parser must not see them.

It brings a number to the scale of its column by a power of ten out of a table, and does not ask whether the table goes
so far: from 39 digits on it reads what stands behind it. `1e-43` became 0 for decimal(20,4), and `1e-999999999` is the
end of the process. Exponents above zero it refuses, and more digits than a decimal has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import pyarrow as pa

from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.decode.python_json import as_written

# From its `-` on, which is rare, to the end of the value. A UUID may end so as well.
_EXPONENT = re.compile(rb'-(?<=[\d.][eE]-)(\d++)(?=[\s,\]}"]|\Z)')
_MANTISSA = re.compile(rb'[\s":,\[][+-]?\d*(?:\.(\d*))?[eE]\Z')
# What numbers consist of, written so that only who reads the text sees it.
_ESCAPED = re.compile(rb"\\u00(?:2[bBdDeE]|3\d|[46]5)")
_NUMBER = re.compile(r"[+-]?\d*(?:\.(\d*))?(?:[eE]-(\d+))?", re.ASCII)
_LOOKED_BACK, _SHOWN = 100, 40


def has_decimals(kind: pa.DataType | pa.Schema) -> bool:
    """Whether there are decimals in the type."""
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return any(has_decimals(field.type) for field in kind)
    return has_decimals(kind.value_type) if pa.types.is_list(kind) else pa.types.is_decimal(kind)


def may_be_too_fine(block: bytes) -> bool:
    """Whether a number of the JSON texts in `block` may have more digits behind the point than Arrow is to be given."""
    if any(_fine(block, found) for found in _EXPONENT.finditer(block)):
        return True
    return b"\\u00" in block and _ESCAPED.search(block) is not None


def _fine(block: bytes, exponent: re.Match[bytes]) -> bool:
    before = block[max(0, exponent.start() - _LOOKED_BACK) : exponent.start()]
    mantissa = _MANTISSA.search(before)
    if mantissa is None:
        # No number, or one of so many digits.
        return len(before) == _LOOKED_BACK and before[:-1].translate(None, b"0123456789.+-") == b""
    return len(mantissa[1] or b"") + _number(exponent[1].decode()) > DECIMAL_DIGITS


def refuse_too_fine(value: bytes, schema: pa.Schema) -> None:
    """Raises ValueError, in the words of Arrow's parser, for a decimal of `schema` in the JSON object `value` that the
    parser must not see, and for a value that Python's can't read.
    """
    try:
        for path, text, wanted in _decimals(as_written(value), pa.struct(list(schema)), ""):
            most = DECIMAL_DIGITS if pa.types.is_decimal128(wanted) else 2 * DECIMAL_DIGITS
            number = _NUMBER.fullmatch(text)
            if number and len(number[1] or "") + _number(number[2] or "0") - wanted.scale > most:
                raise ValueError(f"Column({path}) {text[:_SHOWN]} has more digits behind the point than {wanted}")
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _number(digits: str) -> int:
    """The number of the digits; of more than nine, one that is as much too large."""
    return int(digits.lstrip("0")[:9] or "0")


def _decimals(value: object, wanted: pa.DataType, path: str) -> Iterator[tuple[str, str, pa.DataType]]:
    """Path, text and type of each decimal's value."""
    if isinstance(value, dict) and pa.types.is_struct(wanted):
        members = cast(dict[str, object], value)
        for field in wanted:
            yield from _decimals(members.get(field.name), field.type, f"{path}/{field.name}")
    elif isinstance(value, list) and pa.types.is_list(wanted):
        for item in cast(list[object], value):
            yield from _decimals(item, wanted.value_type, f"{path}/[]")
    elif isinstance(value, str) and pa.types.is_decimal(wanted):
        yield path, value, wanted
