"""Avro from Kafka to Iceberg: schemas of a real registry or a file, and a registry that is gone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.types import DecimalType, LongType, TimestamptzType, UUIDType
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.sink.verify.proof import verify
from tests.codes import raises
from tests.launch import calve
from tests.pipelines import Flow, record
from tests.schema_registry import SchemaRegistry, framed, plain
from tests.support import TopicFactory, produce, unique

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long", "doc": "the order's number"},
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {
            "name": "to",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]}],
        },
    ],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
AT = datetime(2026, 1, 31, 12, 30, 0, 5000, UTC)
KEY = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def order(number: int, **changes: object) -> dict[str, Any]:
    return {
        "id": number,
        "text": f"n{number}",
        "price": Decimal("1.25"),
        "at": AT,
        "day": date(2026, 1, 31),
        "key": KEY,
        "tags": ["a", "\N{GRINNING FACE}"],
        "sizes": {"s": 1},
        "to": {"x": 0.5},
        **changes,
    }


@dataclass(frozen=True)
class Orders:
    """A pipeline that reads orders with the registry's schemas."""

    flow: Flow
    registry: SchemaRegistry
    schema_id: int

    def produce(self, *values: bytes | None) -> None:
        produce(self.flow.bootstrap, self.flow.topic, values)

    def of(self, *ids: int) -> list[bytes]:
        return [framed(self.schema_id, plain(ORDER, order(i))) for i in ids]

    def errors(self) -> list[tuple[int, str, str]]:
        rows = sorted(self.flow.rows(self.flow.pipeline.dead_letter_table), key=lambda row: row["offset"])
        return [(row["offset"], row["stage"], row["error"]) for row in rows]

    def proven(self) -> None:
        with self.flow.session() as session:
            assert verify(session, deep=True).violations == ()


def reading_avro(flow: Flow, url: str, **keys: object) -> Flow:
    return flow.but(
        registry={"main": {"url": url, "retries.wait.ms": 10, **keys}},
        extra={"source": {"value": {"type": "avro", "registry": "main"}}},
        auto_create={},
    )


@pytest.fixture
def orders(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, registry: SchemaRegistry) -> Orders:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    return Orders(reading_avro(flow, registry.url), registry, registry.register(f"{flow.topic}-value", ORDER))


def test_records_become_rows_of_a_table_made_from_their_schema(orders: Orders, spark: SparkSession) -> None:
    orders.produce(*orders.of(0), None, *orders.of(1))
    orders.flow.run()
    schema = orders.flow.load_table().schema()
    types = {f.name: (f.field_type, f.required) for f in schema.fields}
    assert (types["id"], types["text"][1]) == ((LongType(), True), False)
    assert (types["price"][0], types["at"][0], types["key"][0]) == (DecimalType(38, 2), TimestamptzType(), UUIDType())
    assert schema.find_field("id").doc == "the order's number"
    rows = spark.sql(f"SELECT * FROM {orders.flow.attached(spark)}.{orders.flow.table} ORDER BY id").collect()
    assert [row["_kafka"]["offset"] for row in rows] == [0, 2]
    first = rows[0].asDict(recursive=True)
    assert (first["price"], first["day"], first["key"]) == (Decimal("1.25"), date(2026, 1, 31), str(KEY))
    assert (first["tags"], first["sizes"], first["to"]) == (["a", "\N{GRINNING FACE}"], {"s": 1}, {"x": 0.5})
    [at] = spark.sql(
        f"SELECT unix_micros(at) AS at FROM {orders.flow.attached(spark)}.{orders.flow.table} WHERE id = 0"
    ).collect()
    assert at["at"] == int(AT.timestamp() * 1_000_000)
    orders.proven()


def test_what_cannot_be_read_is_set_aside_with_the_reason_and_its_neighbours_are_stored(orders: Orders) -> None:
    other = orders.registry.register(
        unique("other"), {"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"}]}
    )
    json_schema = orders.registry.register_json_schema(unique("json"))
    text = orders.registry.register(unique("text"), "string")
    good = orders.of(1)[0]
    orders.produce(*orders.of(0))
    orders.flow.run()
    orders.produce(
        record(7),
        b"",
        framed(2_000_000_000, good[5:]),
        good[:-3],
        good + b"\0",
        framed(other, plain("string", "x")),
        framed(json_schema, b"{}"),
        framed(text, plain("string", "x")),
        good,
    )
    orders.flow.run()
    assert orders.flow.ids() == [0, 1]
    found = orders.errors()
    assert [offset for offset, _, _ in found] == list(range(1, 9))
    assert [offset for offset, stage, _ in found if stage == "fit"] == [6, 8]
    for (_, _, message), words in zip(
        found,
        (
            ("7b", "22", "69", "64"),
            ("empty",),
            ("2000000000", "main"),
            ("truncated", orders.schema_id),
            (1, "bytes"),
            ("id", "string", "long"),
            (json_schema, "JSON Schema", "Avro"),
            (text, "string", "record"),
        ),
        strict=True,
    ):
        assert [word for word in words if not re.search(rf"\b{word}\b", message)] == [], message
    orders.proven()


def test_records_of_several_schemas_are_stored_side_by_side_and_the_newest_one_makes_the_table(orders: Orders) -> None:
    wider = orders.registry.register(f"{orders.flow.topic}-value", WIDER)
    assert wider > orders.schema_id
    orders.produce(framed(wider, plain(WIDER, order(0, note="x"))), framed(wider, plain(WIDER, order(1, note="y"))))
    orders.flow.run()
    assert orders.flow.load_table().schema().find_field("note").required
    orders.produce(*orders.of(2))
    orders.flow.run()
    assert orders.flow.ids() == [0, 1]
    [(offset, stage, error)] = orders.errors()
    assert (offset, stage, "note" in error) == (2, "fit", True)


def test_a_schema_that_refers_to_another_one_is_put_together(orders: Orders) -> None:
    place = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
    route = {
        "type": "record",
        "name": "Route",
        "namespace": "geo",
        "fields": [{"name": "by", "type": "City"}, {"name": "to", "type": ["null", "City"]}],
    }
    trip = {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "route", "type": "geo.Route"},
            {"name": "home", "type": "geo.City"},
        ],
    }
    cities, routes = unique("city"), unique("route")
    orders.registry.register(cities, place)
    orders.registry.register(routes, route, [("geo.City", cities, 1)])
    refers = [("geo.Route", routes, 1), ("geo.City", cities, 1)]
    trip_id = orders.registry.register(unique("trip"), trip, refers)
    inline = {
        **trip,
        "fields": [
            trip["fields"][0],
            {
                "name": "route",
                "type": {
                    **route,
                    "fields": [{"name": "by", "type": place}, {"name": "to", "type": ["null", "geo.City"]}],
                },
            },
            trip["fields"][2],
        ],
    }
    value = {"id": 5, "route": {"by": {"name": "Oslo"}, "to": None}, "home": {"name": "Rome"}}
    orders.produce(framed(trip_id, plain(inline, value)))
    orders.flow.run()
    [row] = orders.flow.rows()
    assert {key: row[key] for key in value} == value


@pytest.mark.parametrize("how", ["stopped", "hung"])
def test_a_registry_that_is_gone_ends_the_run_and_the_next_one_makes_it_good(orders: Orders, how: str) -> None:
    flow, server = reading_avro(orders.flow, orders.registry.url, timeout=1), orders.registry
    orders.produce(*orders.of(0, 1))
    flow.run()
    before = flow.positions()
    orders.produce(*orders.of(2, 3))
    server.stop() if how == "stopped" else server.hang()
    try:
        with raises(Code.REGISTRY_DOWN, "main", orders.registry.url) as raised:
            flow.run()
        assert raised.value.exit_code == 3
        done = calve("run", flow.pipeline.path)
        assert done.returncode == 3, done
        assert flow.positions() == before
        assert flow.rows(flow.pipeline.dead_letter_table) == []
    finally:
        server.stop()
        server.start()
    flow.run()
    assert flow.ids() == [0, 1, 2, 3]
    assert flow.rows(flow.pipeline.dead_letter_table) == []
    orders.proven()


def test_an_address_that_is_no_registry_is_a_wrong_setting_and_buries_nothing(orders: Orders) -> None:
    orders.produce(*orders.of(0))
    elsewhere = reading_avro(orders.flow, orders.registry.url.replace("ccompat", "nowhere"))
    with raises(Code.REGISTRY_REFUSES, 404):
        elsewhere.run()
    orders.flow.run()
    assert orders.flow.ids() == [0]


def check(flow: Flow) -> tuple[int, dict[str, tuple[str, str]]]:
    result = calve("check", flow.pipeline.path, "--json")
    found = json.loads(result.stdout)["checks"]
    return result.returncode, {check["check"]: (check["status"], check["message"]) for check in found}


def test_check_asks_the_registry(orders: Orders) -> None:
    code, found = check(orders.flow)
    status, kinds = found["registry"]
    assert (status, re.findall("[A-Z]{2,}", kinds)) == ("ok", ["AVRO", "JSON", "PROTOBUF"])
    assert found["schemas"][0] == "note"
    orders.produce(*orders.of(0))
    code, found = check(orders.flow)
    assert code == 0, found
    assert re.findall(r"\d+", found["schemas"][1]) == [str(orders.schema_id), "1"]
    assert re.findall(r"\d+", found[f"table {orders.flow.table}"][1]) == ["10"]
    code, found = check(reading_avro(orders.flow, "http://127.0.0.1:9"))
    assert (code, found["registry"][0], found["schemas"][0]) == (3, "unreachable", "skipped")


def test_a_registry_password_is_read_where_the_connection_is_opened(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = reading_avro(orders.flow, orders.registry.url, **{"basic.auth.user.info": "${ENV:CALVE_TEST_REGISTRY}"})
    orders.produce(*orders.of(0))
    monkeypatch.delenv("CALVE_TEST_REGISTRY", raising=False)
    with raises(Code.UNSET_VARIABLE, "basic.auth.user.info", "CALVE_TEST_REGISTRY"):
        secret.run()
    monkeypatch.setenv("CALVE_TEST_REGISTRY", "ada:s3cret")
    secret.run()
    assert secret.ids() == [0]
    shown = calve("config", secret.pipeline.path).stdout
    assert "CALVE_TEST_REGISTRY" in shown
    assert "s3cret" not in shown


def test_plain_avro_is_read_with_the_schema_of_a_file(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, spark: SparkSession
) -> None:
    value = {"type": "avro", "schema": "order.avsc"}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create={}, extra={"source": {"value": value}})
    flow.files.mkdir(parents=True)
    (flow.files / "order.avsc").write_text(json.dumps(ORDER))
    produce(broker.bootstrap, flow.topic, [plain(ORDER, order(0)), b"\x02", plain(ORDER, order(1, text=None))])
    flow.run()
    assert flow.spark_ids(spark) == [0, 1]
    [letter] = flow.rows(flow.pipeline.dead_letter_table)
    assert (letter["offset"], letter["stage"]) == (1, "decode")


@pytest.mark.parametrize(("kind", "values"), [("string", ["", "\N{GRINNING FACE}"]), ("bytes", [b"", b"\0\xff"])])
def test_values_are_stored_as_they_are(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, spark: SparkSession, kind: str, values: list[Any]
) -> None:
    flow = Flow.create(
        tmp_path, broker.bootstrap, kafka_topic(1), auto_create={}, extra={"source": {"value": {"type": kind}}}
    )
    produce(broker.bootstrap, flow.topic, [*values, None, b"\xff"])
    flow.run()
    rows = spark.sql(f"SELECT value FROM {flow.attached(spark)}.{flow.table} ORDER BY _kafka.offset").collect()
    whole = [*values, b"\xff"] if kind == "bytes" else values
    assert [bytes(r["value"]) if kind == "bytes" else r["value"] for r in rows] == whole
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert [(row["offset"], "UTF-8" in row["error"]) for row in letters] == ([] if kind == "bytes" else [(3, True)])
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()
