"""Records as Avro and as Protobuf, with a registry's schemas."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from itertools import count
from random import Random
from typing import Any

import fastavro
from google.protobuf.message_factory import GetMessageClass

from calve.sink_core.records.protobuf.schema import proto_file
from tests.any_values import kinds
from tests.any_values.json_wires import SCALES, Encode, unscaled
from tests.any_values.kinds import Leaf, ListOf, MapOf, StructOf, Type
from tests.schema_registry import SchemaRegistry, framed
from tests.support import unique

NAMES = ("a", "Big", "select", "x_1", "_u", "null", "value", "key", "element", "timestamp", "x" * 150, "__", "message")


class Avro:
    name = "avro"
    names = NAMES
    leaves = (
        *(kinds.BOOLEAN, kinds.INT, kinds.LONG, kinds.DOUBLE, kinds.FLOAT, kinds.PRICE, kinds.BIG, kinds.TEXT),
        *(kinds.BINARY, kinds.FIXED, kinds.A_UUID, kinds.DATE, kinds.TIMESTAMP, kinds.TIMESTAMPTZ),
    )
    gaps = True
    nested = True

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def value(self) -> dict[str, Any]:
        return {"type": "avro", "registry": "main"}

    def encoder(self, columns: Mapping[str, Type], _chance: Random) -> Encode:
        kind = StructOf(columns)
        schema_id = self._registry.register(unique("any"), _avro(kind, count(), logical=True))
        plain = fastavro.parse_schema(_avro(kind, count(), logical=False))

        def encode(record: Mapping[str, Any]) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, plain, _in_avro(kind, record))
            return framed(schema_id, out.getvalue())

        return encode

    def broken(self, value: bytes) -> bytes:
        return value[:-1]


_AVRO: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "boolean": ("boolean", {}),
    "int": ("long", {}),
    "long": ("long", {}),
    "double": ("double", {}),
    "float": ("float", {}),
    "string": ("string", {}),
    "binary": ("bytes", {}),
    "fixed[4]": ("bytes", {}),
    "uuid": ("string", {"logicalType": "uuid"}),
    "date": ("int", {"logicalType": "date"}),
    "timestamp": ("long", {"logicalType": "local-timestamp-micros"}),
    "timestamptz": ("long", {"logicalType": "timestamp-micros"}),
    **{text: ("bytes", {"logicalType": "decimal", "precision": 38, "scale": scale}) for text, scale in SCALES.items()},
}


def _avro(kind: Type, numbers: count[int], *, logical: bool) -> Any:
    inner = partial(_or_null, numbers=numbers, logical=logical)
    if isinstance(kind, ListOf):
        return {"type": "array", "items": inner(kind.item)}
    if isinstance(kind, MapOf):
        return {"type": "map", "values": inner(kind.item)}
    if isinstance(kind, StructOf):
        name = f"R{next(numbers)}"
        return {
            "type": "record",
            "name": name,
            "fields": [{"name": name, "type": inner(of)} for name, of in kind.fields.items()],
        }
    carrier, meaning = _AVRO[kind.text]
    return {"type": carrier, **meaning} if logical and meaning else carrier


def _or_null(kind: Type, *, numbers: count[int], logical: bool) -> list[Any]:
    return ["null", _avro(kind, numbers, logical=logical)]


def _in_avro(kind: Type, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, ListOf):
        return [_in_avro(kind.item, item) for item in value]
    if isinstance(kind, MapOf):
        return {key: _in_avro(kind.item, item) for key, item in value.items()}
    if isinstance(kind, StructOf):
        return {name: _in_avro(of, value[name]) for name, of in kind.fields.items()}
    if isinstance(value, Decimal):
        return unscaled(value, SCALES[kind.text])
    return str(value) if kind.text == "uuid" else value


class Protobuf:
    name = "protobuf"
    names = NAMES
    leaves = (
        *(kinds.BOOLEAN, kinds.INT, kinds.LONG, kinds.DOUBLE, kinds.FLOAT, kinds.PRICE, kinds.TEXT, kinds.BINARY),
        *(kinds.FIXED, kinds.A_UUID, kinds.TIMESTAMPTZ, kinds.UNSIGNED),
    )
    gaps = False
    nested = False

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def value(self) -> dict[str, Any]:
        return {"type": "protobuf", "registry": "main"}

    def encoder(self, columns: Mapping[str, Type], _chance: Random) -> Encode:
        kind = StructOf(columns)
        text = _HEAD + "\n".join(_messages(kind, "Any"))
        schema_id = self._registry.register_text(unique("any"), "PROTOBUF", text)
        message = GetMessageClass(proto_file("any", text).file.message_types_by_name["Any"])

        def encode(record: Mapping[str, Any]) -> bytes:
            made = message()
            _fill(made, kind, record)
            # A zero stands for the first message of the file.
            return framed(schema_id, b"\0" + made.SerializeToString())

        return encode

    def broken(self, value: bytes) -> bytes:
        return b"\1" + value[1:]


_HEAD = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "confluent/type/decimal.proto";
"""
_PROTOBUF = {
    "boolean": "bool",
    "int": "int64",
    "long": "sint64",
    "double": "double",
    "float": "float",
    "string": "string",
    "binary": "bytes",
    "fixed[4]": "bytes",
    "uuid": "string",
    "timestamptz": "google.protobuf.Timestamp",
    kinds.PRICE.text: "confluent.type.Decimal",
    kinds.UNSIGNED.text: "uint64",
}


def _messages(kind: StructOf, name: str) -> list[str]:
    """The definition of a message, and behind it those that it needs."""
    lines, further = list[str](), list[str]()
    for number, (field, of) in enumerate(kind.fields.items(), start=1):
        item = of.item if isinstance(of, ListOf | MapOf) else of
        if isinstance(item, StructOf):
            within = f"{name}_{number}"
            further += _messages(item, within)
        else:
            assert isinstance(item, Leaf)
            within = _PROTOBUF[item.text]
        rule = "repeated" if isinstance(of, ListOf) else "optional"
        typed = f"map<string, {within}>" if isinstance(of, MapOf) else f"{rule} {within}"
        lines.append(f"  {typed} {field} = {number};")
    return [f"message {name} {{", *lines, "}", *further]


def _fill(message: Any, kind: StructOf, record: Mapping[str, Any]) -> None:
    for name, of in kind.fields.items():
        value = record[name]
        if isinstance(of, ListOf):
            into = getattr(message, name)
            for item in value:
                _put(of.item, item, into.append, into.add if hasattr(into, "add") else None)
        elif isinstance(of, MapOf):
            into = getattr(message, name)
            for key, item in value.items():
                _put(of.item, item, partial(into.__setitem__, key), partial(into.__getitem__, key))
        elif value is not None:
            _put(of, value, partial(setattr, message, name), partial(getattr, message, name))


def _put(kind: Type, value: Any, put: Callable[[Any], object], part: Callable[[], Any] | None) -> None:
    """A value by `put`; or into the message that `part` returns."""
    if isinstance(kind, StructOf):
        assert part is not None
        found = part()
        found.SetInParent()
        _fill(found, kind, value)
    elif isinstance(kind, Leaf) and kind.text == "timestamptz":
        assert part is not None
        found = part()
        found.seconds, found.nanos = value // 1_000_000, value % 1_000_000 * 1000
        found.SetInParent()
    elif isinstance(value, Decimal):
        assert part is not None
        scale = SCALES[kind.text]
        found = part()
        found.value, found.precision, found.scale = unscaled(value, scale), 38, scale
    else:
        put(str(value) if isinstance(kind, Leaf) and kind.text == "uuid" else value)
