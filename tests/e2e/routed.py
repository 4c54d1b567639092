"""Twenty topics of several formats, five entries with rules, bad records and kill -9: what must become of each record.

Record *n* is in topic `n % TOPICS`, whose format is `formats[topic % len(formats)]`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.compute as pc
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry, framed
from tests.support import TIMEOUT_S

TOPICS = 20
BAD_EVERY = 50
KINDS = ("view", "buy", "share", "none")
NAMING = KINDS[:3]
REGIONS = ("eu", "us", "asia")
COLUMNS = {"columns": {"id": "long", "kind": "string", "at": "struct<region: string>", "value": "string"}}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": "string"},
        {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "region", "type": "string"}]}},
    ],
}
PROTOBUF = """syntax = "proto3";
message Event { int64 id = 1; string kind = 2; At at = 3; message At { string region = 1; } }"""
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}}}
_CONNECT = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "kind", "type": "string"},
        {"field": "at", "type": "struct", "fields": [{"field": "region", "type": "string"}]},
    ],
}
_PARSED = fastavro.parse_schema(AVRO)

Encode = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Format:
    """What `source.formats` says of a topic, and how its good records are written. `whole`: a value without fields."""

    value: Mapping[str, Any]
    encode: Encode
    whole: bool = False


def without_registry(directory: Path) -> list[Format]:
    """The Avro schema goes into a file of `directory`."""
    path = directory / "event.avsc"
    path.write_text(json.dumps(AVRO))
    return [
        Format({"type": "json"}, lambda n: json.dumps(record(n)).encode()),
        Format({"type": "avro", "schema": str(path)}, _avro),
        Format({"type": "connect_json"}, lambda n: json.dumps({"schema": _CONNECT, "payload": record(n)}).encode()),
        Format({"type": "string"}, lambda n: str(n).encode(), whole=True),
    ]


def with_registry(registry: SchemaRegistry) -> list[Format]:
    avro = registry.register(support.unique("event"), AVRO)
    proto = registry.register_text(support.unique("event"), "PROTOBUF", PROTOBUF)
    described = registry.register_text(support.unique("event"), "JSON", json.dumps(JSON_SCHEMA))
    return [
        Format({"type": "avro", "registry": "main"}, lambda n: framed(avro, _avro(n))),
        Format({"type": "protobuf", "registry": "main"}, lambda n: framed(proto, b"\0" + _message(n))),
        Format(
            {"type": "json_schema", "registry": "main"}, lambda n: framed(described, json.dumps(record(n)).encode())
        ),
    ]


@dataclass
class Routed:
    """The pipeline and its records; `make` creates the topics and produces."""

    flow: Flow
    formats: Sequence[Format]
    records: int
    good: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.good = [n for n in range(self.records) if not is_bad(n)]

    @classmethod
    def make(
        cls,
        directory: Path,
        bootstrap: str,
        formats: Sequence[Format],
        records: int,
        max_records: int,
        url: str = "",
        **options: Any,
    ) -> Routed:
        """`max_records` is that of a batch, `url` the registry's, if there is one; `options` are the flow's."""
        prefix = support.unique("t")
        names = [f"{prefix}.e_{n}" for n in range(TOPICS)]
        fielded = [name for number, name in enumerate(names) if not formats[number % len(formats)].whole]
        naming = {"field": "kind", "allow": "|".join(NAMING)}
        rules: list[dict[str, Any]] = [
            {"name": "by_topic.{entity}"},
            {"name": "kinds.{value}", "topics": fielded, "name_from": naming},
            {"name": "shop.eu", "topics": fielded, "where": {"field": "at.region", "matches": "eu"}},
            {"name": "shop.first", "topics": names[:2]},
            {"name": "shop.all"},
        ]
        tables = [{**rule, "auto_create": COLUMNS} for rule in rules]
        of = [
            {"topics": names[number :: len(formats)], "value": dict(each.value)} for number, each in enumerate(formats)
        ]
        source = {"topics": [], "topics_regex": rf"{prefix}\.(?P<entity>\w+)", "formats": of}
        extra = {"source": source, "tables": tables, "batch": {"max_records": max_records}}
        registry = {"main": {"url": url}} if url else {}
        flow = Flow.create(directory, bootstrap, *names, extra=extra, registry=registry, **options)
        for made in flow.admin.create_topics([NewTopic(name, 1) for name in names]).values():
            made.result(TIMEOUT_S)
        routed = cls(flow, formats, records)
        routed._produce()
        return routed

    def format_of(self, n: int) -> Format:
        return self.formats[n % TOPICS % len(self.formats)]

    def run(self, killed_at: str = "") -> int:
        """`calve run`; its exit code. Killed at a failpoint, which may be given as `<name>@<time>`."""
        name, _, time = killed_at.partition("@")
        environment = {VARIABLE: f"{name}=kill@{time or 1}"} if killed_at else {}
        command = [str(Path(sys.executable).with_name("calve")), "run", str(self.flow.pipeline.path)]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False)
        return done.returncode

    def check(self) -> dict[str, int]:
        """Every record is in the tables that its rule says, or a dead letter, once, and the proof holds; its facts."""
        fields = [n for n in self.good if not self.format_of(n).whole]
        assert self._numbers("shop.all") == self.good
        assert self._numbers("shop.eu") == [n for n in fields if REGIONS[n % 3] == "eu"]
        assert self._numbers("shop.first") == [n for n in self.good if n % TOPICS < 2]
        for kind in NAMING:
            assert self._numbers(f"kinds.{kind}") == [n for n in fields if kind_of(n) == kind]
        for number, topic in enumerate(self.flow.topics):
            assert self._numbers(f"by_topic.{topic.rpartition('.')[2]}") == [
                n for n in self.good if n % TOPICS == number
            ]
        letters = self._column(self.flow.pipeline.dead_letter_table, "stage")
        assert len(letters) == self.records - len(self.good)
        assert set(letters) <= {"decode", "fit"}
        with self.flow.session() as session:
            report = verify(session, deep=True)
        assert not report.violations
        return dict(report.facts)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.flow.bootstrap, "enable.idempotence": True, "linger.ms": 50})
        for n in range(self.records):
            while len(producer) > 50_000:
                producer.poll(0.1)
            each = self.format_of(n)
            producer.produce(self.flow.topics[n % TOPICS], _bad(each, n) if is_bad(n) else each.encode(n))
        assert producer.flush(TIMEOUT_S) == 0

    def _numbers(self, table: str) -> list[int]:
        found = self.flow.load_table(table).scan(selected_fields=("id", "value")).to_arrow()
        return sorted(pc.coalesce(found["id"], pc.cast(found["value"], "int64")).to_pylist())

    def _column(self, table: str, name: str) -> list[Any]:
        return self.flow.load_table(table).scan(selected_fields=(name,)).to_arrow()[name].to_pylist()


def is_bad(n: int) -> bool:
    return n % BAD_EVERY == BAD_EVERY - 1


def kind_of(n: int) -> str:
    return KINDS[n % 7 % 4]


def record(n: int) -> dict[str, Any]:
    return {"id": n, "kind": kind_of(n), "at": {"region": REGIONS[n % 3]}}


def _bad(each: Format, n: int) -> bytes:
    """What no format reads, or, of JSON's every other time, what no column takes."""
    return b'{"id": "no number"}' if each.value["type"] == "json" and n // BAD_EVERY % 2 else b"\xff{broken"


def _avro(n: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, record(n))
    return out.getvalue()


def _message(n: int) -> bytes:
    """As Protobuf writes it: each field's number and kind, then a varint or a length with what it is of."""
    each = record(n)
    region = b"\x0a" + _sized(each["at"]["region"].encode())
    return b"\x08" + _varint(n) + b"\x12" + _sized(each["kind"].encode()) + b"\x1a" + _sized(region)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])
