"""`mode: upsert` from Kafka to what Spark and ClickHouse read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.dagster.sink.metadata import of_commit
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.sink.batches import Ingest
from calve.sink_core.sink.dead_letters.choice import CHANGING
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.sink.range_jobs.selected import Wanted
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_chdb, by_spark
from tests.codes import raises
from tests.launch import calve
from tests.pipelines import Flow
from tests.resolving import refused
from tests.support import Produce, TopicFactory

PARTITIONS = 3
State = dict[int, str]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    table = {"name": "db.events", "mode": "upsert", "key": ["id"]}
    created = {"columns": {"id": "long", "text": "string"}}
    extra = {"tables": [{**table, "auto_create": created}], "batch": {"min_task_bytes": "1KiB", "max_records": 400}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(PARTITIONS), extra=extra)


def put(key: int, text: str) -> tuple[bytes, bytes]:
    return str(key).encode(), json.dumps({"id": key, "text": text}).encode()


def drop(key: int) -> tuple[bytes, None]:
    return str(key).encode(), None


def send(flow: Flow, produce: Produce, *records: tuple[bytes, bytes | None], partition: int = 0) -> None:
    produce(flow.topic, [value for _, value in records], partition=partition, keys=[key for key, _ in records])


def check(flow: Flow, spark: SparkSession, state: State) -> None:
    """Both readers have the dictionary's rows, and nothing speaks against the ledger."""
    wanted = sorted(state.items())
    name = f"{flow.attached(spark)}.{flow.table}"
    assert sorted((row["id"], row["text"]) for row in by_spark(spark, name)) == wanted
    assert sorted((row["id"], row["text"]) for row in by_chdb(flow.load_table())) == wanted
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_the_table_is_the_dictionary_whatever_batches_and_tasks_changes_fall_into(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    # Several batches, of several tasks each.
    flow = flow.but(extra={**flow.extra, "batch": {"min_task_bytes": "1KiB", "max_records": 150}})
    chance, state = random.Random(8), State()
    waiting: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(PARTITIONS)]
    for number in range(300):
        # Most changes come in one partition, which several tasks read.
        key = chance.choice([chance.randrange(0, 60, PARTITIONS), chance.randrange(60)])
        if chance.random() < 0.25:
            waiting[key % PARTITIONS].append(drop(key))
            state.pop(key, None)
        else:
            state[key] = f"t{number}" + "x" * chance.randrange(30)
            waiting[key % PARTITIONS].append(put(key, state[key]))
    for partition, records in enumerate(waiting):
        send(flow, produce, *records, partition=partition)
    assert flow.run(engine).batches
    check(flow, spark, state)
    ledger = [row for row in flow.rows(flow.pipeline.ledger_table) if row["records"]]
    assert sum(row["records"] for row in ledger) == 300
    assert all(dict(row["written"])[flow.table] + row["tombstones"] == row["records"] for row in ledger)


def publish(flow: Flow, engine: SparkEngine) -> None:
    """A batch that waits for its commit."""
    with flow.session(engine) as session:
        ingest = Ingest(session)
        ingest.bind()
        ingest.prepare()
        assert ingest.next_batch()


def test_a_key_in_two_partitions_stops_before_anything_is_published(
    flow: Flow, produce: Produce, engine: SparkEngine
) -> None:
    send(flow, produce, put(1, "a"), put(2, "a"))
    send(flow, produce, drop(1), partition=1)
    with raises(Code.KEY_IN_TWO_PARTITIONS, "db.events", 1, "[0]", "[1]"):
        flow.run(engine)
    assert flow.load_table().current_snapshot() is None


def test_tombstones_that_name_no_row_are_dead_letters(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    produce(flow.topic, [None, None, None, put(4, "a")[1]], keys=["x", None, '{"id": 5}', "4"])
    flow.run(engine)
    letters = sorted((row["offset"], row["error"], row["value"]) for row in flow.rows(flow.pipeline.dead_letter_table))
    assert [(offset, value) for offset, _, value in letters] == [(0, None), (1, None)]
    assert letters[0][1] != letters[1][1], "a key that can't be read, and none"
    check(flow, spark, {4: "a"})
    with flow.session() as session:
        session.bind()
        report = DeadLetterJobs(session).replay()
    assert (report.left, report.still_bad) == ({CHANGING.format(flow.table): 2}, 0)


def test_a_poisoned_change_holds_up_neither_its_table_nor_another(
    flow: Flow, produce: Produce, kafka_topic: TopicFactory
) -> None:
    other = kafka_topic(1)
    [table] = flow.extra["tables"]
    tables = [{**table, "topics": [flow.topic]}, {**table, "name": "db.others", "topics": [other]}]
    flow = flow.but(extra={**flow.extra, "source": {"topics": [flow.topic, other]}, "tables": tables})
    for topic in (flow.topic, other):
        good = [put(1, "a"), put(2, "b"), put(1, "c")]
        bad = [(b"3", b"{broken"), (b"", b'{"text": "no key"}'), (b"4", b'{"id": "x", "text": ""}')]
        records = [each for pair in zip(good, bad, strict=True) for each in pair]
        produce(topic, [value for _, value in records], keys=[key for key, _ in records])
    assert flow.run().ended == "caught up"
    for name in (flow.table, "db.others"):
        assert sorted((row["id"], row["text"]) for row in by_chdb(flow.load_table(name))) == [(1, "c"), (2, "b")]
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert sorted((row["topic"], row["offset"]) for row in letters) == sorted(
        (topic, offset) for topic in (flow.topic, other) for offset in (1, 3, 5)
    )
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def test_where_deletes_stand_beside_rows_these_are_not_counted_and_a_lost_delete_file_is_a_violation(
    flow: Flow, produce: Produce, engine: SparkEngine
) -> None:
    for text in "ab":
        send(flow, produce, put(1, text))
        report = flow.run(engine)
    [landed] = [commit for commit in report.commits[-1].landed if commit.table == flow.table]
    assert landed.total_rows is None
    assert "dagster/row_count" not in of_commit(landed, 0)
    with flow.session() as session:
        rows = {table.table: table.rows for table in status(session).tables}
    assert (rows[flow.table], rows[flow.pipeline.ledger_table]) == (None, 2)
    assert f"{flow.table}\t?\t" in calve("status", flow.pipeline.path).stdout
    gone = flow.load_table().inspect.delete_files()["file_path"].to_pylist()[0]
    Path(gone.removeprefix("file://")).unlink()
    with flow.session() as session:
        session.bind()
        (violation,) = verify(session, deep=False).violations
    assert (violation.kind, gone in violation.message) == ("file-missing", True)


def test_what_would_put_old_records_over_newer_ones_is_refused(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    send(flow, produce, put(1, "a"))
    flow.run(engine)
    send(flow, produce, put(1, "b"), put(2, "b"))
    flow.run(engine)
    first = flow.own_snapshots()[0][0]
    with flow.session() as session:
        session.bind()
        jobs = RangeJobs(session)
        for again in (jobs.refill, jobs.history, lambda table: jobs.replay(table, Wanted())):
            with raises(Code.CHANGES_READ_AGAIN, of=TableUnusable):
                again(flow.table)
    catalog = flow.attached(spark)
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{flow.table}', {first})").collect()
    tagged = flow.own_snapshots()[-1][0]
    refused(flow, "table-rolled-back", "recommit", Code.NOT_POSSIBLE, tagged)
    spark.sql(f"CALL {catalog}.system.set_current_snapshot('{flow.table}', {tagged})").collect()
    send(flow, produce, drop(2))
    flow.run(engine)
    check(flow, spark, {1: "b"})


def test_soft_deletes_keep_the_row_of_a_tombstone_with_a_mark(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = flow.but(extra={"tables": [{**flow.extra["tables"][0], "deletes": "soft"}]})
    send(flow, produce, put(1, "a"), put(2, "a"), put(3, "a"), drop(3), put(3, "b"))
    flow.run(engine)
    send(flow, produce, drop(1), drop(9))
    flow.run(engine)
    found = by_spark(spark, f"{flow.attached(spark)}.{flow.table}")
    wanted = [(1, None, True), (2, "a", False), (3, "b", False), (9, None, True)]
    assert sorted((row["id"], row["text"], row["_is_deleted"]) for row in found) == wanted
    assert {row["id"]: row["_kafka"]["offset"] for row in found} == {1: 5, 2: 1, 3: 4, 9: 6}
