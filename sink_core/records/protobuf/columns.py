"""From a Protobuf message to the columns that hold each of its values without loss.

| Protobuf | column |
|---|---|
| bool, string, bytes, float, double | boolean, string, binary, float, double |
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64, uint32, fixed32 | long |
| uint64, fixed64 | decimal(20, 0) |
| enum | string: the value's name |
| google.protobuf.Timestamp | timestamptz |
| google.protobuf.Duration | decimal(21, 9): seconds |
| google.protobuf.Int64Value and the other wrappers | the column of what they wrap |
| confluent.type.Decimal | decimal of the precision and scale that its field_meta declares; without it a struct |
| other messages, repeated, map | struct, list, map |
| a message without fields | no column: there is nothing to store |

All is optional, fields of a `oneof` too, but proto2's `required`. A message within itself is refused by naming the
field, google.protobuf.Struct and Value among them; a table that is there is given no column for it, unless it has one.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.budget import FieldIds
from calve.sink_core.records.columns.checked import IN_A_NEW_TABLE, Columns, Unfit, WithinItself, of_fields
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.protobuf.known import DECIMAL, declared_digits
from calve.sink_core.records.protobuf.schema import MessageSchema
from calve.sink_core.records.protobuf.types import DURATION, TIMESTAMP, WRAPPERS, entry_of

_F = FieldDescriptor
_PLAIN: dict[int, IcebergType] = {
    _F.TYPE_BOOL: BooleanType(),
    _F.TYPE_STRING: StringType(),
    _F.TYPE_BYTES: BinaryType(),
    _F.TYPE_FLOAT: FloatType(),
    _F.TYPE_DOUBLE: DoubleType(),
    _F.TYPE_ENUM: StringType(),
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), IntegerType()),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64, _F.TYPE_UINT32, _F.TYPE_FIXED32), LongType()),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), DecimalType(20, 0)),
}
_KNOWN: dict[str, IcebergType] = {TIMESTAMP: TimestamptzType(), DURATION: DecimalType(21, 9)}


def protobuf_columns(schema: MessageSchema, unfit: Unfit = IN_A_NEW_TABLE) -> Columns:
    """The columns for messages of `schema`, field ids from 1. Raises ConfigError naming the field that has none in a
    new table.
    """
    columns = _Columns(schema.name, FieldIds(schema.name), unfit)
    return of_fields(schema.name, columns.fields(schema.descriptor, "", ()), unfit)


@dataclass(frozen=True, slots=True)
class _Columns:
    """`outer` are the names of the messages that a field is within."""

    name: str
    next_id: FieldIds
    unfit: Unfit

    def fields(self, message: Descriptor, path: str, outer: tuple[str, ...]) -> list[NestedField]:
        fields: list[NestedField] = []
        for of in message.fields:
            field_id, within = self.next_id(path), (*outer, message.full_name)
            try:
                kind = self._field(of, f"{path}{of.name}", within)
            except ConfigError as error:
                self.unfit.leave_out(path, of.name, error, within)
                continue
            if kind is not None:
                fields.append(NestedField(field_id, of.name, kind, required=of.is_required))
        return fields

    def _field(self, field: FieldDescriptor, path: str, outer: tuple[str, ...]) -> IcebergType | None:
        if entry := entry_of(field):
            key_id, value_id, parts = self.next_id(path), self.next_id(path), entry.fields_by_name
            value = self._value(parts["value"], f"{path}.value", outer)
            key = _PLAIN[parts["key"].type]
            return value and MapType(key_id, key, value_id, value, value_required=True)
        if field.is_repeated:
            element_id, element = self.next_id(path), self._value(field, f"{path}.element", outer)
            return element and ListType(element_id, element, element_required=True)
        return self._value(field, path, outer)

    def _value(self, field: FieldDescriptor, path: str, outer: tuple[str, ...]) -> IcebergType | None:
        message = field.message_type
        if message is None:
            return _PLAIN[field.type]
        if message.full_name in WRAPPERS:
            return self._value(message.fields_by_name["value"], path, outer)
        if message.full_name in _KNOWN:
            return _KNOWN[message.full_name]
        digits = declared_digits(field) if message.full_name == DECIMAL else None
        if digits is not None and 0 <= digits[1] <= digits[0] <= DECIMAL_DIGITS and digits[0]:
            return DecimalType(*digits)
        if message.full_name in outer and not self.unfit.has(path):
            raise WithinItself(
                f"{self.name}: field {path} is a {message.full_name} within a {message.full_name}",
                hint=f"name the columns under auto_create.columns, without {path} or with part of it",
                of=message.full_name,
            )
        fields = self.fields(message, f"{path}.", outer)
        return StructType(*fields) if fields else None
