"""Whole runs on Spark `local[2]`, from records in Kafka to rows that another reader sees."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from calve.orchestration.cli.output import show_lines
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.control.events import Paused, Resumed
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.sink.run import run_pipeline
from calve.sink_core.tables.log.events import CommitComplete, DataComplete
from calve.spark_jobs.engine import SparkEngine, session_on_spark
from tests import support
from tests.codes import raises
from tests.pipelines import Flow, reached
from tests.support import TIMEOUT_S, TopicFactory

BAD = [
    b"",
    b"{",
    b"[1]",
    b'{"id": "not a number"}',
    b'{"id": 1.5}',
    b'{"id": 2}{"id": 3}',
    b"\xff\xfe",
    b'{"id": 9e99}',
]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    """On the session that is already up."""
    return SparkEngine(SparkSettings(master="local[2]", tasks=2))


def open_transaction(flow: Flow, ids: range) -> Producer:
    """A producer with records on partition 0 in a transaction that is still open."""
    producer = Producer({"bootstrap.servers": flow.bootstrap, "transactional.id": support.unique("tx")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for i in ids:
        producer.produce(flow.topic, json.dumps({"id": i}).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_records_of_every_kind_end_where_they_belong(flow: Flow, engine: SparkEngine, spark: SparkSession) -> None:
    flow = flow.but(extra={"batch": {"max_records": 40}})
    flow.produce(range(50))
    support.produce(flow.bootstrap, flow.topic, [*BAD, None], partition=1, keys=[b"k"] * (len(BAD) + 1))
    flow.produce(range(50, 60), partition=1)
    open_transaction(flow, range(900, 910)).abort_transaction(TIMEOUT_S)
    committed = open_transaction(flow, range(60, 70))
    committed.commit_transaction(TIMEOUT_S)
    support.until_stable(flow.bootstrap, flow.topic)
    report = flow.run(engine)
    assert report.ended == "caught up"
    assert len(report.batches) >= 2
    assert flow.ids() == flow.spark_ids(spark) == list(range(70))
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert sorted((letter["offset"], letter["value"]) for letter in letters) == list(enumerate(BAD))
    assert all(letter["error"] and letter["key"] == b"k" for letter in letters)
    ledger = flow.rows(flow.pipeline.ledger_table)
    sums = {name: sum(row[name] for row in ledger) for name in ("records", "gaps", "tombstones", "dead_lettered")}
    # Ten aborted records, and the markers that end the two transactions.
    assert sums == {"records": 70 + len(BAD) + 1, "gaps": 12, "tombstones": 1, "dead_lettered": len(BAD)}
    assert sum(dict(row["written"])[flow.table] for row in ledger) == 70
    assert sum(row["end_offset"] - row["start_offset"] for row in ledger) == sums["records"] + sums["gaps"]


def test_a_second_run_with_nothing_to_do_writes_nothing(flow: Flow, engine: SparkEngine) -> None:
    flow.produce(range(5))
    flow.run(engine)
    before = [flow.load_table(name).metadata_location for name in flow.pipeline.table_names]
    report = flow.run(engine)
    assert (report.ended, report.batches, report.stopped_early) == ("caught up", [], False)
    assert [flow.load_table(name).metadata_location for name in flow.pipeline.table_names] == before


def test_a_batch_takes_no_more_than_it_may_and_a_run_no_more_batches(flow: Flow, engine: SparkEngine) -> None:
    flow = flow.but(extra={"batch": {"max_records": 10}, "run": {"max_batches": 3}})
    flow.produce(range(50))
    report = flow.run(engine)
    assert [batch.records for batch in report.batches] == [10, 10, 10]
    assert report.stopped_early
    assert "run.max_batches 3" in report.ended
    flow.run(engine)
    assert flow.ids() == list(range(50))


def test_a_long_run_says_how_much_waits_and_for_how_long(
    flow: Flow, engine: SparkEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = flow.but(extra={"batch": {"max_records": 10}})
    flow.produce(range(25))
    steps: list[str] = []
    with flow.session(engine) as session:
        report = run_pipeline(
            session,
            on_batch=lambda batch: show_lines(batch.lines()),
            on_progress=lambda step: steps.append(f"{step.phase}: {step.message}"),
        )
    written = [re.findall(r"\d+", step.partition(" in ")[0]) for step in steps if step.startswith("write: ")]
    assert written == [["10", "25"], ["10", "15"], ["5"]]
    said = [line.partition(")")[2] for line in capsys.readouterr().out.splitlines() if line.startswith("batch ")]
    by = str(report.batches[0].written_by)
    assert all(by in line for line in said)
    rests = [re.findall(r"\d[\d,]*\b", line.replace(by, "")) for line in said]
    rest_s = [sum(batch.seconds.values()) * batch.lag_after / 10 for batch in report.batches]
    assert rests == [["15", f"{rest_s[0]:,.0f}"], ["5", f"{rest_s[1]:,.0f}"], []]


def test_a_commit_interval_leaves_the_commit_to_the_end_of_the_run(flow: Flow, engine: SparkEngine) -> None:
    flow = flow.but(extra={"batch": {"max_records": 10}, "commit": {"every": "1h"}})
    flow.produce(range(30))
    report = flow.run(engine)
    assert [len(batches.batch_id) > 0 for batches in report.batches] == [True] * 3
    assert len(flow.own_snapshots()) == len(flow.events(CommitComplete)) == 1
    assert flow.ids() == list(range(30))


def test_linger_picks_up_what_comes_late(flow: Flow, engine: SparkEngine) -> None:
    flow.produce(range(5))
    late = threading.Timer(0.5, flow.produce, [range(5, 8)])
    with reached("publish.after-commit", late.start, skip=1):
        flow.run(engine, Bounds(max_batches=2, max_duration_s=60, linger_s=30))
    late.join()
    assert flow.ids() == list(range(8))


def test_a_run_ends_although_the_topic_never_stops(flow: Flow, engine: SparkEngine) -> None:
    flow = flow.but(extra={"batch": {"max_records": 10}})
    flow.produce(range(25))
    with reached("publish.after-commit", lambda: flow.produce(range(25, 28)), skip=1):
        report = flow.run(engine)
    assert [batch.records for batch in report.batches] == [10, 10, 5]
    assert ("3" in report.ended.split(), report.stopped_early) == (True, False)
    assert flow.ids() == list(range(25))
    assert flow.run(engine).ended == "caught up"
    assert flow.ids() == list(range(28))


@pytest.mark.parametrize(("late", "batches"), [(2, [5]), (3, [5, 3])])
def test_a_run_that_lingers_makes_its_next_batch_in_time_or_once_enough_wait(
    flow: Flow, engine: SparkEngine, late: int, batches: list[int]
) -> None:
    flow.produce(range(5))
    bounds = Bounds(max_batches=2, max_duration_s=5, linger_s=1, every_s=600, or_records=3)
    with reached("publish.after-commit", lambda: flow.produce(range(5, 5 + late)), skip=1):
        report = flow.run(engine, bounds)
    assert [batch.records for batch in report.batches] == batches
    assert report.stopped_early, "it stays for pending records, and ends by one bound or the other"


def test_a_paused_pipeline_does_nothing_until_it_is_resumed(flow: Flow, engine: SparkEngine) -> None:
    flow.produce(range(5))
    flow.run(engine)
    flow.produce(range(5, 8))
    with flow.session() as session:
        bound = session.bind()
        session.log.append(Paused(pipeline_id=bound.pipeline_id, by="ana", reason="moving house"))
    report = flow.run(engine)
    assert report.batches == []
    assert "ana" in report.ended
    assert "moving house" in report.ended
    assert flow.ids() == list(range(5))
    with flow.session() as session:
        session.bind()
        session.log.append(Resumed(pipeline_id=bound.pipeline_id, by="ana"))
    flow.run(engine)
    assert flow.ids() == list(range(8))


def test_a_bad_record_stops_a_pipeline_that_asks_for_it(flow: Flow, engine: SparkEngine) -> None:
    flow = flow.but(extra={"on_bad_record": "stop"})
    flow.produce(range(5))
    support.produce(flow.bootstrap, flow.topic, [b"{"])
    with raises(Code.BAD_RECORD, flow.topic, "[0]", 5, "dead_letter"):
        flow.run(engine)
    assert flow.ids() == []
    assert [event.kind for event in flow.events(DataComplete)] == ["bootstrap"]


def test_what_is_promised_under_log_append_time_is_never_broken(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, engine: SparkEngine
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, {"message.timestamp.type": "LogAppendTime"}))
    promised: list[int] = []
    seen: set[int] = set()
    for start in (0, 100, 200):
        older = open_transaction(flow, range(start, start + 5))
        flow.produce(range(start + 50, start + 55))
        time.sleep(0.01)
        promised += promises_kept(flow, engine, promised, seen)
        older.commit_transaction(TIMEOUT_S)
        flow.produce(range(start + 60, start + 65))
        promised += promises_kept(flow, engine, promised, seen)
    assert promised == sorted(promised)
    assert promised[-1] > promised[0] > 0
    assert len(flow.ids()) == 45


def promises_kept(flow: Flow, engine: SparkEngine, promised: list[int], seen: set[int]) -> list[int]:
    """Run, and hold the rows that are new to what was promised before; returns the newest promise."""
    flow.run(engine)
    fresh = [row for row in flow.rows() if row["id"] not in seen]
    through = max(promised, default=-1)
    assert all(row["_kafka"]["timestamp"].timestamp() * 1000 > through for row in fresh)
    seen.update(row["id"] for row in fresh)
    return [own.valid_through_ms for _, own in flow.own_snapshots()[-1:] if own.valid_through_ms]


def test_few_records_need_no_answer_of_the_cluster(flow: Flow) -> None:
    """Nor a start: how many tasks it can run at a time says nothing about a batch that it does not get."""
    flow = flow.but(spark={"remote": "sc://127.0.0.1:1"})
    flow.produce(range(5))
    with session_on_spark(flow.pipeline) as session:
        run_pipeline(session)
    assert flow.ids() == list(range(5))
