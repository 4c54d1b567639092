"""Dead letters are shown, and tried again once their cause is gone: each record is in one place, whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from orchestration.broker import Broker
from orchestration.pipelines.names import CHECKS, REPLAY
from sink_core.control.decision import Verdict
from sink_core.control.events import DataComplete, DataWritten
from sink_core.dead_letters import choice
from sink_core.dead_letters.listing import Letters, letters
from sink_core.dead_letters.misfits import misfits
from sink_core.errors import TableUnusable
from sink_core.maintenance.orphans import Listed, may_still_land
from sink_core.maintenance.trim import trim
from sink_core.offsets import OffsetRange
from sink_core.range_jobs.selected import Wanted
from sink_core.status import status
from sink_core.verify.verify import verify
from spark_jobs.letter_job import LetterJobs, LettersReport
from spark_jobs.range_job import RangeJobs
from tests import support
from tests.dagster_runs import Done, run
from tests.damage import roll_back
from tests.pipelines import COLUMNS, Died, Flow, InProcess, reached
from tests.resolving import resolved
from tests.support import TopicFactory

CALVE = Path(sys.executable).with_name("calve")
PLACES = ("letters.after-files", "replay.after-manifests", "commit.after-list", "commit.after-swap")
BEFORE = ("range.after-start-commit", "range.after-files", "range.after-manifests")
PUBLISH = ("publish.after-events", "publish.after-offsets", "publish.after-commit")


def misfit(number: int) -> bytes:
    """Fits once `more` is a string and no long."""
    return json.dumps({"id": number, "text": f"n{number}", "more": "words"}).encode()


def filled(flow: Flow) -> Flow:
    """Ids 0 to 9 and 20 to 24 in the tables; 10 to 14 and one that never fits among the dead letters."""
    flow.produce(range(10))
    support.produce(flow.bootstrap, flow.topic, [*map(misfit, range(10, 13)), b"never"], partition=0)
    flow.run()
    support.produce(flow.bootstrap, flow.topic, map(misfit, range(13, 15)), partition=1)
    flow.produce(range(20, 25), partition=1)
    flow.run()
    return flow


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    columns = {"columns": {**COLUMNS, "more": "long"}}
    return filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), auto_create=columns))


GOOD = [*range(10), *range(20, 25)]
ALL = [*range(15), *range(20, 25)]


def mend(flow: Flow, *tables: str) -> None:
    """What was a long becomes a string."""
    for table in tables or flow.tables:
        with flow.load_table(table).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("more")
        with flow.load_table(table).update_schema() as update:
            update.add_column("more", StringType())


def replay(flow: Flow, *ranges: OffsetRange) -> LettersReport:
    with flow.session() as session:
        session.bind()
        return LetterJobs(session, InProcess()).replay(ranges)


def left(flow: Flow) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in flow.rows(flow.pipeline.dead_letter_table))


def listed(flow: Flow, **options: Any) -> Letters:
    with flow.session() as session:
        return letters(session, **{"limit": 20, **options})


def assert_proven(flow: Flow, *not_checked: str) -> None:
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.violations == ()
    assert [each.why for each in report.not_checked if not each.why.startswith(not_checked or ("nothing",))] == []
    assert set(report.uncommitted.values()) == {0}


def die() -> None:
    raise Died


def test_the_list_has_the_newest_first_and_counts_by_error(flow: Flow) -> None:
    found = listed(flow, limit=3)
    assert (found.total, len(found.newest)) == (6, 3)
    moments = [letter.timestamp_ms or 0 for letter in found.newest]
    assert moments == sorted(moments, reverse=True)
    assert (found.newest[0].topic, found.newest[0].partition) == (flow.topic, 1)
    assert [number for _, number in found.by_error] == [5, 1]
    assert found.by_error[0][0].startswith("fit: Column(/more) ")
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
    assert (red.description or "").startswith(f"5 dead letters don't fit more of {flow.table}, since 2")
    mend(flow)
    replay(flow)
    found, green = look()
    assert (found, green.passed) == ([], True)


def test_the_commands_say_what_is_there_and_what_became_of_it(flow: Flow) -> None:
    def calve(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [str(CALVE), "dead-letters", name, str(flow.pipeline.path), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    said = calve("list", "--limit", "2")
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[1].startswith(f"{flow.topic}[1] 1\t")
    assert lines[1].endswith('{"id": 14, "text": "n14", "more": "words"}')
    assert lines[-1] == f"{flow.pipeline.dead_letter_table}: 6 dead letters"
    document = json.loads(calve("list", "--json", "--since", "1d", "--topic", flow.topic).stdout)
    assert (document["total"], len(document["newest"])) == (6, 6)
    assert sum(each["dead_letters"] for each in document["by_error"]) == 6
    refused = calve("replay")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    mend(flow)
    said = calve("replay", "--yes", "--range", f"{flow.topic}/0:0-12")
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-1].endswith(": 2 moved; 0 still bad")
    document = json.loads(calve("replay", "--yes", "--json").stdout)
    assert (document["moved"], document["still_bad"], len(document["jobs"])) == (3, 1, 1)
    assert {commit["table"] for commit in document["commits"]} == {flow.table, flow.pipeline.dead_letter_table}
    assert flow.ids() == ALL


def test_without_a_fix_nothing_is_published(flow: Flow) -> None:
    events = len(flow.events(DataComplete))
    report = replay(flow)
    assert (report.moved, report.still_bad, report.jobs) == (0, 6, ())
    assert "none of" in report.ended
    assert len(flow.events(DataComplete)) == events
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
    assert after[10]["error"].startswith("Column(/id) ")
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


@pytest.mark.parametrize("place", [*BEFORE, *PUBLISH, *PLACES])
def test_a_replay_that_died_is_done_by_the_next(flow: Flow, place: str) -> None:
    mend(flow)
    # A replay begins with a commit, which has nothing to do.
    with pytest.raises(Died), reached(place, die):
        replay(flow)
    replay(flow)
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow)


@pytest.mark.parametrize("place", ["publish.after-commit", *PLACES])
def test_what_is_published_is_taken_in_by_any_commit(flow: Flow, place: str) -> None:
    mend(flow)
    with pytest.raises(Died), reached(place, die):
        replay(flow)
    flow.produce(range(30, 33))
    flow.run()
    assert flow.ids() == [*ALL, 30, 31, 32]
    assert left(flow) == [(0, 13)]
    assert_proven(flow)


def test_dead_letters_rewritten_by_others_before_the_commit_leave_all_the_same(flow: Flow) -> None:
    mend(flow)
    name = flow.pipeline.dead_letter_table

    def rewrite() -> None:
        table = flow.load_table(name)
        table.overwrite(table.scan().to_arrow())

    with reached("publish.after-commit", rewrite):
        assert replay(flow).moved == 5
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow, "the total number of rows")


def test_one_table_ahead_of_the_other_is_no_violation(flow: Flow) -> None:
    mend(flow)
    name = flow.pipeline.dead_letter_table
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow)
    for first in (flow.table, name):
        with flow.session() as session:
            session.bind()
            assert session.committer().commit(first) is not None
        with flow.session() as session:
            assert verify(session, deep=True).violations == ()
    assert_proven(flow)
    assert flow.ids() == ALL


def test_of_two_replays_planned_at_once_one_is_planned_again(flow: Flow) -> None:
    mend(flow)
    reports: list[LettersReport] = []
    with reached("range.after-manifests", lambda: reports.append(replay(flow))):
        late = replay(flow)
    assert (reports[0].moved, late.moved, late.verdict) == (5, 0, None)
    assert flow.ids() == ALL
    assert_proven(flow)


def test_a_replay_of_ranges_waits_for_dead_letters_that_are_to_leave(flow: Flow) -> None:
    """The table has the record, the dead letters still show it: it must not be taken for a dead letter."""
    mend(flow)
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow)
    with flow.session() as session:
        session.bind()
        session.committer().commit(flow.table)
    with flow.session() as session:
        session.bind()
        report = RangeJobs(session, InProcess()).replay(flow.table, Wanted(ranges=(OffsetRange(flow.topic, 0, 0, 14),)))
    assert report.verdict is Verdict.PUBLISH
    flow.commit()
    replay(flow)
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow)


def test_a_roll_back_of_the_table_gives_the_records_back(flow: Flow) -> None:
    mend(flow)
    replay(flow)
    roll_back(flow, to=1)
    with flow.session() as session:
        session.bind()
        report = RangeJobs(session, InProcess()).refill(flow.table)
    assert (report.rows, flow.ids()) == (5, ALL)
    assert_proven(flow)


def test_a_roll_back_of_the_table_can_be_answered_by_its_files(flow: Flow) -> None:
    mend(flow)
    replay(flow)
    flow.delete_records(flow.topic, 14)
    roll_back(flow, to=1)
    resolved(flow, "table-rolled-back", "recommit")
    assert flow.ids() == ALL
    assert_proven(flow)


def test_dead_letters_rolled_back_leave_again_and_go_nowhere_twice(flow: Flow) -> None:
    mend(flow)
    replay(flow)
    name = flow.pipeline.dead_letter_table
    table = flow.load_table(name)
    table.manage_snapshots().rollback_to_snapshot(flow.own_snapshots(name)[-2][0]).commit()
    resolved(flow, "table-rolled-back", "accept")
    assert len(left(flow)) == 6
    report = replay(flow)
    assert (report.moved, report.still_bad) == (5, 1)
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow, "1 batches (")


def test_a_topic_created_again_leaves_its_dead_letters_where_they_are(flow: Flow) -> None:
    mend(flow)
    flow.recreate_topic(flow.topic, 2)
    flow.produce(range(100, 103))
    resolved(flow, "topic-recreated", "restart")
    flow.run()
    report = replay(flow)
    assert (report.moved, sum(report.left.values())) == (0, 6)
    assert "created again" in next(iter(report.left))
    assert flow.ids() == [*GOOD, 100, 101, 102]


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


def test_the_proof_holds_after_a_trim(flow: Flow) -> None:
    mend(flow)
    replay(flow)
    flow.produce(range(30, 35))
    flow.run()
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert_proven(flow, "2 batches against their events", "3 batches against", "4 batches against")
    assert replay(flow).moved == 0


def test_files_of_a_commit_on_its_way_are_no_orphans(flow: Flow) -> None:
    mend(flow)
    with pytest.raises(Died), reached("letters.after-files", die):
        replay(flow)
    (kept,) = (p for p in flow.lake.rglob("*.parquet") if "-without-" in p.name)
    found = Listed(f"file://{kept}", kept.stat().st_size, 0)
    name = flow.pipeline.dead_letter_table
    assert may_still_land(found, flow.load_table(name))
    flow.commit()
    assert not may_still_land(found, flow.load_table(name))


def test_a_dead_letter_that_is_there_twice_is_refused(flow: Flow) -> None:
    mend(flow)
    table = flow.load_table(flow.pipeline.dead_letter_table)
    table.append(table.scan(row_filter="offset = 11").to_arrow())
    with pytest.raises(TableUnusable, match="is there more than once"):
        replay(flow)
    assert flow.events(DataWritten)[-1].removes is False


def test_a_thousand_replayed_by_two_processes_at_once(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    columns = {"columns": {**COLUMNS, "more": "long"}}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), auto_create=columns)
    for partition in (0, 1):
        first = 1_000 * partition
        mixed = [misfit(n) if n % 2 else json.dumps({"id": n}).encode() for n in range(first, first + 1_000)]
        support.produce(flow.bootstrap, flow.topic, mixed, partition=partition)
    flow.run()
    assert len(left(flow)) == 1_000
    mend(flow)
    command = [str(CALVE), "dead-letters", "replay", str(flow.pipeline.path), "--yes", "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(2)]
    said = [json.loads(process.communicate(timeout=240)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum(each["moved"] for each in said) == 1_000
    assert flow.ids() == list(range(2_000))
    assert left(flow) == []
    assert_proven(flow)


def test_the_job_moves_what_fits_and_says_what_became_of_the_rest(flow: Flow, instance: DagsterInstance) -> None:
    def output(done: Done) -> dict[str, Any]:
        [event] = [e for e in done.result.all_events if e.is_successful_output]
        return {name: value.value for name, value in event.step_output_data.metadata.items()}

    mend(flow)
    some = run(flow, instance, REPLAY, ranges=[f"{flow.topic}/1:0-1"])
    assert some.result.success
    assert output(some)["moved"] == 1
    assert flow.ids() == sorted([*GOOD, 13])
    rest = run(flow, instance, REPLAY)
    found = output(rest)
    assert (found["moved"], found["still bad"], found["not tried"], len(found["range jobs"])) == (4, 1, 0, 1)
    assert [told["rows added"] for told in rest.table()] == [4]
    assert len(rest.table(flow.pipeline.dead_letter_table)) == 1
    assert flow.ids() == ALL
    again = run(flow, instance, REPLAY)
    assert (output(again)["moved"], list(again.materialized)) == (0, [])
    wrong = run(flow, instance, REPLAY, ranges=["everything"])
    assert not wrong.result.success
    assert "ranges: 'everything' is not a range" in str(wrong.failure)
    assert_proven(flow)
