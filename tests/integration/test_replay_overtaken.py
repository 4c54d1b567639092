"""What others do between a replay's plan and its commit: it takes that in, starts again, or is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import calve.sink_core.control.publisher
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Verdict
from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.iceberg.maintenance.orphans import Listed, may_still_land, named_by_events
from calve.sink_core.sink.range_jobs.jobs import REPLAYS, RangeJobs, RangeReport
from calve.sink_core.tables.log.events import DataWritten
from tests.codes import finding, raises
from tests.damage import roll_back
from tests.integration.range_jobs import assert_proven, delete, filled, part, replay
from tests.pipelines import Died, Flow, reached
from tests.resolving import resolved
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2)))


def die() -> None:
    raise Died


def test_what_is_published_meanwhile_comes_with_the_replay(flow: Flow, spark: SparkSession) -> None:
    def more() -> None:
        flow.produce(range(30, 35))
        flow.publish()

    with reached("range.after-manifests", more):
        report = replay(flow, part(flow, 2, 6))
    assert report.commit is not None
    assert len(report.commit.batches) == 2
    assert (report.commit.rows, report.commit.total_rows) == (9, 35)
    assert flow.ids() == flow.spark_ids(spark) == list(range(35))
    assert_proven(flow)


def test_a_replay_that_died_before_its_commit_is_committed_by_any_run(flow: Flow) -> None:
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow, part(flow, 2, 6))
    flow.produce(range(30, 33))
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(33))
    assert flow.own_snapshots()[-2][1].replaced == {flow.events(DataWritten)[-3].batch_id: 4}
    assert_proven(flow)


def test_files_rewritten_by_others_before_its_commit_drop_the_replay_and_it_starts_again(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: delete(flow, "id = 7")):
        report = replay(flow, part(flow, 2, 6))
    assert report.verdict is Verdict.PUBLISH
    assert [e.replaces is not None for e in flow.events(DataWritten)[-2:]] == [True, True]
    assert flow.ids() == [i for i in range(30) if i != 7]
    flow.commit()
    replay(flow, part(flow, 7, 8))
    assert flow.ids() == list(range(30))
    assert_proven(flow, flow.table)


def test_a_dropped_replay_stays_dropped(flow: Flow) -> None:
    """The stored control offset passes it: whatever the table becomes again, it is not committed any more."""
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow, part(flow, 2, 6))
    before = flow.load_table().current_snapshot()
    assert before is not None
    delete(flow, "id = 7")
    (commit,) = (c for c in flow.commit().commits if c.table == flow.table)
    assert (commit.landed, commit.batches, commit.dropped) == (True, (), (flow.events(DataWritten)[-1].batch_id,))
    (commit,) = (c for c in flow.commit().commits if c.table == flow.table)
    assert not commit.landed
    assert flow.ids() == [i for i in range(30) if i != 7]


def test_a_replay_gives_up_when_others_rewrite_its_files_each_time(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = list(range(6, 6 + REPLAYS))

    def rewrite(place: str) -> None:
        if place == "publish.after-commit":
            delete(flow, f"id = {ids.pop()}")

    monkeypatch.setattr(calve.sink_core.control.publisher, "reach", rewrite)
    with raises(Code.REWRITTEN):
        replay(flow, part(flow, 2, 6))
    assert flow.ids() == [i for i in range(30) if not 6 <= i < 6 + REPLAYS]


def test_of_two_replays_planned_at_once_one_is_stale(flow: Flow) -> None:
    reports: list[RangeReport] = []
    with reached("range.after-manifests", lambda: reports.append(replay(flow, part(flow, 0, 5)))):
        late = replay(flow, part(flow, 2, 6))
    assert late.verdict is Verdict.STALE
    assert reports[0].verdict is Verdict.PUBLISH
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_giving_up_makes_a_replay_stale(flow: Flow) -> None:
    def give_up_all() -> None:
        with flow.session() as session:
            session.bind()
            session.publisher.give_up()

    with reached("replay.after-files", give_up_all):
        assert replay(flow, part(flow, 2, 6)).verdict is Verdict.STALE
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_a_roll_back_before_its_commit_drops_the_replay(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: roll_back(flow, to=1)), raises(finding("table-rolled-back")):
        replay(flow, part(flow, 2, 6))
    resolved(flow, "table-rolled-back", "accept")
    flow.produce(range(30, 32))
    flow.run()
    assert flow.ids() == [*range(20), 30, 31]
    assert_proven(flow, flow.table)
    with raises(Code.NOT_HELD):
        replay(flow, part(flow, 10, 20))


def test_a_refill_leaves_a_replay_out_that_was_written_for_the_table_before(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: roll_back(flow, to=1)), raises(finding("table-rolled-back")):
        replay(flow, part(flow, 2, 6))
    with flow.session() as session:
        session.bind()
        assert RangeJobs(session).refill(flow.table).rows == 10
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_files_of_a_replay_on_its_way_are_no_orphans(flow: Flow) -> None:
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow, part(flow, 2, 6))
    event = flow.events(DataWritten)[-1]
    assert event.replaces is not None
    io = flow.load_table().io
    refs = [*event.manifests, *event.replaces.kept, *event.replaces.gone]
    files = {entry.data_file.file_path for ref in refs for entry in entries_of(io, ref)}
    with flow.session() as session:
        session.bind()
        named = named_by_events(session.log.state, flow.table, flow.load_table())
    assert {ref.path for ref in refs} | files <= named
    with pytest.raises(Died), reached("commit.after-list", die):
        flow.commit()
    (again,) = (p for p in flow.lake.rglob("*.avro") if "-without-" in p.name)
    listed = Listed(f"file://{again}", again.stat().st_size, 0)
    assert may_still_land(listed, flow.load_table())
    flow.commit()
    assert not may_still_land(listed, flow.load_table())
    assert flow.ids() == list(range(30))


def test_row_deletes_by_others_before_its_commit_drop_the_replay(flow: Flow, spark: SparkSession) -> None:
    """The rows that they delete would come back in the rewritten file."""
    name = f"{flow.attached(spark)}.{flow.table}"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")

    def delete_a_row() -> None:
        spark.sql(f"DELETE FROM {name} WHERE id = 7").collect()

    with reached("publish.after-commit", delete_a_row), raises(Code.DELETE_FILES):
        replay(flow, part(flow, 2, 6))
    assert flow.spark_ids(spark) == [i for i in range(30) if i != 7]
