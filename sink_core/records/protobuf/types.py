"""Which Protobuf fields a column takes, and how the fields of many messages become columns: lossless, or an error.

| column | Protobuf |
|---|---|
| boolean | bool |
| int, long, decimal | the kinds of int32, int64, uint32, uint64, if the value fits; for int and long an enum's number |
| float, double | float, double, int32, uint32 and their kinds, if exactly a number of the column's type |
| string | string, an enum's name |
| uuid | string of a UUID's form, bytes of 16 |
| binary, fixed(n) | bytes; for fixed(n) n bytes |
| timestamptz | google.protobuf.Timestamp, if it is whole microseconds |
| decimal(p, s) | google.protobuf.Duration, in seconds; confluent.type.Decimal, if its digits fit |
| what the value fits | a wrapper such as google.protobuf.Int64Value |
| struct | message; fields match by name (`names`), those the column lacks are ignored, missing ones are null |
| list, map | repeated, map |

A field without presence that isn't there has its default value, one with presence is null, unless its schema names a
default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import partial
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from calve.sink_core.records.columns.names import EXACT, Names, TwoOfOne
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.decode.convert import column_name
from calve.sink_core.records.protobuf.known import DECIMAL

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String", "Bytes")
)
_EXACT = Context(prec=50)
_NANOS = 10**9
# What a column of `DECIMAL_DIGITS` holds at most.
_DECIMAL_BYTES = 16
# From the year 1 to the year 9999, as the message's definition says.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError)

Make = Callable[[Sequence[Any]], pa.Array]
"""Makes an array of a field's values, some of which may be None."""


class Unfit(Exception):
    """A value of a field has no place in its column. The message begins with the field's name."""


class Foreign(Exception):
    """A message has fields that its schema lacks: it was written with another one."""


def entry_of(field: FieldDescriptor) -> Descriptor | None:
    """The message of a map's entries; None if the field isn't a map."""
    kind = field.message_type
    return kind if field.is_repeated and kind is not None and kind.GetOptions().map_entry else None


def of_message(descriptor: Descriptor, wanted: pa.DataType | pa.Schema, names: Names = EXACT, path: str = "") -> Make:
    """Makes structs of messages on their way to the fields of `wanted`, a type of a file's schema, found under `names`.

    What it returns raises Unfit and Foreign.
    """
    try:
        called = names.called(wanted, list(descriptor.fields_by_name))
    except TwoOfOne as error:
        return partial(_clash, f"{path}{error}")
    fields = descriptor.fields_by_name
    steps = [(to.name, _field(fields.get(called.get(to.name, str(to.name))), to, names, path)) for to in wanted]

    def make(messages: Sequence[Any]) -> pa.Array:
        if None in messages:
            present = [message for message in messages if message is not None]
            there = np.array([message is not None for message in messages], np.bool_)
            return make(present).take(pa.array(np.cumsum(there) - 1, mask=~there))
        for message in messages:
            if len(unknown := UnknownFieldSet(message)):
                raise Foreign(f"field {unknown[0].field_number} of {descriptor.full_name} is not in the schema")
        children = [step(messages) for _, step in steps]
        fields = [pa.field(name, child.type) for (name, _), child in zip(steps, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(np.zeros(len(messages), np.bool_)))

    return make


def _clash(said: str, messages: Sequence[Any]) -> pa.Array:
    """Nulls, as long as there is no message: two of its fields are one of the table's."""
    if any(message is not None for message in messages):
        raise Unfit(said)
    return pa.nulls(len(messages))


def _field(field: FieldDescriptor | None, to: pa.Field, names: Names, path: str) -> Make:
    """Makes an array of a field of messages."""
    name = f"{path}{to.name}"
    if field is None:
        return lambda messages: pa.nulls(len(messages))
    get = attrgetter(field.name)
    if entry := entry_of(field):
        return _map(entry, get, to.type, names, name) or _misfit(field, to.type, name)
    if field.is_repeated:
        return _list(field, get, to.type, names, name) or _misfit(field, to.type, name)
    make = _value(field, to.type, names, name)
    if make is None:
        return _misfit(field, to.type, name)
    if not field.has_presence:
        return lambda messages: make(list(map(get, messages)))
    has = methodcaller("HasField", field.name)
    unset = field.default_value if field.has_default_value else None
    return lambda messages: make([get(message) if has(message) else unset for message in messages])


def _list(
    field: FieldDescriptor, get: Callable[[Any], Any], wanted: pa.DataType, names: Names, path: str
) -> Make | None:
    make = _value(field, wanted.value_type, names, f"{path}.element") if pa.types.is_large_list(wanted) else None
    if make is None:
        return None

    def make_lists(messages: Sequence[Any]) -> pa.Array:
        lists = list(map(get, messages))
        return pa.LargeListArray.from_arrays(_offsets(lists, np.int64), make(list(chain.from_iterable(lists))))

    return make_lists


def _map(entry: Descriptor, get: Callable[[Any], Any], wanted: pa.DataType, names: Names, path: str) -> Make | None:
    if not pa.types.is_map(wanted):
        return None
    parts = entry.fields_by_name
    keys = _value(parts["key"], wanted.key_type, names, f"{path}.key")
    values = _value(parts["value"], wanted.item_type, names, f"{path}.value")
    if keys is None or values is None:
        return None

    def make_maps(messages: Sequence[Any]) -> pa.Array:
        try:
            entries = [list(get(message).items()) for message in messages]
        except UnicodeDecodeError as error:  # what proto2 calls a string may be any bytes, and of a key none are given
            raise Unfit(f"{path}.key: {error}") from None
        flat = list(chain.from_iterable(entries))
        made = keys([key for key, _ in flat]), values([value for _, value in flat])
        return pa.MapArray.from_arrays(_offsets(entries, np.int32), *made)

    return make_maps


def _offsets(lists: Sequence[Sequence[Any]], kind: type[Any]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum([len(each) for each in lists], dtype=np.int64))).astype(kind))


def _value(field: FieldDescriptor, wanted: pa.DataType, names: Names, path: str) -> Make | None:
    """Makes an array of single values of a field; None if they don't fit."""
    if field.message_type is not None:
        return _of_message_type(field.message_type, wanted, names, path)
    if field.enum_type is not None and pa.types.is_large_string(wanted):
        return _enum(field.enum_type, wanted, path)
    carrier = carrier_of(field, wanted)
    return carrier and _plain(carrier, path)


def _of_message_type(kind: Descriptor, wanted: pa.DataType, names: Names, path: str) -> Make | None:
    if kind.full_name in WRAPPERS:
        make = _value(kind.fields_by_name["value"], wanted, names, path)
        return make and (lambda values: make([None if value is None else value.value for value in values]))
    if kind.full_name == TIMESTAMP and pa.types.is_timestamp(wanted) and wanted.tz:
        return _converted(_micros, pa.timestamp("us", wanted.tz), path)
    if kind.full_name == DURATION and pa.types.is_decimal(wanted):
        return _converted(_seconds, wanted, path)
    if kind.full_name == DECIMAL and pa.types.is_decimal(wanted):
        return _converted(_decimal, wanted, path)
    return of_message(kind, wanted, names, f"{path}.") if pa.types.is_struct(wanted) else None


def _plain(carrier: pa.DataType, path: str) -> Make:
    def make(values: Sequence[Any]) -> pa.Array:
        try:
            return pa.array(values, carrier)
        except _UNFIT as error:
            raise Unfit(f"{path}: {error}") from None

    return make


def _converted(convert: Callable[[Any], object], carrier: pa.DataType, path: str) -> Make:
    make = _plain(carrier, path)

    def make_converted(values: Sequence[Any]) -> pa.Array:
        try:
            converted = [None if value is None else convert(value) for value in values]
        except ValueError as error:
            raise Unfit(f"{path}: {error}") from None
        return make(converted)

    return make_converted


def _enum(kind: EnumDescriptor, wanted: pa.DataType, path: str) -> Make:
    names = {number: value.name for number, value in kind.values_by_number.items()}

    def name_of(number: int) -> str:
        if number not in names:
            raise ValueError(f"{number} is no value of {kind.full_name}")
        return names[number]

    return _converted(name_of, wanted, path)


def _micros(value: Any) -> int:
    seconds, nanos = value.seconds, value.nanos
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanos < _NANOS:
        raise ValueError(f"a timestamp of {seconds} seconds and {nanos} nanoseconds")
    if nanos % 1000:
        raise ValueError(f"a timestamp with {nanos} nanoseconds is not whole microseconds")
    return seconds * 1_000_000 + nanos // 1000


def _seconds(value: Any) -> Decimal:
    if not -_NANOS < value.nanos < _NANOS or value.seconds * value.nanos < 0:
        raise ValueError(f"a duration of {value.seconds} seconds and {value.nanos} nanoseconds")
    return Decimal(value.seconds * _NANOS + value.nanos).scaleb(-9, _EXACT)


def _decimal(value: Any) -> Decimal:
    if len(value.value) > _DECIMAL_BYTES or abs(value.scale) > DECIMAL_DIGITS:
        raise ValueError(f"a decimal of {len(value.value)} bytes and scale {value.scale} fits no column")
    return Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale, _EXACT)


def _misfit(field: FieldDescriptor, wanted: pa.DataType, path: str) -> Make:
    """Nulls, as long as no message has a value in the field."""
    get, has = attrgetter(field.name), methodcaller("HasField", field.name) if field.has_presence else None

    def make(messages: Sequence[Any]) -> pa.Array:
        if any(has(message) if has else get(message) for message in messages):
            raise Unfit(f"{path}: Protobuf's {shown(field)} doesn't fit {column_name(wanted)}")
        return pa.nulls(len(messages))

    return make


def shown(field: FieldDescriptor) -> str:
    """A field's type in a few words, for messages."""
    kind = field.message_type or field.enum_type
    name = "map" if entry_of(field) else str(kind.full_name) if kind is not None else _NAMES[field.type]
    return f"repeated {name}" if field.is_repeated and name != "map" else name


def carrier_of(field: FieldDescriptor, wanted: pa.DataType) -> pa.DataType | None:
    """The type that a plain value is first brought to; None if it doesn't fit."""
    for matches, kinds, carrier in _CARRIERS:
        if matches(wanted) and field.type in kinds:
            return carrier or wanted
    return None


_F = FieldDescriptor
_SMALL = (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32, _F.TYPE_UINT32, _F.TYPE_FIXED32)
INTEGERS = (*_SMALL, _F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64, _F.TYPE_UINT64, _F.TYPE_FIXED64)
_CARRIERS: list[tuple[Callable[[pa.DataType], bool], tuple[int, ...], pa.DataType | None]] = [
    (pa.types.is_boolean, (_F.TYPE_BOOL,), None),
    (pa.types.is_integer, (*INTEGERS, _F.TYPE_ENUM), pa.int64()),
    (pa.types.is_floating, (_F.TYPE_FLOAT, _F.TYPE_DOUBLE, *_SMALL), pa.float64()),
    (pa.types.is_decimal, INTEGERS, None),
    (pa.types.is_large_string, (_F.TYPE_STRING,), None),
    (lambda wanted: isinstance(wanted, pa.UuidType), (_F.TYPE_STRING,), pa.string()),
    (lambda wanted: isinstance(wanted, pa.UuidType), (_F.TYPE_BYTES,), pa.binary(16)),
    (pa.types.is_large_binary, (_F.TYPE_BYTES,), None),
    (pa.types.is_fixed_size_binary, (_F.TYPE_BYTES,), None),
]
_NAMES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(_F).items()
    if name.startswith("TYPE_") and isinstance(value, int)
}
