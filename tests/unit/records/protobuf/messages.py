"""Protobuf messages of an order, and of one with a price, as a registry's clients frame them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from calve.sink_core.records.protobuf.schema import Messages, MessageSchema, ProtoFile, proto_file

HEADER = b"\0\0\0\0\7"
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "geo/city.proto";
enum Colour { NONE = 0; RED = 1; }
message Other { string name = 1; message Inner { bool yes = 1; } }
message Order {
  int64 id = 1;
  optional int32 maybe = 2;
  uint64 big = 3;
  fixed32 word = 4;
  float f = 5;
  double d = 6;
  bool yes = 7;
  string text = 8;
  bytes raw = 9;
  Colour colour = 10;
  google.protobuf.Timestamp at = 11;
  google.protobuf.Duration took = 12;
  google.protobuf.Int64Value wrapped = 13;
  repeated string tags = 14;
  repeated geo.City cities = 15;
  map<string, int32> sizes = 16;
  map<int64, geo.City> by_number = 17;
  geo.City home = 18;
  oneof choice { string word_of = 19; geo.City city_of = 20; }
  repeated Colour colours = 21;
  Empty nothing = 22;
}
message Empty {}
"""
CITY = 'syntax = "proto3"; package geo; message City { string name = 1; optional double x = 2; }'


@dataclass
class OneFile:
    """A registry whose only schema is that of id 7."""

    file: ProtoFile
    header_bytes: int = field(default=5)

    def writer_of(self, value: bytes) -> ProtoFile:
        if value[:5] != HEADER:
            raise ValueError(f"no such schema: {value[:5].hex()}")
        return self.file


@cache
def file(text: str = ORDER) -> ProtoFile:
    return proto_file("schema id 7", text, (("geo/city.proto", CITY),))


def messages(text: str = ORDER) -> Messages:
    return Messages(OneFile(file(text)))


@cache
def order_schema(name: str = "shop.Order", text: str = ORDER) -> MessageSchema:
    indexes = {"shop.Order": b"\x02\x02", "shop.Other": b"\0", "shop.Other.Inner": b"\x04\0\0"}
    return messages(text).writer_of(HEADER + indexes.get(name, b"\0"))


def order(**values: Any) -> Any:
    made = GetMessageClass(order_schema().descriptor)()
    for name, value in values.items():
        part = getattr(made, name)
        if isinstance(value, list):
            part.extend(value)
        elif isinstance(value, dict):
            part.update(value)
        else:
            setattr(made, name, value)
    return made


def framed(message: Any, indexes: bytes = b"\x02\x02") -> bytes:
    return HEADER + indexes + message.SerializeToString()


PRICED = """
syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/date.proto";
message Priced {
  google.type.Date day = 1;
  confluent.type.Decimal price = 2 [
    (confluent.field_meta).params = {key: "precision", value: "10"},
    (confluent.field_meta).params = {key: "scale", value: "2"}
  ];
  confluent.type.Decimal any = 3;
}
"""


def priced() -> tuple[ProtoFile, MessageSchema]:
    file = proto_file("priced", PRICED)
    descriptor = file.file.message_types_by_name["Priced"]
    return file, MessageSchema("priced", descriptor, GetMessageClass(descriptor).FromString)
