"""What events look like: columns, and one made by chance; the same number is the same event each time."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import cycle, islice
from typing import Any

import fastavro
from google.protobuf.message_factory import GetMessageClass

from calve.sink_core.records.protobuf.schema import proto_file
from tests.schema_registry import framed

DISTINCT = 100_000
_WORDS = ("glacier", "calving", "iceberg", "fjord", "drift")
_GROUPS, _FIELDS = 10, 10


def as_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Shape:
    """Events of about `bytes` each, into a table with `columns`; `schema` is the registry's, if they have one: in which
    language, and its text."""

    name: str
    bytes: int
    columns: Mapping[str, str]
    event: Callable[[random.Random, int], Mapping[str, Any]]
    encoded: Callable[[Mapping[str, Any]], bytes] = as_json
    schema: tuple[str, str] | None = None

    def events(self, number: int) -> list[bytes]:
        """The first `number` events; they repeat after a while."""
        chance = random.Random(1)  # noqa: S311 - the same events each time
        distinct = [self.encoded(self.event(chance, i)) for i in range(min(number, DISTINCT))]
        return list(islice(cycle(distinct), number))


def _flat(size: int) -> Callable[[random.Random, int], Mapping[str, Any]]:
    """Ten typed fields, `note` as long as makes that many bytes."""

    def event(chance: random.Random, number: int) -> Mapping[str, Any]:
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=chance.randrange(10**9))
        fields: dict[str, Any] = {
            "id": number,
            "user_id": chance.randrange(10**9),
            "session": f"{chance.getrandbits(64):016x}",
            "event": chance.choice(["view", "click", "buy", "return"]),
            "country": chance.choice(["DE", "FR", "NL", "PL", "US"]),
            "amount": round(chance.uniform(1, 999), 2),
            "quantity": chance.randrange(1, 9),
            "paid": chance.random() < 0.5,
            "at": at.isoformat(timespec="milliseconds"),
            "note": "",
        }
        words = " ".join(chance.choice(_WORDS) for _ in range(max(20, size // 5)))
        return {**fields, "note": words[: size - len(as_json(fields))]}

    return event


def _small(chance: random.Random, number: int) -> Mapping[str, Any]:
    return {
        "id": number,
        "sensor": f"sensor-{chance.randrange(10_000):04}",
        "value": round(chance.uniform(0, 99), 3),
        "ok": 1,
    }


def _nested(chance: random.Random, number: int) -> Mapping[str, Any]:
    """A hundred fields in ten structs, half of them numbers."""
    return {"id": number} | {f"g{group}": _group(chance) for group in range(_GROUPS)}


def _group(chance: random.Random) -> Mapping[str, Any]:
    kinds: Sequence[Callable[[], Any]] = (lambda: chance.randrange(10**6), lambda: chance.choice(_WORDS))
    return {f"f{field}": kinds[field % 2]() for field in range(_FIELDS)}


_TEN = {
    "id": "long",
    "user_id": "long",
    "session": "string",
    "event": "string",
    "country": "string",
    "amount": "double",
    "quantity": "int",
    "paid": "boolean",
    "at": "timestamptz",
    "note": "string",
}
_OF_A_GROUP = "struct<" + ", ".join(f"f{f}: {('long', 'string')[f % 2]}" for f in range(_FIELDS)) + ">"

SCHEMA_ID = 1
"""What a new registry gives its first schema."""
_AVRO = {"timestamptz": {"type": "long", "logicalType": "timestamp-millis"}}
_AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": name, "type": _AVRO.get(kind, kind)} for name, kind in _TEN.items()],
}
_PARSED = fastavro.parse_schema(_AVRO_SCHEMA)
_PROTOBUF = {"long": "int64", "int": "int32", "boolean": "bool", "timestamptz": "google.protobuf.Timestamp"}
_PROTOBUF_FIELDS = [f"{_PROTOBUF.get(kind, kind)} {name} = {i};" for i, (name, kind) in enumerate(_TEN.items(), 1)]
_PROTOBUF_SCHEMA = f"""
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Event {{ {" ".join(_PROTOBUF_FIELDS)} }}
"""


def _as_avro(fields: Mapping[str, Any]) -> bytes:
    """In Confluent's wire format."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, {**fields, "at": datetime.fromisoformat(fields["at"])})
    return framed(SCHEMA_ID, out.getvalue())


@cache
def _message() -> Any:
    return GetMessageClass(proto_file("events", _PROTOBUF_SCHEMA).file.message_types_by_name["Event"])


def _as_protobuf(fields: Mapping[str, Any]) -> bytes:
    """In Confluent's wire format, whose zero stands for the first message."""
    made = _message()(**{name: value for name, value in fields.items() if name != "at"})
    made.at.FromDatetime(datetime.fromisoformat(fields["at"]))
    return framed(SCHEMA_ID, b"\0" + made.SerializeToString())


FLAT = Shape("flat", 270, _TEN, _flat(270))
MIRRORED = Shape("mirrored", 279, _TEN, _flat(279))
"""What other mirrors have been measured with."""
AVRO = Shape("avro", 147, _TEN, _flat(270), _as_avro, ("AVRO", json.dumps(_AVRO_SCHEMA)))
PROTOBUF = Shape("protobuf", 162, _TEN, _flat(270), _as_protobuf, ("PROTOBUF", _PROTOBUF_SCHEMA))
SHAPES = {
    shape.name: shape
    for shape in (
        FLAT,
        AVRO,
        PROTOBUF,
        Shape("small", 59, {"id": "long", "sensor": "string", "value": "double", "ok": "int"}, _small),
        Shape("large", 1024, _TEN, _flat(1024)),
        Shape("nested", 1385, {"id": "long"} | {f"g{g}": _OF_A_GROUP for g in range(_GROUPS)}, _nested),
    )
}
