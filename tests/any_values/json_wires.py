"""Records as JSON, with and without a schema: what a producer may write for a value of `kinds`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np

from tests.any_values import kinds
from tests.any_values.kinds import Leaf, ListOf, MapOf, StructOf, Type
from tests.schema_registry import SchemaRegistry, framed
from tests.support import unique

Encode = Callable[[Mapping[str, Any]], bytes]
Spelled = Callable[[Leaf, Any], str]

NAMES = (
    *("a", "Big", "select", "with blank", "quote'd", 'dq"x', "back`tick", "ünï", "日本", "😀", "1st", "a-b", "a/b"),
    *("%41", "tab\t", "x" * 150, "_x", "dot.ted", "null", "value", "key", "element", "timestamp", "a=b", "c,d", "e;f"),
)
"""Of columns: any that a reader of Iceberg can read."""

LEAVES = (
    *(kinds.BOOLEAN, kinds.INT, kinds.LONG_OF_ANY, kinds.DOUBLE, kinds.FLOAT_OF_DOUBLE, kinds.PRICE, kinds.BIG),
    *(kinds.TEXT_OF_JSON, kinds.BINARY, kinds.FIXED, kinds.A_UUID, kinds.DATE, kinds.TIMESTAMP, kinds.TIMESTAMPTZ),
)


class Json:
    """`type: json`."""

    name = "json"
    names = NAMES
    leaves = LEAVES
    gaps = True
    nested = True

    def value(self) -> dict[str, Any]:
        """What `source.value` says."""
        return {"type": "json"}

    def encoder(self, columns: Mapping[str, Type], chance: Random) -> Encode:
        kind = StructOf(columns)

        def spelled(leaf: Leaf, value: Any) -> str:
            return spell(leaf, value, chance)

        def encode(record: Mapping[str, Any]) -> bytes:
            return written(kind, record, spelled, chance).encode()

        return encode

    def broken(self, value: bytes) -> bytes:
        """No record of the format."""
        return value[:-1]


class JsonSchema(Json):
    """`type: json_schema`: the same behind the id of a schema."""

    name = "json_schema"

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def value(self) -> dict[str, Any]:
        return {"type": "json_schema", "registry": "main"}

    def encoder(self, columns: Mapping[str, Type], chance: Random) -> Encode:
        schema = json.dumps(_json_schema(StructOf(columns)))
        schema_id = self._registry.register_text(unique("any"), "JSON", schema)
        encode = super().encoder(columns, chance)
        return lambda record: framed(schema_id, encode(record))


class Connect(Json):
    """`type: connect_json`: each record with its schema, as JsonConverter writes them."""

    name = "connect_json"
    leaves = (
        *(kinds.BOOLEAN, kinds.INT, kinds.LONG, kinds.DOUBLE, kinds.FLOAT, kinds.PRICE, kinds.BIG, kinds.TEXT),
        *(kinds.BINARY, kinds.FIXED, kinds.A_UUID, kinds.DATE, kinds.TIMESTAMP, kinds.MILLIS),
    )

    def value(self) -> dict[str, Any]:
        return {"type": "connect_json"}

    def encoder(self, columns: Mapping[str, Type], chance: Random) -> Encode:
        kind = StructOf(columns)
        schema = json.dumps(_connect(kind))

        def encode(record: Mapping[str, Any]) -> bytes:
            payload = written(kind, record, _by_connect, chance)
            return f'{{"schema":{schema},"payload":{payload}}}'.encode()

        return encode


def _json_schema(kind: Type) -> dict[str, Any]:
    if isinstance(kind, StructOf):
        return {"type": "object", "properties": {name: _json_schema(of) for name, of in kind.fields.items()}}
    if isinstance(kind, ListOf):
        return {"type": "array", "items": _json_schema(kind.item)}
    if isinstance(kind, MapOf):
        return {"type": "object", "additionalProperties": _json_schema(kind.item)}
    plain = {"boolean": "boolean", "int": "integer", "long": "integer", "double": "number", "float": "number"}
    return {"type": plain.get(kind.text, "string")}


def written(kind: Type, value: Any, spelled: Spelled, chance: Random) -> str:
    """A value as JSON; what a struct has no value for is null or left out, and its fields are in any order."""
    if value is None:
        return "null"
    if isinstance(kind, Leaf):
        return spelled(kind, value)
    if isinstance(kind, ListOf):
        return f"[{','.join(written(kind.item, item, spelled, chance) for item in value)}]"
    if isinstance(kind, MapOf):
        of = [(key, kind.item, item) for key, item in value.items()]
    else:
        of = [(name, kind.fields[name], value[name]) for name in kind.fields]
        of = [each for each in of if each[2] is not None or chance.random() < 0.5]
        if chance.random() < 0.3:
            chance.shuffle(of)
    blank = " " if chance.random() < 0.1 else ""
    members = (f"{_text(name, chance)}{blank}:{written(item, given, spelled, chance)}" for name, item, given in of)
    return f"{{{f'{blank},'.join(members)}}}"


def spell(leaf: Leaf, value: Any, chance: Random) -> str:
    """A leaf as JSON's users write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
        return f'"{text}"' if not math.isfinite(value) and chance.random() < 0.5 else text
    if isinstance(value, Decimal):
        digits = f"{value:f}"
        return f'"{digits}"' if chance.random() < 0.3 else digits
    if isinstance(value, str):
        return _text(value, chance)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if leaf.text == "date":
        return f'"{np.datetime64(value, "D")}"'
    if leaf.text in ("timestamp", "timestamptz"):
        return f'"{_moment(value, leaf.text == "timestamptz", chance)}"'
    if isinstance(value, int):
        return f"{value}.0" if chance.random() < 0.02 else str(value)
    return f'"{str(value).upper()}"' if chance.random() < 0.1 else f'"{value}"'


def _moment(micros: int, with_zone: bool, chance: Random) -> str:
    text = str(np.datetime64(micros, "us"))
    if chance.random() < 0.1:
        text += "000"
    if chance.random() < 0.1:
        text = text.replace("T", " ")
    return text + chance.choice(("Z", "+00:00", "+0000", "+00")) if with_zone else text


def _text(value: str, chance: Random) -> str:
    halves = any("\ud800" <= letter < "\ue000" for letter in value)
    return json.dumps(value, ensure_ascii=halves or chance.random() < 0.5)


def unscaled(value: Decimal, scale: int) -> bytes:
    """As Connect and Avro write a decimal."""
    number = int(value.scaleb(scale, kinds.EXACT))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


_CONNECT = {
    "boolean": {"type": "boolean"},
    "int": {"type": "int64"},
    "long": {"type": "int64"},
    "double": {"type": "double"},
    "float": {"type": "float"},
    "string": {"type": "string"},
    "binary": {"type": "bytes"},
    "fixed[4]": {"type": "bytes"},
    "uuid": {"type": "string"},
    "timestamp": {"type": "string"},
    "date": {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1},
    "timestamptz": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
}
SCALES = {kinds.PRICE.text: 3, kinds.BIG.text: 10}
"""Digits behind the point that producers write: more than the column has, for one."""


def _connect(kind: Type) -> dict[str, Any]:
    if isinstance(kind, ListOf):
        return {"type": "array", "items": _connect(kind.item), "optional": True}
    if isinstance(kind, MapOf):
        return {"type": "map", "keys": {"type": "string"}, "values": _connect(kind.item), "optional": True}
    if isinstance(kind, StructOf):
        fields = [{**_connect(of), "field": name} for name, of in kind.fields.items()]
        return {"type": "struct", "fields": fields, "optional": True}
    if kind.text in SCALES:
        scale = {"scale": str(SCALES[kind.text])}
        decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
        return {**decimal, "parameters": scale, "optional": True}
    return {**_CONNECT[kind.text], "optional": True}


def _by_connect(leaf: Leaf, value: Any) -> str:
    if isinstance(value, Decimal):
        return f'"{base64.b64encode(unscaled(value, SCALES[leaf.text])).decode()}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{spell(leaf, value, PLAIN)}"'
    if leaf.text == "date":
        return str(value)
    if leaf.text == "timestamptz":
        return str(value // 1000)
    if isinstance(value, int) and leaf.text != "timestamp":
        return str(value)
    return spell(leaf, value, PLAIN)


class _Plain(Random):
    """Chooses the usual form of everything."""

    def random(self) -> float:
        return 0.9


PLAIN = _Plain()
