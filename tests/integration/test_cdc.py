"""`mode: cdc` with change events of Debezium and DMS, from Kafka to what Spark reads."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.schema_preview import schema_preview
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_spark
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry, framed, plain
from tests.support import Produce, TopicFactory

PARTITIONS = 2
TABLE = {"name": "db.events", "mode": "cdc", "key": ["id"]}
State = dict[int, str]

KEY = {"type": "record", "name": "Key", "namespace": "pg.t", "fields": [{"name": "id", "type": "long"}]}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"], "default": None}],
}
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"], "default": None}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "pg.t",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
"""As Debezium's Avro has it with Confluent's converter."""


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    extra = {"tables": [{**TABLE, "auto_create": {}}], "batch": {"min_task_bytes": "1KiB"}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(PARTITIONS), extra=extra)


def event(op: str, before: State, after: State, lsn: int) -> bytes:
    sides = ([{"id": key, "text": text} for key, text in side.items()] for side in (before, after))
    old, new = (rows[0] if rows else None for rows in sides)
    return json.dumps({"before": old, "after": new, "op": op, "source": {"lsn": lsn}, "ts_ms": 5}).encode()


def changes(chance: random.Random, state: State, number: int, first: int) -> list[bytes]:
    """Events of random changes of the state, one in eight of a row's key."""
    events: list[bytes] = []
    for lsn in range(first, first + number):
        key = chance.randrange(30)
        if key not in state:
            state[key] = f"t{lsn}"
            events.append(event("c", {}, {key: state[key]}, lsn))
        elif chance.random() < 0.25:
            events.append(event("d", {key: state.pop(key)}, {}, lsn))
        else:
            free = [other for other in range(30) if other not in state]
            new = chance.choice(free) if free and chance.random() < 0.15 else key
            before = {key: state.pop(key)}
            state[new] = f"t{lsn}"
            events.append(event("u", before, {new: state[new]}, lsn))
    return events


def check(flow: Flow, spark: SparkSession, wanted: State) -> list[dict[str, Any]]:
    """Spark has the dictionary's rows, and nothing speaks against the ledger."""
    rows = by_spark(spark, f"{flow.attached(spark)}.{flow.table}")
    there = [row for row in rows if not row.get("_is_deleted")]
    assert sorted((row["id"], row["text"]) for row in there) == sorted(wanted.items())
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()
    return rows


def test_the_table_is_the_source_table_and_all_else_is_counted(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    chance, state = random.Random(3), State()
    produce(flow.topic, [*changes(chance, state, 120, 0), None, b'{"ts_ms": 5}'], partition=0)
    flow.run(engine)
    check(flow, spark, state)
    broken = [b'{"op": "x", "ts_ms": 5}', event("u", {}, {1: "__debezium_unavailable_value"}, 1)]
    produce(flow.topic, [*changes(chance, state, 120, 200), *broken, b'{"status": "END", "id": "1"}'], partition=0)
    (batch,) = flow.run(engine).batches
    assert (batch.dead_lettered, batch.filtered, batch.tombstones, batch.rows[flow.table]) == (2, 1, 0, 120)
    letters = sorted(flow.rows(flow.pipeline.dead_letter_table), key=lambda row: row["offset"])
    of_op, of_value = (row["error"] for row in letters)
    assert "op 'x'" in of_op
    assert [part in of_value for part in ("after.text", "__debezium_unavailable_value")] == [True, True]
    check(flow, spark, state)


def test_events_in_any_order_and_partition_give_the_source_table_with_their_order(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    ordered = {**flow.extra["tables"][0], "order_by": "source.lsn", "deletes": "soft"}
    flow = flow.but(extra={**flow.extra, "tables": [ordered]})
    chance, state = random.Random(4), State()
    events = changes(chance, state, 160, 0)
    shuffled = chance.sample(events, len(events))
    for part in (shuffled[:80], shuffled[80:], chance.sample(events, 40)):
        for partition in range(PARTITIONS):
            produce(flow.topic, part[partition::PARTITIONS], partition=partition)
        flow.run(engine)
    rows = check(flow, spark, state)
    assert {row["_is_deleted"] for row in rows} == {True, False}
    assert all(row["_order"] is not None for row in rows)


def dms(operation: str, row: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    image = {} if before is None else {"before-image": before}
    return {"data": row, "metadata": {"record-type": "data", "operation": operation, "table-name": "t"}, **image}


def test_rows_with_an_operation_beside_them_give_the_source_table(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = flow.but(extra={**flow.extra, "tables": [{**flow.extra["tables"][0], "op_field": "Op"}]})
    said = [("I", 1, "a"), ("I", 2, "a"), ("I", 3, "a"), ("U", 1, "b"), ("D", 2, "a"), ("?", 3, "c")]
    produce(flow.topic, [json.dumps({"Op": op, "id": key, "text": text}) for op, key, text in said])
    (batch,) = flow.run(engine).batches
    assert (batch.dead_lettered, batch.rows[flow.table]) == (1, 5)
    check(flow, spark, {1: "b", 3: "a"})
    assert [field.name for field in flow.load_table().schema().fields] == ["id", "text", "_kafka"]


def test_the_table_gets_the_columns_that_rows_get(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    created = {"columns": {"id": "long", "text": "string", "n": "int"}}
    evolving = {**flow.extra["tables"][0], "evolve": ["add_column", "widen"], "auto_create": created}
    flow = flow.but(extra={**flow.extra, "tables": [evolving]})

    def of(op: str, row: dict[str, Any], before: dict[str, Any] | None = None) -> bytes:
        return json.dumps({"before": before, "after": row, "op": op, "source": {"lsn": 1}, "ts_ms": 5}).encode()

    produce(flow.topic, [of("c", {"id": key, "text": "a", "n": 1}) for key in (1, 2, 3)])
    flow.run(engine)
    schemas = len(flow.load_table().schemas())
    gone = {"id": 3, "text": "a", "n": 1, "never": 1}
    produce(
        flow.topic,
        [
            of("u", {"id": 1, "text": "b", "n": 2**40, "email": "a@b.c"}),
            json.dumps({"before": gone, "after": None, "op": "d", "source": {"lsn": 1}}).encode(),
        ],
    )
    with flow.session() as session:
        session.bind()
        planned = Planner(session, max_tasks=1).preview()
        assert planned
        [(table, (widened, added))] = schema_preview(session, planned).changes.items()
    assert table == flow.table
    assert {"n", "int", "long"} <= set(widened.split())
    assert {"email", "string"} <= set(added.split())
    flow.run(engine)
    found = by_spark(spark, f"{flow.attached(spark)}.{flow.table}")
    rows = sorted((row["id"], row["text"], row["n"], row["email"]) for row in found)
    assert rows == [(1, "b", 2**40, "a@b.c"), (2, "a", 1, None)]
    assert [field.name for field in flow.load_table().schema().fields] == ["id", "text", "n", "_kafka", "email"]
    assert len(flow.load_table().schemas()) == schemas + 1


def test_changes_of_several_source_tables_in_one_topic_go_each_to_its_own(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    tables = [
        {
            "name": f"db.{name}",
            "mode": "cdc",
            "envelope": "dms",
            "key": ["id"],
            "auto_create": {"columns": {"id": "long", "v": kind}},
            "where": {"field": "metadata.table-name", "matches": name},
        }
        for name, kind in (("people", "string"), ("orders", "long"))
    ]
    flow = flow.but(tables=("db.people", "db.orders"), extra={**flow.extra, "tables": tables})

    def of(table: str, message: dict[str, Any]) -> str:
        return json.dumps({**message, "metadata": {**message["metadata"], "schema-name": "s", "table-name": table}})

    truncated = {"control": {}, "metadata": {"record-type": "control", "operation": "truncate-table"}}
    messages = [
        *(of("people", dms("insert", {"id": key, "v": "a"})) for key in (1, 2)),
        # Neither are the same keys those of the same rows, nor fits what the one has the columns of the other.
        *(of("orders", dms("insert", {"id": key, "v": 10 * key})) for key in (1, 2, 3)),
        of("people", dms("delete", {"id": 1})),
        of("orders", dms("update", {"id": 2, "v": 21})),
        of("logs", dms("insert", {"line": "x"})),
        of("logs", truncated),
    ]
    produce(flow.topic, [message.encode() for message in messages])
    (batch,) = flow.run(engine).batches
    assert (batch.dead_lettered, batch.rows["db.people"], batch.rows["db.orders"]) == (0, 3, 4)
    (ledger,) = [row for row in flow.rows(flow.pipeline.ledger_table) if row["records"]]
    assert (ledger["unrouted"], dict(ledger["left_out"])) == (2, {"db.people": 6, "db.orders": 5})
    attached = flow.attached(spark)
    found = {name: {row["id"]: row["v"] for row in by_spark(spark, f"{attached}.{name}")} for name in flow.tables}
    assert found == {"db.people": {2: "a"}, "db.orders": {1: 10, 2: 21, 3: 30}}
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_events_and_keys_in_avro_give_the_source_table_and_their_tombstones_too(
    flow: Flow, registry: SchemaRegistry, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    avro = {"type": "avro", "registry": "main"}
    source = {"key": {**avro, "as": "struct<id: long>"}, "value": avro}
    table = {**flow.extra["tables"][0], "key": "kafka"}
    flow = flow.but(registry={"main": {"url": registry.url}}, extra={"source": source, "tables": [table]})
    of_key = registry.register(f"{flow.topic}-key", KEY)
    of_value = registry.register(f"{flow.topic}-value", ENVELOPE)

    def key(number: int) -> bytes:
        return framed(of_key, plain(KEY, {"id": number}))

    chance, state = random.Random(6), State()
    for first in (0, 100):
        keys, values = list[bytes](), list[bytes | None]()
        for lsn in range(first, first + 100):
            number, text = chance.randrange(20), f"t{lsn}"
            before = {"id": number, "text": state.pop(number)} if number in state else None
            goes = before is not None and chance.random() < 0.3
            after = None if goes else {"id": number, "text": text}
            op = "d" if goes else "u" if before else "c"
            event = {"before": before, "after": after, "op": op, "source": {"lsn": lsn}, "ts_ms": lsn}
            # Compaction has taken some events of deletes, and never their tombstones.
            told = [framed(of_value, plain(ENVELOPE, event))] if not goes or lsn % 2 else []
            values += [*told, None] if goes else told
            keys += [framed(of_key, plain(KEY, {"id": number}))] * (len(values) - len(keys))
            state |= {} if goes else {number: text}
        produce(flow.topic, values, keys=keys)
        flow.run(engine)
        check(flow, spark, state)
    schema = flow.load_table().schema()
    assert [field.name for field in schema.fields] == ["id", "text", "_kafka"]
    assert schema.identifier_field_names() == {"id"}
