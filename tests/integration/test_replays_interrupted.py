"""A replay of dead letters that dies or meets others, or is undone: each record is in one place, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.trim import trim
from calve.sink_core.iceberg.maintenance.orphans import Listed, may_still_land
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.dead_letters.choice import CREATED_AGAIN
from calve.sink_core.sink.dead_letters.jobs import DeadLetterReport
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.sink.range_jobs.selected import Wanted
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.damage import roll_back
from tests.dead_letters import ALL, GOOD, assert_proven, die, left, mend, misfit, replay, spoilt
from tests.gate import every_second
from tests.launch import started
from tests.pipelines import COLUMNS, Died, Flow, reached
from tests.resolving import resolved
from tests.support import TopicFactory

PLACES = ("letters.after-files", "replay.after-manifests", "commit.after-list", "commit.after-swap")
BEFORE = ("range.after-start-commit", "range.after-files", "range.after-manifests")
PUBLISH = ("publish.after-events", "publish.after-offsets", "publish.after-commit")


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return spoilt(tmp_path, broker, kafka_topic(2))


@pytest.mark.parametrize("place", every_second([*BEFORE, *PUBLISH, *PLACES]))
def test_a_replay_that_died_is_done_by_the_next(flow: Flow, place: str) -> None:
    mend(flow)
    # A replay begins with a commit, which has nothing to do.
    with pytest.raises(Died), reached(place, die):
        replay(flow)
    replay(flow)
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow)


@pytest.mark.parametrize("place", every_second(["publish.after-commit", *PLACES]))
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
    assert_proven(flow, name)


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
    reports: list[DeadLetterReport] = []
    with reached("range.after-manifests", lambda: reports.append(replay(flow))):
        late = replay(flow)
    assert (reports[0].moved, late.moved, late.verdict) == (5, 0, None)
    assert flow.ids() == ALL
    assert_proven(flow)


def test_a_replay_published_while_another_commits_is_taken_in_by_it(flow: Flow) -> None:
    mend(flow)

    def publish() -> None:
        with pytest.raises(Died), reached("publish.after-commit", die):
            replay(flow)

    # The last of the tables that the replay commits at its beginning: the dead letters are looked at already.
    with reached("commit.after-check", publish, skip=2):
        assert replay(flow).moved == 0
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
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
        report = RangeJobs(session).replay(flow.table, Wanted(ranges=(OffsetRange(flow.topic, 0, 0, 14),)))
    assert report.verdict is Verdict.PUBLISH
    flow.commit()
    replay(flow)
    assert flow.ids() == ALL
    assert left(flow) == [(0, 13)]
    assert_proven(flow)


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
    both = [started("dead-letters", "replay", flow.pipeline.path, "--yes", "--json") for _ in range(2)]
    done = [each.done() for each in both]
    assert [each.returncode for each in done] == [0, 0], done
    said = [json.loads(each.stdout) for each in done]
    assert sum(each["moved"] for each in said) == 1_000
    assert flow.ids() == list(range(2_000))
    assert left(flow) == []
    assert_proven(flow)


def test_a_roll_back_of_the_table_gives_the_records_back(flow: Flow) -> None:
    mend(flow)
    replay(flow)
    roll_back(flow, to=1)
    with flow.session() as session:
        session.bind()
        report = RangeJobs(session).refill(flow.table)
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
    assert_proven(flow)


def test_a_topic_created_again_leaves_its_dead_letters_where_they_are(flow: Flow) -> None:
    mend(flow)
    flow.recreate_topic(flow.topic, 2)
    flow.produce(range(100, 103))
    resolved(flow, "topic-recreated", "restart")
    flow.run()
    report = replay(flow)
    assert (report.moved, report.left) == (0, {CREATED_AGAIN: 6})
    assert flow.ids() == [*GOOD, 100, 101, 102]


def test_the_proof_holds_after_a_trim(flow: Flow) -> None:
    mend(flow)
    replay(flow)
    flow.produce(range(30, 35))
    flow.run()
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert_proven(flow, flow.pipeline.control_topic)
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
