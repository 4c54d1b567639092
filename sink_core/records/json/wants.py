"""What JSON records need that a table lacks: fields that it doesn't have, wider types, fields that may be null.

A look with Python's own parser, at the records that need something only. One that would not fit the table even if it
had all of that wants nothing: a broken record changes no table. Nor does one that is nested too deeply for columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import count
from typing import Any, cast

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.records.columns.column_names import readable_schema
from calve.sink_core.records.columns.evolution import evolved, room, widest
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.decode.maps import own_names, with_entries
from calve.sink_core.records.decode.misfit import misfit
from calve.sink_core.records.decode.python_json import is_not_finite, is_too_deep, loads
from calve.sink_core.records.json.columns import Seen, fields_seen, note

_INT = 2**31
_FLOAT = float.fromhex("0x1.ffffffp127")
"""The first number that is nearer to infinity than to any float."""


class _Number(float):
    """A number with fraction or exponent, and how it was written."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


@dataclass(slots=True)
class _Noted:
    """What values at one place need. `fields` are those of a struct, `inner` is a list's elements or a map's values."""

    lacking: bool = False
    kind: IcebergType | None = None
    unknown: Seen = field(default_factory=Seen)
    fields: dict[str, _Noted] = field(default_factory=lambda: dict[str, "_Noted"]())
    inner: _Noted | None = None


class Wants:
    """Looks at records for one table, which may be given what is of `steps`."""

    def __init__(self, schema: Schema, steps: Collection[EvolveStep], names: Names = EXACT) -> None:
        self._schema, self._steps, self._names = schema, steps, names
        self._struct = schema.as_struct()
        self._widest = _widest(self._struct) if "widen" in steps else self._struct
        self._room = room(steps, schema)

    def of(self, values: Iterable[bytes]) -> Schema | None:
        """What the records need, as `evolution.evolved` takes it; None if that is nothing the table may be given. One
        that alone needs more columns than there is room for wants nothing.
        """
        noted = _Noted()
        for value in values:
            try:
                if self._room is not None and fields_beyond(value, self._struct, self._names, self._room):
                    continue
                if misfit(with_entries(value, self._widest, self._names), self._widest) is None:
                    record = loads(value, parse_float=_Number)
                    if not is_too_deep(record):
                        _note(noted, record, self._struct, self._names)
            except (ValueError, RecursionError):
                continue
        noted.unknown.fields.pop(KAFKA_COLUMN, None)
        next_id = partial(next, count(self._schema.highest_field_id + 1))
        wanted = readable_schema(_struct(noted, self._struct, next_id).fields, self._names.rule)
        return wanted if evolved(self._schema, wanted, self._steps) else None


def fields_beyond(value: bytes, wanted: StructType, names: Names, room: int) -> int:
    """How many columns the JSON object `value` needs that `wanted` lacks, if they are more than `room`, else 0."""
    # A member is six bytes at least: `"a":1,`. Most records are not looked at.
    if len(value) // 6 < room:
        return 0
    try:
        record, lacking = loads(value), Seen()
        if is_too_deep(record):
            return 0
        _note_lacking(lacking, record, wanted, names, "")
    except (ValueError, RecursionError):
        return 0
    found = _columns(lacking) - 1
    return found if found > room else 0


def _note_lacking(lacking: Seen, value: object, wanted: IcebergType, names: Names, path: str) -> None:
    if isinstance(value, dict) and isinstance(wanted, StructType):
        members = cast(dict[str, object], value)
        own, kinds = own_names(members, wanted, names), {of.name: of.field_type for of in wanted.fields}
        for name, inner in members.items():
            if name in own:
                _note_lacking(lacking, inner, kinds[own[name]], names, f"{path}{own[name]}.")
            elif names.asks(f"{path}{name}"):
                note(lacking.fields.setdefault(f"{path}{name}", Seen()), inner)
    elif isinstance(value, dict) and isinstance(wanted, MapType):
        for inner in cast(dict[str, object], value).values():
            _note_lacking(lacking, inner, wanted.value_type, names, f"{path}value.")
    elif isinstance(value, list) and isinstance(wanted, ListType):
        for inner in cast(list[object], value):
            _note_lacking(lacking, inner, wanted.element_type, names, f"{path}element.")


def _columns(seen: Seen) -> int:
    """The columns of what was seen: of its kind, and within it. What is only null is none."""
    within = sum(_columns(inner) for inner in seen.fields.values() if inner.kinds)
    return 1 + within + (_columns(seen.element) if seen.element else 0)


def _widest(kind: Any) -> Any:
    """The type with every part of it as wide as it can become."""
    if isinstance(kind, StructType):
        return StructType(*(of.model_copy(update={"field_type": _widest(of.field_type)}) for of in kind.fields))
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _widest(kind.element_type), element_required=kind.element_required)
    if isinstance(kind, MapType):
        value = _widest(kind.value_type)
        return MapType(kind.key_id, kind.key_type, kind.value_id, value, value_required=kind.value_required)
    return widest(kind)


def _note(noted: _Noted, value: object, kind: IcebergType, names: Names) -> None:
    if isinstance(kind, StructType):
        _note_struct(noted, cast(dict[str, object], value), kind, names)
    elif isinstance(kind, ListType):
        for item in cast(list[object], value):
            noted.inner = noted.inner or _Noted()
            _note_field(noted.inner, item, kind.element_field, names)
    elif isinstance(kind, MapType):
        for item in cast(dict[str, object], value).values():
            noted.inner = noted.inner or _Noted()
            _note_field(noted.inner, item, kind.value_field, names)
    elif (needed := _needed(value, kind)) is not None:
        # The scale stays: of two decimals the longer one is the wider one.
        longest = noted.kind.precision if isinstance(noted.kind, DecimalType) else 0
        noted.kind = noted.kind if isinstance(needed, DecimalType) and needed.precision <= longest else needed


def _note_struct(noted: _Noted, members: dict[str, object], kind: StructType, names: Names) -> None:
    own = own_names(members, kind, names)
    values = {own[name]: members[name] for name in own}
    for of in kind.fields:
        if of.name not in noted.fields:
            noted.fields[of.name] = _Noted()
        _note_field(noted.fields[of.name], values.get(of.name), of, names)
    note(noted.unknown, {name: value for name, value in members.items() if name not in own})


def _note_field(noted: _Noted, value: object, of: NestedField, names: Names) -> None:
    if value is None:
        noted.lacking = True
    else:
        _note(noted, value, of.field_type, names)


def _needed(value: object, kind: IcebergType) -> IcebergType | None:
    """The wider type that a value needs which fits the widest one; None if `kind` holds it."""
    if is_not_finite(value, kind):
        return None
    if isinstance(kind, IntegerType):
        return None if -_INT <= cast(int, value) < _INT else LongType()
    if isinstance(kind, FloatType):
        return DoubleType() if _FLOAT <= abs(cast(float, value)) < float("inf") else None
    if isinstance(kind, DecimalType):
        digits = _digits(value, kind.scale)
        return DecimalType(digits, kind.scale) if kind.precision < digits <= DECIMAL_DIGITS else None
    return None


def _digits(value: object, scale: int) -> int:
    try:
        number = Decimal(value.text if isinstance(value, _Number) else cast(int | str, value))
    except InvalidOperation:
        return 0
    return max(number.adjusted() + 1, 0) + scale if number.is_finite() else 0


def _struct(noted: _Noted, kind: StructType, next_id: Any) -> StructType:
    known = [_field(noted.fields[of.name], of, next_id) for of in kind.fields if of.name in noted.fields]
    return StructType(*known, *fields_seen(noted.unknown, next_id))


def _field(noted: _Noted, of: NestedField, next_id: Any) -> NestedField:
    kind = _type(noted, of.field_type, next_id)
    return of.model_copy(update={"field_type": kind, "required": of.required and not noted.lacking})


def _type(noted: _Noted, kind: IcebergType, next_id: Any) -> IcebergType:
    # Of a struct that was null only no field was met, and one without fields is none for a list.
    if isinstance(kind, StructType) and noted.fields:
        return _struct(noted, kind, next_id)
    if isinstance(kind, ListType) and noted.inner:
        element = _field(noted.inner, kind.element_field, next_id)
        return ListType(kind.element_id, element.field_type, element_required=element.required)
    if isinstance(kind, MapType) and noted.inner:
        value = _field(noted.inner, kind.value_field, next_id)
        return MapType(kind.key_id, kind.key_type, kind.value_id, value.field_type, value_required=value.required)
    return noted.kind or kind
