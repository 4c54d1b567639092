"""Producers change their records mid-stream: tables follow once per batch, and nothing is lost or null that was not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DoubleType, LongType
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.records.columns.type_text import type_text
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.sink.range_jobs.selected import Wanted
from calve.sink_core.sink.verify.proof import verify
from tests.pipelines import Died, Flow, reached
from tests.schema_registry import SchemaRegistry, framed
from tests.schema_registry import plain as plain_avro
from tests.support import Produce, TopicFactory
from tests.support import produce as produce_to

ALL = ["add_column", "widen", "make_optional"]
COLUMNS = {"id": "int", "text": "string", "at": "struct<x: float>"}


def flow_with(tmp_path: Path, broker: Broker, topic: str, evolve: list[str] = ALL) -> Flow:
    return Flow.create(
        tmp_path,
        broker.bootstrap,
        topic,
        auto_create={"columns": COLUMNS},
        extra={"table_defaults": {"evolve": evolve}},
    )


def send(flow: Flow, produce: Produce, *records: dict[str, Any], partition: int = 0) -> None:
    produce(flow.topic, [json.dumps(record).encode() for record in records], partition=partition)


def columns(flow: Flow) -> dict[str, str]:
    return {f.name: type_text(f.field_type) for f in flow.load_table().schema().fields if f.name != "_kafka"}


def files_of_head(flow: Flow) -> list[int]:
    """Rows of each data file that the newest snapshot added."""
    table = flow.load_table()
    head = table.current_snapshot()
    assert head is not None
    entries = table.inspect.entries().to_pylist()
    return [e["data_file"]["record_count"] for e in entries if e["snapshot_id"] == head.snapshot_id]


def plain(flow: Flow) -> list[dict[str, Any]]:
    """Rows without `_kafka` and what is null, as the records were."""
    rows = sorted(flow.rows(), key=lambda row: row["id"])
    return [_without_nulls({name: value for name, value in row.items() if name != "_kafka"}) for row in rows]


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    there = {name: value for name, value in row.items() if value is not None}
    return {name: _without_nulls(value) if isinstance(value, dict) else value for name, value in there.items()}


def test_a_producer_adds_widens_and_renames_in_the_middle_of_a_batch(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce, spark: SparkSession
) -> None:
    flow = flow_with(tmp_path, broker, kafka_topic(2))
    old = [{"id": i, "text": f"n{i}", "at": {"x": 0.5}} for i in range(50)]
    send(flow, produce, *old)
    flow.run()
    newer = [
        *({"id": i, "text": f"n{i}", "at": {"x": 0.5}} for i in range(50, 100)),
        *({"id": i, "text": f"n{i}", "at": {"x": 0.5, "y": 1}, "tags": ["a"]} for i in range(100, 150)),
        *({"id": 2**31 + i, "text": f"n{i}", "at": {"x": 1e39, "y": 1.5}} for i in range(50)),
        *({"id": 2**32 + i, "label": f"n{i}"} for i in range(50)),
    ]
    send(flow, produce, *newer[:120])
    send(flow, produce, *newer[120:], partition=1)
    flow.run()
    assert columns(flow) == {
        "id": "long",
        "text": "string",
        "at": "struct<x: double, y: double>",
        "tags": "list<string>",
        "label": "string",
    }
    assert plain(flow) == [*old, *newer]
    assert flow.rows(flow.pipeline.dead_letter_table) == []
    assert sum(files_of_head(flow)) == len(newer)
    assert len(files_of_head(flow)) <= 2
    assert len(flow.load_table().schemas()) == 2
    assert flow.spark_ids(spark) == sorted(row["id"] for row in [*old, *newer])
    with flow.session() as session:
        assert verify(session, deep=True).proven


def test_an_avro_producer_adds_widens_and_makes_optional_in_the_middle_of_a_batch(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, registry: SchemaRegistry, spark: SparkSession
) -> None:
    flow = flow_with(tmp_path, broker, kafka_topic(2)).but(
        auto_create={},
        registry={"main": {"url": registry.url, "retries.wait.ms": 10}},
        extra={
            "table_defaults": {"evolve": ALL},
            "source": {"value": {"type": "avro", "registry": "main"}},
        },
    )
    first = _order(("id", "int"), ("text", "string"), x="float")
    wider = _order(("id", "long"), ("text", "string"), x="double")
    newest = _order(
        ("id", "long"), ("text", ["null", "string"]), ("tags", {"type": "array", "items": "string"}), x="double"
    )
    numbers = [registry.register(f"{flow.topic}-value", schema) for schema in (first, wider, newest)]

    def send_all(records: list[tuple[int, dict[str, Any]]], partition: int = 0) -> None:
        schemas = (first, wider, newest)
        values = [framed(numbers[i], plain_avro(schemas[i], record)) for i, record in records]
        produce_to(flow.bootstrap, flow.topic, values, partition=partition)

    old: list[dict[str, Any]] = [{"id": i, "text": f"n{i}", "at": {"x": 0.5}} for i in range(50)]
    send_all([(0, record) for record in old])
    flow.run()
    schema = flow.load_table().schema()
    assert [schema.find_field(name).required for name in ("id", "text", "at.x")] == [True, True, True]
    newer: list[tuple[int, dict[str, Any]]] = [
        *((0, {"id": i, "text": f"n{i}", "at": {"x": 0.5}}) for i in range(50, 100)),
        *((1, {"id": 2**31 + i, "text": f"n{i}", "at": {"x": 1e39}}) for i in range(50)),
        *((2, {"id": 2**32 + i, "text": None, "at": {"x": 1.5}, "tags": ["a"]}) for i in range(50)),
        # The producers are not changed all at once.
        *((0, {"id": i, "text": f"n{i}", "at": {"x": 0.5}}) for i in range(100, 150)),
    ]
    send_all(newer[:120])
    send_all(newer[120:], partition=1)
    flow.run()
    assert columns(flow) == {"id": "long", "text": "string", "at": "struct<x: double>", "tags": "list<string>"}
    schema = flow.load_table().schema()
    assert [schema.find_field(name).required for name in ("id", "text", "at.x", "tags")] == [True, False, True, False]
    everything = sorted([*old, *(record for _, record in newer)], key=lambda record: record["id"])
    assert plain(flow) == [_without_nulls(record) for record in everything]
    assert flow.rows(flow.pipeline.dead_letter_table) == []
    # One change for the batch, and no files of a few rows on the way.
    assert len(flow.load_table().schemas()) == 2
    assert sum(files_of_head(flow)) == len(newer)
    assert len(files_of_head(flow)) <= 2
    table = f"{flow.attached(spark)}.{flow.table}"
    found = spark.sql(f"SELECT id, text, at.x, tags FROM {table} ORDER BY id").collect()
    assert [(row["id"], row["text"], row["x"], row["tags"]) for row in found] == [
        (record["id"], record["text"], record["at"]["x"], record.get("tags")) for record in everything
    ]
    with flow.session() as session:
        assert verify(session, deep=True).proven


def _order(*fields: tuple[str, Any], x: str) -> dict[str, Any]:
    at = {"type": "record", "name": "At", "fields": [{"name": "x", "type": x}]}
    members = [*({"name": name, "type": kind} for name, kind in fields), {"name": "at", "type": at}]
    return {"type": "record", "name": "Order", "fields": members}


def test_what_fits_in_no_way_is_set_aside_and_changes_nothing(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = flow_with(tmp_path, broker, kafka_topic(1))
    send(flow, produce, {"id": "x", "new": 1}, {"id": 1}, {"id": 2**70})
    flow.run()
    assert columns(flow) == COLUMNS
    letters = sorted(flow.rows(flow.pipeline.dead_letter_table), key=lambda row: row["offset"])
    assert [row["offset"] for row in letters] == [0, 2]
    assert all("id" in row["error"] for row in letters)


def test_plan_shows_what_a_sample_of_the_waiting_records_would_change(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = flow_with(tmp_path, broker, kafka_topic(1))
    send(flow, produce, {"id": 1})
    flow.run()
    send(flow, produce, {"id": 2**31, "new": 1})
    told = CliRunner().invoke(app, ["plan", str(flow.pipeline.path)])
    assert {"id", "int", "long", "new"} <= set(re.findall(r"\w+", told.stdout))
    document = json.loads(CliRunner().invoke(app, ["plan", str(flow.pipeline.path), "--json"]).stdout)
    changes = document["batch"]["schema_changes"]
    assert changes["sampled_records"] == 1
    [(table, (widened, added))] = changes["tables"].items()
    assert table == flow.table
    assert {"id", "int", "long"} <= set(widened.split())
    assert {"new", "long"} <= set(added.split())
    assert columns(flow) == COLUMNS


def test_killed_after_the_change_the_next_run_goes_on(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = flow_with(tmp_path, broker, kafka_topic(1))
    send(flow, produce, {"id": 1, "new": 1})

    def die() -> None:
        raise Died

    with pytest.raises(Died), reached("evolve.after-change", die):
        flow.run()
    assert "new" in columns(flow)
    assert flow.rows() == []
    flow.run()
    assert plain(flow) == [{"id": 1, "new": 1}]
    assert len(flow.load_table().schemas()) == 2


def test_somebody_else_makes_a_part_of_the_change_first(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = flow_with(tmp_path, broker, kafka_topic(1))
    flow.run()
    send(flow, produce, {"id": 2**31, "new": 1, "theirs": 1.5})

    def same_change_and_a_spec() -> None:
        table = flow.load_table()
        with table.update_schema() as schema:
            schema.add_column("theirs", DoubleType())
            schema.update_column("id", LongType())
        with table.update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "id_bucket")

    # Between load and swap of the change.
    with reached("evolve.before-change", same_change_and_a_spec):
        flow.run()
    assert plain(flow) == [{"id": 2**31, "new": 1, "theirs": 1.5}]
    assert list(columns(flow)) == ["id", "text", "at", "theirs", "new"]
    assert [row["spec_id"] for row in flow.load_table().inspect.files().to_pylist()] == [1]


def test_range_jobs_and_dead_letters_give_tables_what_they_need_too(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    before = flow_with(tmp_path, broker, kafka_topic(1), evolve=[])
    send(before, produce, {"id": 1, "new": "x"}, {"id": 2**31})
    before.run()
    assert plain(before) == [{"id": 1}]
    flow = before.but(extra={"table_defaults": {"evolve": ALL}})
    with flow.session() as session:
        session.bind()
        assert DeadLetterJobs(session).replay().moved == 1
        assert plain(flow) == [{"id": 1}, {"id": 2**31}]
        first = OffsetRange(flow.topic, 0, 0, 1)
        report = RangeJobs(session).replay(flow.table, Wanted(ranges=(first,)))
    assert report.replaced == 1
    assert plain(flow) == [{"id": 1, "new": "x"}, {"id": 2**31}]
    with flow.session() as session:
        assert verify(session, deep=True).proven
