"""Dead letters are shown, and tried again once their cause is gone: what fits then moves, and nothing else."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from calve.orchestration.dagster.common.names import CHECKS
from calve.orchestration.dagster.sink.names import REPLAY_DEAD_LETTERS
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.dead_letters import choice
from calve.sink_core.sink.dead_letters.misfits import misfits
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests import launch
from tests.codes import raises, says
from tests.dagster_runs import run
from tests.dead_letters import ALL, GOOD, assert_proven, filled, left, listed, mend, replay, spoilt
from tests.launch import calve
from tests.pipelines import COLUMNS, Flow
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return spoilt(tmp_path, broker, kafka_topic(2))


def test_the_list_has_the_newest_first_and_counts_by_error(flow: Flow) -> None:
    found = listed(flow, limit=3)
    assert (found.total, len(found.newest)) == (6, 3)
    moments = [letter.timestamp_ms or 0 for letter in found.newest]
    assert moments == sorted(moments, reverse=True)
    assert (found.newest[0].topic, found.newest[0].partition) == (flow.topic, 1)
    assert [number for _, number in found.by_error] == [5, 1]
    assert re.match(r"fit\b.*\bmore\b", found.by_error[0][0])
    assert found.newest[0].preview == '{"id": 14, "text": "n14", "more": "words"}'
    assert listed(flow, topic="another").total == 0
    assert listed(flow, since_ms=moments[0]).total <= 2
    assert listed(flow, since_ms=int(time.time() * 1000) + 10_000).newest == ()


def test_a_replay_moves_what_fits_now_and_nothing_else(flow: Flow, spark: SparkSession) -> None:
    positions = flow.positions()
    mend(flow)
    report = replay(flow)
    assert (report.moved, report.still_bad, len(report.jobs)) == (5, 1, 1)
    assert flow.ids() == flow.spark_ids(spark) == ALL
    assert left(flow) == [(0, 13)]
    assert {row["more"] for row in flow.rows() if 10 <= row["id"] < 15} == {"words"}
    of_letter = next(row["_kafka"] for row in flow.rows() if row["id"] == 14)
    assert (of_letter["partition"], of_letter["offset"]) == (1, 1)
    assert of_letter["timestamp"] is not None
    assert flow.positions() == positions
    assert_proven(flow)
    assert replay(flow).moved == 0
    flow.produce(range(30, 33))
    flow.run()
    assert flow.ids() == [*ALL, 30, 31, 32]
    assert_proven(flow)


def test_status_and_a_check_name_the_field_until_the_records_fit(flow: Flow, instance: DagsterInstance) -> None:
    def look() -> tuple[list[tuple[str, str, int]], dg.AssetCheckEvaluation]:
        with flow.session() as session:
            found = [(each.table, each.field, each.records) for each in status(session).misfits]
        checks = run(flow, instance, CHECKS).checks
        [check] = [check for (_, name), check in checks.items() if name == "schema_misfits"]
        return found, check

    found, red = look()
    assert found == [(flow.table, "more", 5)]
    forgiving = flow.but(extra={**flow.extra, "objectives": {"schema_misfits": "1h"}})
    for each, hours, counted in ((forgiving, 0.5, 5), (forgiving, 2, 0), (flow, 2, 5), (flow, 24 * 8, 0)):
        with each.session() as session:
            left_by_then = misfits(session, datetime.now(UTC) + timedelta(hours=hours))
        assert sum(misfit.records for misfit in left_by_then) == counted
    assert (red.passed, red.severity) == (False, dg.AssetCheckSeverity.ERROR)
    shown: Any = red.metadata["misfits"]
    assert [(row.data["table"], row.data["field"], row.data["records"]) for row in shown.records] == found
    mend(flow)
    replay(flow)
    found, green = look()
    assert (found, green.passed) == ([], True)


def test_the_commands_say_what_is_there_and_what_became_of_it(flow: Flow) -> None:
    def letters(name: str, *options: str) -> launch.Done:
        return calve("dead-letters", name, flow.pipeline.path, *options)

    said = letters("list", "--limit", "2")
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[1].startswith(f"{flow.topic}[1] 1\t")
    assert lines[1].endswith('{"id": 14, "text": "n14", "more": "words"}')
    table, _, total = lines[-1].partition(": ")
    assert (table, re.findall(r"\d+", total)) == (flow.pipeline.dead_letter_table, ["6"])
    document = json.loads(letters("list", "--json", "--since", "1d", "--topic", flow.topic).stdout)
    assert (document["total"], len(document["newest"])) == (6, 6)
    assert sum(each["dead_letters"] for each in document["by_error"]) == 6
    refused = letters("replay")
    assert refused.returncode == 2
    says(refused.stderr, Code.NOBODY_TO_ASK, "--yes")
    mend(flow)
    said = letters("replay", "--yes", "--range", f"{flow.topic}/0:0-12")
    assert said.returncode == 0, said.stderr
    assert re.findall(r"\d+", said.stdout.splitlines()[-1].rpartition(": ")[2]) == ["2", "0"]
    document = json.loads(letters("replay", "--yes", "--json").stdout)
    assert (document["moved"], document["still_bad"], len(document["jobs"])) == (3, 1, 1)
    assert {commit["table"] for commit in document["commits"]} == {flow.table, flow.pipeline.dead_letter_table}
    assert flow.ids() == ALL


def test_without_a_fix_nothing_is_published(flow: Flow) -> None:
    events = len(flow.events(DataComplete))
    report = replay(flow)
    assert (report.moved, report.still_bad, report.jobs) == (0, 6, ())
    assert flow.pipeline.dead_letter_table in report.ended
    assert len(flow.events(DataComplete)) == events
    with flow.session() as session:
        session.bind()
        assert session.log.state.outstanding() == []
    assert_proven(flow)


def test_what_stays_has_its_error_of_today(flow: Flow) -> None:
    with flow.load_table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("more")
    with flow.load_table().update_schema() as update:
        update.add_column("more", StringType())
        update.add_column("text2", StringType())
        update.rename_column("text", "id2")
    before = {row["offset"]: row for row in flow.rows(flow.pipeline.dead_letter_table) if row["partition"] == 0}
    with flow.load_table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    with flow.load_table().update_schema() as update:
        update.add_column("id", StringType())
    report = replay(flow)
    after = {row["offset"]: row for row in flow.rows(flow.pipeline.dead_letter_table) if row["partition"] == 0}
    assert (report.moved, report.still_bad) == (0, 6)
    assert after[10]["error"] != before[10]["error"]
    assert re.match(r"id\b", after[10]["error"])
    assert {**after[10], "error": ""} == {**before[10], "error": ""}
    assert after[13] == before[13]
    assert_proven(flow)


def test_a_range_chooses_dead_letters(flow: Flow) -> None:
    mend(flow)
    assert replay(flow, OffsetRange(flow.topic, 0, 11, 99)).moved == 2
    assert left(flow) == [(0, 10), (0, 13), (1, 0), (1, 1)]
    assert_proven(flow)


def test_several_jobs_where_one_would_be_too_large(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    mend(flow)
    monkeypatch.setattr(choice, "MOST", 2)
    report = replay(flow)
    assert (report.moved, report.still_bad, len(report.jobs)) == (5, 1, 3)
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow)


def test_records_that_are_gone_from_kafka_are_in_the_dead_letters(flow: Flow) -> None:
    mend(flow)
    flow.delete_records(flow.topic, 12)
    flow.delete_records(flow.topic, 5, partition=1)
    assert replay(flow).moved == 5
    assert flow.ids() == ALL
    assert_proven(flow)


def test_all_tables_get_the_record_or_none(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    columns = {"columns": {**COLUMNS, "more": "long"}}
    tables = ("db.events", "db.also")
    flow = filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), tables=tables, auto_create=columns))
    mend(flow, "db.events")
    assert (replay(flow).moved, flow.ids(), flow.ids("db.also")) == (0, GOOD, GOOD)
    mend(flow, "db.also")
    assert (replay(flow).moved, flow.ids(), flow.ids("db.also")) == (5, ALL, ALL)
    assert_proven(flow)
    # One that was added later and wants no history gets none of it.
    more = flow.but(
        extra={
            "tables": [*({"name": t} for t in tables), {"name": "db.new", "history": "none", "auto_create": columns}]
        }
    )
    more.run()
    assert replay(more).moved == 0
    assert more.ids("db.new") == []


def test_history_and_dead_letters_meet_once(flow: Flow) -> None:
    mend(flow)
    added = {"name": "db.new", "history": "replay", "auto_create": {"columns": {**COLUMNS, "more": "long"}}}
    more = flow.but(extra={"tables": [{"name": flow.table}, added]})
    flow.produce(range(30, 31))
    more.run()
    assert more.ids("db.new") == [*GOOD, 30]
    assert replay(more).moved == 0
    mend(more, "db.new")
    assert replay(more).moved == 5
    assert more.ids() == more.ids("db.new") == sorted([*ALL, 30])
    assert_proven(more)


def test_a_dead_letter_that_is_there_twice_is_refused(flow: Flow) -> None:
    mend(flow)
    table = flow.load_table(flow.pipeline.dead_letter_table)
    table.append(table.scan(row_filter="offset = 11").to_arrow())
    with raises(Code.LETTER_TWICE, flow.pipeline.dead_letter_table, f"{flow.topic}[0]", 11):
        replay(flow)
    assert flow.events(DataWritten)[-1].removes is False


def test_the_job_moves_what_fits_and_says_what_became_of_the_rest(flow: Flow, instance: DagsterInstance) -> None:
    mend(flow)
    some = run(flow, instance, REPLAY_DEAD_LETTERS, ranges=[f"{flow.topic}/1:0-1"])
    assert some.result.success
    assert some.output["moved"] == 1
    assert flow.ids() == sorted([*GOOD, 13])
    rest = run(flow, instance, REPLAY_DEAD_LETTERS)
    found = rest.output
    assert (found["moved"], found["still bad"], found["not tried"], len(found["range jobs"])) == (4, 1, 0, 1)
    assert [told["rows added"] for told in rest.table()] == [4]
    assert len(rest.table(flow.pipeline.dead_letter_table)) == 1
    assert flow.ids() == ALL
    again = run(flow, instance, REPLAY_DEAD_LETTERS)
    assert (again.output["moved"], list(again.materialized)) == (0, [])
    wrong = run(flow, instance, REPLAY_DEAD_LETTERS, ranges=["everything"])
    assert not wrong.result.success
    says(wrong.failure.error.message, Code.NOT_A_TIME, "ranges", "everything")
    assert_proven(flow)
