"""JSON Schema and Protobuf with a real registry, one that is busy, and Connect's envelope, from Kafka to Iceberg."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.records.decode.registry import ById, Registry
from calve.sink_core.records.protobuf.schema import Messages, proto_file
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from tests.codes import raises
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry, busy, framed
from tests.support import TopicFactory, produce, unique

PLACE = {"$id": "place.json", "type": "object", "properties": {"x": {"type": "number"}}}
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "text": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "day": {"type": "string", "format": "date"},
        "to": {"$ref": "place.json"},
    },
    "required": ["id", "text"],
}
CITY = 'syntax = "proto3"; package geo; message City { string name = 1; }'
TRIP = """
syntax = "proto3";
package shop;
import "geo/city.proto";
import "google/protobuf/timestamp.proto";
message Trip {
  int64 id = 1;
  uint64 big = 2;
  geo.City to = 3;
  google.protobuf.Timestamp at = 4;
  message Stop { int64 id = 1; string note = 2; }
}
"""


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create={})


def reading(flow: Flow, kind: str, url: str) -> Flow:
    return flow.but(
        registry={"main": {"url": url, "retries.wait.ms": 10}},
        extra={"source": {"value": {"type": kind, "registry": "main"}}},
    )


def errors(flow: Flow) -> list[tuple[int, str]]:
    rows = flow.rows(flow.pipeline.dead_letter_table)
    return sorted((row["offset"], row["error"]) for row in rows)


def proven(flow: Flow) -> None:
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def test_objects_become_rows_of_a_table_made_from_their_json_schema(
    flow: Flow, registry: SchemaRegistry, spark: SparkSession
) -> None:
    flow = reading(flow, "json_schema", registry.url)
    places = unique("place")
    registry.register_text(places, "JSON", json.dumps(PLACE))
    number = registry.register_text(f"{flow.topic}-value", "JSON", json.dumps(ORDER), [("place.json", places, 1)])
    avro = registry.register(unique("avro"), "string")
    good = b'{"id": 1, "text": "a", "day": "2026-01-31", "to": {"x": 0.5}}'
    values = [good, b'{"id": 2, "text": null}', b'{"id": "x"}']
    produce(
        flow.bootstrap,
        flow.topic,
        [*(framed(number, value) for value in values), good, framed(avro, good), framed(2_000_000_000, good)],
    )
    flow.run()
    table = f"{flow.attached(spark)}.{flow.table}"
    rows = spark.sql(f"SELECT id, text, CAST(day AS STRING) AS day, to.x FROM {table} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "a", "2026-01-31", 0.5), (2, None, None, None)]
    assert [flow.load_table().schema().find_field(name).required for name in ("id", "text")] == [True, False]
    found = errors(flow)
    assert [offset for offset, _ in found] == [2, 3, 4, 5]
    assert {str(number), str(avro)}.isdisjoint(found[1][1].split()), "the value has no schema id"
    assert str(avro) in found[2][1]
    assert {"2000000000", "main"} <= {*found[3][1].split()}
    proven(flow)


def test_messages_become_rows_of_a_table_made_from_their_protobuf_schema(
    flow: Flow, registry: SchemaRegistry, spark: SparkSession
) -> None:
    flow = reading(flow, "protobuf", registry.url)
    cities = unique("city")
    registry.register_text(cities, "PROTOBUF", CITY)
    number = registry.register_text(f"{flow.topic}-value", "PROTOBUF", TRIP, [("geo/city.proto", cities, 1)])
    trip = proto_file("trip", TRIP, [("geo/city.proto", CITY)]).file.message_types_by_name["Trip"]
    made: Any = GetMessageClass(trip)(id=1, big=2**64 - 1)
    made.to.name = "Oslo"
    made.at.FromMicroseconds(1_717_149_600_123_456)
    stop: Any = GetMessageClass(trip.nested_types_by_name["Stop"])(id=2, note="x")
    values = [
        b"\0" + made.SerializeToString(),
        b"\x04\0\0" + stop.SerializeToString(),
        b"\x02\x02",
        b"\0" + made.SerializeToString()[:-1],
    ]
    produce(flow.bootstrap, flow.topic, [framed(number, value) for value in values])
    flow.run()
    table = f"{flow.attached(spark)}.{flow.table}"
    rows = spark.sql(f"SELECT id, big, to.name, unix_micros(at) FROM {table} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [
        (1, Decimal(2**64 - 1), "Oslo", 1_717_149_600_123_456),
        (2, None, None, None),
    ]
    [(_, unknown), (_, cut)] = errors(flow)
    assert (str(number) in unknown, "[1]" in unknown) == (True, True)
    assert (str(number) in cut, "shop.Trip" in cut) == (True, True)
    proven(flow)


def test_of_a_later_schema_all_fields_become_columns_but_one_that_none_can_hold_and_it_is_counted(
    flow: Flow, registry: SchemaRegistry
) -> None:
    flow = reading(flow, "protobuf", registry.url)
    flow = flow.but(extra={**flow.extra, "table_defaults": {"evolve": ["add_column"]}})
    for more, value in (("", b"\x08\1"), ("repeated M kids = 2; string s = 3;", b"\x08\2\x12\2\x08\7\x1a\1x")):
        text = f'syntax = "proto3"; message M {{ int64 id = 1; {more} }}'
        number = registry.register_text(f"{flow.topic}-value", "PROTOBUF", text)
        produce(flow.bootstrap, flow.topic, [framed(number, b"\0" + value)])
        report = flow.run()
    [batch] = report.batches
    assert batch.dropped == {flow.table: {"kids": 1}}
    assert sorted((row["id"], row["s"]) for row in flow.rows(flow.table)) == [(1, None), (2, "x")]
    with flow.session() as session:
        [table] = [each for each in status(session).tables if each.table == flow.table]
    assert table.dropped == {"kids": 1}
    proven(flow)


def test_payloads_become_rows_of_a_table_made_from_their_envelopes_schema(flow: Flow, spark: SparkSession) -> None:
    flow = flow.but(extra={"source": {"value": {"type": "connect_json"}}})
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    at = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "optional": True, "field": "at"}
    fields = [{"type": "int64", "optional": False, "field": "id"}, {**decimal, "optional": True, "field": "price"}, at]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "shop.Order"}
    payloads = [{"id": 1, "price": "AH0=", "at": 1_717_149_600_123}, {"id": 2, "price": None, "at": None}, None]
    values = [json.dumps({"schema": schema, "payload": payload}).encode() for payload in payloads]
    produce(flow.bootstrap, flow.topic, [*values, None, b'{"id": 3}'])
    flow.run()
    table = f"{flow.attached(spark)}.{flow.table}"
    rows = spark.sql(f"SELECT id, price, unix_millis(at) FROM {table} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, Decimal("1.25"), 1_717_149_600_123), (2, None, None)]
    [(null, _), (bare, said)] = errors(flow)
    assert (null, bare) == (2, 4)
    assert "id" in said.split(), "what it has in place of an envelope"
    proven(flow)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_is_busy_is_asked_again_and_one_that_stays_so_ends_the_run(
    registry: SchemaRegistry, status: int
) -> None:
    number = registry.register_text(unique("trip"), "PROTOBUF", CITY)
    for times in (2, 3):
        with busy(registry.url, status, times) as url:
            settings = RegistrySettings("main", {"url": url, "retries.wait.ms": 1})
            schemas = ById(Registry(settings), "PROTOBUF", lambda found: proto_file(found.name, found.text))
            value = framed(number, b"\0")
            if times == 3:
                with raises(Code.REGISTRY_DOWN, "id", number, status):
                    schemas.writer_of(value)
            assert Messages(schemas).writer_of(value).descriptor.full_name == "geo.City"
        # What was found is remembered.
        assert str(number) in schemas.writer_of(value).name


def test_a_reference_that_cannot_be_had_is_no_verdict_on_the_record(registry: SchemaRegistry) -> None:
    cities = unique("city")
    registry.register_text(cities, "PROTOBUF", CITY)
    number = registry.register_text(unique("trip"), "PROTOBUF", TRIP, [("geo/city.proto", cities, 1)])
    with busy(registry.url, 503, 3) as url:
        schemas = ById(
            Registry(RegistrySettings("main", {"url": url, "retries.wait.ms": 1, "max.retries": 0})),
            "PROTOBUF",
            lambda found: proto_file(found.name, found.text, found.references),
        )
        said: list[str] = []
        for _ in range(6):
            with raises(Code.REGISTRY_DOWN) as raised:
                schemas.writer_of(framed(number, b"\0"))
            said.append(raised.value.message)
        assert any(cities in message and "503" in message for message in said)
        assert schemas.writer_of(framed(number, b"\0")).file.message_types_by_name["Trip"].full_name == "shop.Trip"
