"""From records to files of every table: what is stored, what is set aside, and that it all adds up."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.loop.engine import InProcess
from calve.sink_core.sink.loop.writing import task_spec, write_batch
from calve.sink_core.tables.batch import BatchPlan, WrittenBatch
from calve.sink_core.tables.log.events import DataWritten
from calve.spark_jobs.engine import SparkEngine
from tests.codes import raises, says
from tests.pipelines import Flow, record
from tests.support import Produce, TopicFactory, produce
from tests.warm_spark import WarmSpark

COLUMNS = {"id": "long", "text": "string"}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


def write(flow: Flow, *tasks: tuple[OffsetRange, ...], engine: SparkEngine | None = None) -> WrittenBatch:
    """A batch of the given tasks, written and not published; each partition's slices are contiguous from 0."""
    ends: dict[TopicPartition, int] = {}
    for part in (part for task in tasks for part in task):
        ends[part.at] = max(part.end, ends.get(part.at, 0))
    ranges = tuple(OffsetRange(at.topic, at.partition, 0, end) for at, end in sorted(ends.items()))
    plan = BatchPlan("b1", "b0", ranges, tasks, {at.topic: "id" for at in ends}, 1_717_149_600_000, 1)
    return write_batch(plan, pipeline=flow.pipeline, tables=flow.loaded(), engine=engine or InProcess(2))


def outputs(written: WrittenBatch) -> dict[str, int]:
    return {output.table: output.rows for output in written.tables}


def test_each_record_becomes_a_row_that_knows_where_it_came_from(flow: Flow) -> None:
    flow.produce(range(10))
    flow.produce(range(10, 15), partition=1)
    flow.run()
    rows = sorted(flow.rows(), key=lambda row: row["id"])
    assert [row["text"] for row in rows] == [f"n{i}" for i in range(15)]
    origins = [(row["_kafka"]["topic"], row["_kafka"]["partition"], row["_kafka"]["offset"]) for row in rows]
    assert origins == [(flow.topic, 0, i) for i in range(10)] + [(flow.topic, 1, i) for i in range(5)]
    assert all(row["_kafka"]["timestamp"] is not None for row in rows)


def test_bad_records_and_tombstones_are_set_aside_and_counted(flow: Flow, produce: Produce) -> None:
    values = [record(0), b"{", None, b'{"id": "x"}', record(1), b'{"id": 2}{"id": 3}', None, record(4)]
    produce(flow.topic, values, keys=[f"k{i}" for i in range(8)], timestamps=range(1_000, 1_008))
    flow.run()
    assert flow.ids() == [0, 1, 4]
    letters = sorted(flow.rows(flow.pipeline.dead_letter_table), key=lambda row: row["offset"])
    assert [(row["offset"], row["stage"], row["key"], row["value"]) for row in letters] == [
        (1, "decode", b"k1", values[1]),
        (3, "fit", b"k3", values[3]),
        (5, "decode", b"k5", values[5]),
    ]
    assert "id" in letters[1]["error"]
    [ledger] = [row for row in flow.rows(flow.pipeline.ledger_table) if row["records"]]
    assert (ledger["records"], ledger["gaps"], ledger["tombstones"], ledger["dead_lettered"]) == (8, 0, 2, 3)
    assert dict(ledger["written"]) == {flow.table: 3}
    assert ledger["value_bytes"] == sum(len(value or b"") for value in values) + 8 * 2
    assert ledger["max_timestamp"].timestamp() == 1.007


def test_a_record_that_is_bad_for_one_table_goes_to_none(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    tables = ("db.strict", "db.loose")
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(), tables=tables)
    strict = {"name": tables[0], "auto_create": {"columns": {"id": "int"}}}
    loose = {"name": tables[1], "auto_create": {"columns": {"id": "long", "more": "map<string, long>"}}}
    flow = flow.but(extra={"tables": [strict, loose]})
    produce(
        broker.bootstrap,
        flow.topic,
        [b'{"id": 1}', b'{"id": 4294967296}', b'{"id": 3, "more": {"a": 1.5}}', b'{"id": 4}'],
    )
    flow.run()
    assert [flow.ids(table) for table in tables] == [[1, 4], [1, 4]]
    letters = sorted(flow.rows(flow.pipeline.dead_letter_table), key=lambda row: row["offset"])
    assert [row["error"].partition(":")[0] for row in letters] == ["db.strict", "db.loose"]


def test_stop_on_a_bad_record_names_it_and_publishes_nothing(flow: Flow, produce: Produce) -> None:
    flow.produce(range(3))
    flow.run()
    before = flow.positions()
    produce(flow.topic, [record(3), b'{"id": true}'])
    stopping = flow.but(extra={"on_bad_record": "stop"})
    with raises(Code.BAD_RECORD, f"{flow.topic}[0]", 4, "id", "on_bad_record: dead_letter"):
        stopping.run()
    assert flow.positions() == before
    assert flow.ids() == [0, 1, 2]


def test_too_many_bad_records_stop_the_batch(flow: Flow, produce: Produce) -> None:
    flow.produce(range(3))
    flow.run()
    before, files = flow.positions(), flow.events(DataWritten)
    produce(flow.topic, [record(3), record(4), b"bad", b"worse"])
    limited = flow.but(extra={"dead_letters": {"stop_above": "49%"}})
    with raises(Code.TOO_MANY_BAD, 2, 4, "50.00%", "49.00%", f"{flow.topic}[0]", 5, "dead_letters.stop_above"):
        limited.run()
    assert (flow.positions(), flow.events(DataWritten), flow.ids()) == (before, files, [0, 1, 2])
    assert flow.rows(flow.pipeline.dead_letter_table) == []
    flow.but(extra={"dead_letters": {"stop_above": "50%"}}).run()
    assert flow.ids() == [0, 1, 2, 3, 4]
    assert [row["offset"] for row in flow.rows(flow.pipeline.dead_letter_table)] == [5, 6]


def test_a_partition_split_over_tasks_has_one_count_and_no_row_twice(flow: Flow) -> None:
    flow.produce(range(100))
    tasks = (
        (OffsetRange(flow.topic, 0, 0, 30),),
        (OffsetRange(flow.topic, 0, 30, 31),),
        (OffsetRange(flow.topic, 0, 31, 100),),
    )
    written = write(flow, *tasks)
    [counts] = written.counts
    assert (counts.start, counts.end, counts.records, counts.gaps, counts.written) == (
        0,
        100,
        100,
        0,
        {flow.table: 100},
    )
    assert outputs(written) == {flow.table: 100, flow.pipeline.ledger_table: 1, flow.pipeline.dead_letter_table: 0}
    assert [len(output.manifests) for output in written.tables if output.table == flow.table] == [1]


def test_partitions_that_do_not_move_have_no_row_in_the_ledger(flow: Flow) -> None:
    flow.produce(range(3))
    written = write(flow, (OffsetRange(flow.topic, 0, 0, 3),))
    assert [(c.partition, c.records) for c in written.counts] == [(0, 3)]


def test_a_table_that_cannot_be_written_is_refused_before_anything_is_read(flow: Flow) -> None:
    flow.produce(range(3))
    flow.run()
    with flow.load_table().transaction() as change:
        change.set_properties({"write.format.default": "avro"})
    with raises(Code.NOT_PARQUET, flow.table, "write.format.default", "avro"):
        write(flow, (OffsetRange(flow.topic, 0, 0, 3),))


def test_what_travels_to_the_executors_holds_no_secret(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_TEST_SECRET", "s3cret-value")
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(), kafka={"sasl.password": "${ENV:CALVE_TEST_SECRET}"})
    flow.produce(range(3))
    assert outputs(write(flow, (OffsetRange(flow.topic, 0, 0, 3),)))[flow.table] == 3
    spec = task_spec("b1", flow.pipeline, flow.loaded(), instant_ms=0)
    assert b"s3cret-value" not in pickle.dumps(spec)
    assert "CALVE_TEST_SECRET" not in repr(spec)


def test_spark_runs_tasks_in_order_and_brings_our_errors_back(spark: SparkSession) -> None:
    with SparkEngine(SparkSettings(master="local[2]")) as engine:
        assert engine.parallelism() == 2
        assert engine.run(str, 20) == [str(i) for i in range(20)]
        assert engine.run(str, 0) == []

        def fail(number: int) -> None:
            if number < 2:
                return
            raise FindingError("lost", f"t[{number}]", stored="5", found="7", hint="calve resolve")

        with raises(Code.FINDING) as caught:
            engine.run(fail, 4)
    assert (caught.value.subject, caught.value.stored, caught.value.hint) == ("t[2]", "5", "calve resolve")


CHILD = """
import json, sys
from pathlib import Path
from calve.sink_core.config.load import load
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from calve.spark_jobs.engine import SparkEngine

pipeline = load(Path(sys.argv[1]))
with SparkEngine(pipeline.spark) as engine, Session.open(pipeline, engine=engine) as session:
    report = run_pipeline(session)
print(json.dumps([[batch.records, batch.rows] for batch in report.batches]))
"""


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_a_run_on_spark_leaves_rows_in_the_table_and_nothing_on_the_terminal(
    tmp_path: Path,
    broker: Broker,
    kafka_topic: TopicFactory,
    spark: SparkSession,
    warm_spark: WarmSpark,
    kind: str,
) -> None:
    place, properties = {"master": "local[2]", "driver_memory": "512MiB"}, {}
    if kind == "connect":
        place = warm_spark.settings
        # Through Spark's shuffle, for which most of it is asked.
        properties = {"write.distribution-mode": "range"}
    flow = Flow.create(
        tmp_path,
        broker.bootstrap,
        kafka_topic(3),
        auto_create={
            "columns": COLUMNS,
            "partition_by": ["bucket(2, id)", "day(_kafka.timestamp)"],
            "properties": properties,
        },
        extra={"batch": {"min_task_bytes": "1KiB"}},
        spark={**place, "conf": {"spark.sql.shuffle.partitions": "2"}},
    )
    for partition in range(3):
        flow.produce(range(partition * 1_000, partition * 1_000 + 700), partition=partition)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(flow.pipeline.path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")
    [[records, rows]] = json.loads(done.stdout)
    assert (records, rows[flow.table]) == (2_100, 2_100)
    expected = [i for partition in range(3) for i in range(partition * 1_000, partition * 1_000 + 700)]
    assert flow.ids() == expected
    assert flow.spark_ids(spark) == expected


def test_spark_reads_what_the_metrics_say(flow: Flow, spark: SparkSession) -> None:
    flow.produce(range(500))
    flow.run()
    table = f"{flow.attached(spark)}.{flow.table}"
    assert spark.sql(f"SELECT count(*) c FROM {table} WHERE id >= 490").collect()[0]["c"] == 10
    [file] = spark.sql(f"SELECT record_count, readable_metrics.id.upper_bound AS top FROM {table}.files").collect()
    assert (file["record_count"], file["top"]) == (500, 499)


def test_a_calve_error_survives_its_journey() -> None:
    sent = FindingError("lost", "t", stored="5", found="7", hint="do")
    error = pickle.loads(pickle.dumps(sent))  # noqa: S301
    assert isinstance(error, CalveError)
    assert (type(error), str(error), error.code) == (FindingError, str(sent), sent.code)
    says(str(error), Code.FINDING, "lost", "t", 5, 7, "do")
