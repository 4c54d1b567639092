"""A guess, with Python's own parser, at which record and which field spoil a block. Never a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import cast

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
    StructType,
)

from calve.sink_core.records.decode.python_json import is_not_finite, loads

UNREADABLE = "?"
"""Instead of a field's name: the value isn't JSON."""

_TEXT = (str,)
_RANGES: dict[type[IcebergType], int] = {IntegerType: 2**31, LongType: 2**63}
_KINDS: dict[type[IcebergType], tuple[type, ...]] = {
    BooleanType: (bool,),
    IntegerType: (int,),
    LongType: (int,),
    FloatType: (int, float, Decimal),
    DoubleType: (int, float, Decimal),
    DecimalType: (int, Decimal, str),
    StructType: (dict,),
    ListType: (list,),
    # Maps have become lists of entries before anything is parsed.
    MapType: (list,),
}


def misfit(value: bytes, wanted: StructType) -> str | None:
    """The dotted name of the first field that seems not to fit, `UNREADABLE`, or None if all seem well."""
    try:
        decoded = loads(value, parse_float=Decimal)
        path = _misfit(decoded, wanted)
    except (ValueError, ArithmeticError, RecursionError):
        # Decimal knows no exponent of twenty digits.
        return UNREADABLE
    return path if path is None else path.lstrip(".") or UNREADABLE


def _misfit(value: object, wanted: IcebergType) -> str | None:
    if value is None or is_not_finite(value, wanted):
        return None
    if type(value) not in _KINDS.get(type(wanted), _TEXT) or not _in_range(value, wanted):
        return ""
    for name, part, kind in _parts(value, wanted):
        if (path := _misfit(part, kind)) is not None:
            return f".{name}{path}"
    return None


def _parts(value: object, wanted: IcebergType) -> Iterable[tuple[str, object, IcebergType]]:
    if isinstance(wanted, StructType):
        members = cast(dict[str, object], value)
        return ((field.name, members.get(field.name), field.field_type) for field in wanted.fields)
    if isinstance(wanted, ListType):
        return (("element", item, wanted.element_type) for item in cast(list[object], value))
    if isinstance(wanted, MapType):
        entries = cast(list[dict[str, object]], value)
        return (("value", entry.get("value"), wanted.value_type) for entry in entries)
    return ()


def _in_range(value: object, wanted: IcebergType) -> bool:
    if isinstance(wanted, DecimalType):
        return _has_digits_for(cast(int | Decimal | str, value), wanted)
    limit = _RANGES.get(type(wanted))
    return limit is None or -limit <= cast(int, value) < limit


def _has_digits_for(value: int | Decimal | str, wanted: DecimalType) -> bool:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    if not number.is_finite():
        return False
    # In the usual context what has more than 28 digits, or an exponent of more than six, could not be looked at.
    number = number.normalize(Context(prec=len(number.as_tuple().digits), Emax=MAX_EMAX, Emin=MIN_EMIN))
    return not number or (
        -int(number.as_tuple().exponent) <= wanted.scale and number.adjusted() < wanted.precision - wanted.scale
    )
