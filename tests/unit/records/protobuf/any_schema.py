"""Schemas drawn by chance: files of messages, and columns that these may or may not fit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from google.protobuf import duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
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
    UUIDType,
)

from calve.sink_core.records.protobuf.schema import ProtoFile
from calve.sink_core.records.protobuf.types import DURATION, TIMESTAMP, WRAPPERS, entry_of

_F = FieldDescriptorProto
_KNOWN = (duration_pb2, timestamp_pb2, wrappers_pb2)
_PLAIN = [number for number in range(1, 19) if number not in (_F.TYPE_GROUP, _F.TYPE_MESSAGE)]
_MESSAGES = 4
_ENUM = {"NONE": 0, "RED": 1, "BLUE": 5, "LESS": -3}
_UNSIGNED: list[IcebergType] = [DecimalType(20, 0), LongType(), DecimalType(20, 0)]
_INTEGERS: list[IcebergType] = [LongType(), IntegerType(), DecimalType(20, 0), DoubleType()]
_COLUMNS: dict[int, list[IcebergType]] = {
    _F.TYPE_BOOL: [BooleanType()],
    _F.TYPE_STRING: [StringType(), StringType(), UUIDType()],
    _F.TYPE_BYTES: [BinaryType(), BinaryType(), FixedType(2), UUIDType()],
    _F.TYPE_FLOAT: [FloatType(), DoubleType()],
    _F.TYPE_DOUBLE: [DoubleType(), FloatType()],
    _F.TYPE_ENUM: [StringType(), LongType(), IntegerType()],
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), _UNSIGNED),
}
_ANY: list[IcebergType] = [StringType(), LongType(), BooleanType(), StructType(NestedField(900, "x", LongType()))]


def any_file(chance: random.Random) -> ProtoFile:
    """With a few messages, of which earlier ones have later ones in them."""
    is_new = chance.random() < 0.7
    file = FileDescriptorProto(name="any.proto", package="any", syntax="proto3" if is_new else "proto2")
    pool = DescriptorPool()
    for known in _KNOWN:
        part = FileDescriptorProto()
        known.DESCRIPTOR.CopyToProto(part)
        pool.Add(part)
        file.dependency.append(part.name)
    kind = file.enum_type.add(name="Kind")
    for name, number in _ENUM.items():
        kind.value.add(name=name, number=number)
    for number in range(_MESSAGES):
        _fill(file.message_type.add(name=f"M{number}"), number, chance, is_new=is_new)
    pool.Add(file)
    return ProtoFile("schema id 7", pool.FindFileByName("any.proto"))


def _fill(message: DescriptorProto, number: int, chance: random.Random, *, is_new: bool) -> None:
    numbers = chance.sample([*range(1, 12), 15, 16, 2047, 2048, 536_870_911], chance.randint(1, 7))
    if chance.random() < 0.8:
        numbers.sort()
    for place, field_number in enumerate(numbers):
        field = message.field.add(name=f"of_{number}_{place}", number=field_number, label=_F.LABEL_OPTIONAL)
        if not _of_message(field, message, number, chance):
            field.type = chance.choice(_PLAIN)
            if field.type == _F.TYPE_ENUM:
                field.type_name = ".any.Kind"
        if field.label == _F.LABEL_OPTIONAL and chance.random() < 0.15:
            field.label = _F.LABEL_REPEATED
            if field.type in _PLAIN and field.type not in (_F.TYPE_STRING, _F.TYPE_BYTES):
                field.options.packed = chance.random() < 0.5
    singular = [field for field in message.field if field.label == _F.LABEL_OPTIONAL]
    if chance.random() < 0.3 and singular:
        message.oneof_decl.add(name="choice")
        for field in chance.sample(singular, chance.randint(1, len(singular))):
            field.oneof_index = 0
    for field in singular:
        if not field.HasField("oneof_index"):
            _be_there(field, message, chance, is_new=is_new)


def _be_there(field: FieldDescriptorProto, message: DescriptorProto, chance: random.Random, *, is_new: bool) -> None:
    """Give the field presence, or what it is if it isn't there."""
    if is_new and chance.random() < 0.3:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")
    elif not is_new and chance.random() < 0.2:
        field.label = _F.LABEL_REQUIRED
    elif not is_new and chance.random() < 0.3 and (default := _default(field, chance)) is not None:
        field.default_value = default


def _of_message(field: FieldDescriptorProto, message: DescriptorProto, number: int, chance: random.Random) -> bool:
    """Whether the field is made one of a message's type, or a map."""
    drawn = chance.random()
    if drawn < 0.12 and number + 1 < _MESSAGES:
        field.type_name = f".any.M{chance.randint(number + 1, _MESSAGES - 1)}"
    elif drawn < 0.18:
        field.type_name = f".{chance.choice([TIMESTAMP, TIMESTAMP, *sorted(WRAPPERS)])}"
    elif drawn < 0.19:
        field.type_name = chance.choice([f".{DURATION}", f".any.{message.name}"])
    elif drawn < 0.22:
        entry = message.nested_type.add(name=f"{field.name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL, type=chance.choice(_PLAIN))
        if value.type == _F.TYPE_ENUM:
            value.type_name = ".any.Kind"
        field.type_name, field.label = f".any.{message.name}.{entry.name}", _F.LABEL_REPEATED
    else:
        return False
    field.type = _F.TYPE_MESSAGE
    return True


def _default(field: FieldDescriptorProto, chance: random.Random) -> str | None:
    if field.type in (_F.TYPE_MESSAGE, _F.TYPE_STRING, _F.TYPE_BYTES):
        return None
    if field.type == _F.TYPE_BOOL:
        return "true"
    return "BLUE" if field.type == _F.TYPE_ENUM else chance.choice(["0", "7", "100"])


def any_columns(messages: list[Descriptor], chance: random.Random) -> Schema:
    """Of the messages' fields most, of types that these fit, or nearly always do; and maybe one that they have not."""
    fields = {of.name: of for message in messages for of in message.fields}
    return Schema(*_Columns(chance, odd=chance.random() < 0.3).fields(fields, 0))


@dataclass
class _Columns:
    chance: random.Random
    odd: bool
    ids: Iterator[int] = field(default_factory=partial(count, 1))

    def fields(self, fields: Mapping[str, FieldDescriptor], depth: int) -> list[NestedField]:
        found = list[NestedField]()
        for name, of in fields.items():
            if self.chance.random() < 0.85 and (kind := self._column(of, depth)) is not None:
                required = self.odd and self.chance.random() < 0.05
                shown = name.upper() if self.chance.random() < 0.03 else name
                found.append(NestedField(next(self.ids), shown, kind, required=required))
        if not found or self.chance.random() < 0.2:
            found.append(NestedField(next(self.ids), "none_has_it", StringType()))
        self.chance.shuffle(found)
        return found

    def _column(self, of: FieldDescriptor, depth: int) -> IcebergType | None:
        if self.odd and self.chance.random() < 0.05:
            return self.chance.choice(_ANY)
        if entry := entry_of(of):
            value = self._single(entry.fields_by_name["value"], depth)
            is_read = value is not None and self.chance.random() < 0.1
            return MapType(next(self.ids), StringType(), next(self.ids), value, True) if is_read else None
        kind = self._single(of, depth)
        return ListType(next(self.ids), kind, True) if of.is_repeated and kind is not None else kind

    def _single(self, of: FieldDescriptor, depth: int) -> IcebergType | None:
        message = of.message_type
        if message is None:
            kinds = _COLUMNS.get(of.type, _INTEGERS)
            return self.chance.choice(kinds) if self.odd else kinds[0]
        if message.full_name == TIMESTAMP:
            return TimestamptzType()
        if message.full_name == DURATION:
            return DecimalType(21, 9)
        if message.full_name in WRAPPERS:
            return self._single(message.fields_by_name["value"], depth)
        return StructType(*self.fields(message.fields_by_name, depth + 1)) if depth < _MESSAGES else None
