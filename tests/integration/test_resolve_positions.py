"""Findings on positions answered by `calve resolve`: what the group, the ledger and the tables have afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Paused, Resolved
from calve.sink_core.control.trim import trim
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.resolve.positions import accept
from calve.sink_core.sink.verify.proof import verify
from tests import damage
from tests.codes import finding, raises, says
from tests.pipelines import Flow, reached
from tests.resolving import numbers, refused, resolve, resolved, run_and_prove
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two batches in its table and records waiting."""
    return damage.with_two_batches(tmp_path, broker, kafka_topic(2))


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (damage.reset_backwards, "positions-changed"),
        (damage.reset_forwards, "positions-changed"),
        (damage.delete_the_group, "positions-missing"),
    ],
    ids=damage.name,
)
def test_restore_puts_the_positions_of_the_last_publish_back(flow: Flow, break_it: damage.Break, finding: str) -> None:
    before = {at: p.offset for at, p in flow.positions().items()}
    break_it(flow)
    assert resolved(flow, finding, "restore")["choice"] == "restore"
    assert {at: p.offset for at, p in flow.positions().items()} == before
    (event,) = flow.events(Resolved)
    # What the sensor starts runs again by, after a stop.
    assert SinkWatch(flow.pipeline).look().answer == event.event_id
    assert (event.finding, event.subject, event.choice) == (finding, flow.topic, "restore")
    assert run_and_prove(flow)["records"] == 30
    assert flow.ids() == list(range(30))


def test_restore_commits_no_file_again_that_somebody_compacted_and_expired(flow: Flow, spark: SparkSession) -> None:
    damage.compact_and_expire(spark, f"{flow.attached(spark)}.{flow.table}")
    damage.delete_the_group(flow)
    resolved(flow, "positions-missing", "restore")
    run_and_prove(flow)
    assert flow.ids() == flow.spark_ids(spark) == list(range(30))


def test_a_batch_that_was_under_way_during_a_restore_is_planned_again(flow: Flow) -> None:
    def reset_and_restore() -> None:
        damage.reset_backwards(flow)
        resolved(flow, "positions-changed", "restore")

    with reached("write.after-manifests", reset_and_restore):
        report = flow.run()
    assert [batch.given_up for batch in report.batches] == [True, False]
    assert run_and_prove(flow)["records"] == 30
    assert flow.ids() == list(range(30))


def test_accept_goes_on_from_where_positions_were_moved_to_and_counts_the_rest_as_lost(flow: Flow) -> None:
    damage.reset_forwards(flow)
    said = resolved(flow, "positions-changed", "accept")
    [line] = said["does"]
    assert numbers(line, f"{flow.topic}[0]") == [20, 25, 5]
    facts = run_and_prove(flow)
    assert (facts["records"], facts["lost"]) == (25, 5)
    assert flow.ids() == [*range(20), *range(25, 30)]


def test_positions_moved_back_are_never_accepted(flow: Flow) -> None:
    damage.reset_backwards(flow)
    refused(flow, "positions-changed", "accept", Code.NO_SUCH_CHOICE, "restore")


def test_positions_moved_back_since_the_finding_are_never_accepted(flow: Flow) -> None:
    """Somebody moved them forwards, which may be accepted, and then thought better of it."""
    damage.reset_forwards(flow)
    with raises(finding("positions-changed")) as found:
        flow.run()
    damage.reset_backwards(flow)
    with flow.session() as session:
        session.bind()
        with raises(Code.NOT_POSSIBLE):
            accept(session, found.value)


def test_positions_that_were_moved_beyond_the_end_are_not_accepted(flow: Flow) -> None:
    flow.move_positions({TopicPartition(flow.topic, 0): 31})
    refused(flow, "positions-changed", "accept", Code.NOT_POSSIBLE, f"{flow.topic}[0]", 31, 30, "restore")


def test_skip_goes_over_what_retention_deleted(flow: Flow) -> None:
    damage.lose_records_to_retention(flow)
    said = resolved(flow, "records-lost-to-retention", "skip")
    [line] = said["does"]
    assert numbers(line, f"{flow.topic}[0]") == [20, 25, 5]
    facts = run_and_prove(flow)
    assert (facts["records"], facts["lost"]) == (25, 5)
    assert flow.ids() == [*range(20), *range(25, 30)]


def test_a_ledger_of_an_earlier_version_gets_the_column_when_something_is_lost(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(5))
    flow.run()
    ledger = flow.load_table(flow.pipeline.ledger_table)
    with ledger.update_schema() as update:
        update.delete_column("lost")
    flow.produce(range(5, 10))
    assert "lost" not in flow.load_table(flow.pipeline.ledger_table).schema().column_names
    assert run_and_prove(flow)["lost"] == 0
    flow.produce(range(10, 20))
    flow.delete_records(flow.topic, 15)
    resolved(flow, "records-lost-to-retention", "skip")
    assert run_and_prove(flow)["lost"] == 5
    assert flow.ids() == [*range(10), *range(15, 20)]


def test_a_topic_that_lost_its_end_is_not_restored_to_where_it_is(flow: Flow) -> None:
    damage.lose_the_log_s_end(flow)
    refused(flow, "positions-beyond-end", "restore", Code.NOT_POSSIBLE)


def test_a_finding_that_does_not_stand_is_refused_with_those_that_do(flow: Flow) -> None:
    refused(flow, "positions-missing", "restore", Code.NOT_STANDING)
    damage.reset_backwards(flow)
    refused(flow, "positions-missing", "restore", Code.NOT_STANDING, "positions-changed", 10)


def test_nothing_is_done_where_nobody_can_be_asked(flow: Flow) -> None:
    damage.reset_backwards(flow)
    before = damage.world(flow)
    refused = resolve(flow, "positions-changed", "--choose", "restore")
    assert refused.exit_code == 2
    says(refused.stderr, Code.NOBODY_TO_ASK)
    of = f"{flow.topic}[0]"
    assert [10, 20] in [numbers(line, of) for line in refused.stdout.splitlines() if of in line]
    assert damage.world(flow) == before


@pytest.mark.parametrize(
    ("place", "first_code", "second_code"),
    [("publish.after-fence", 3, 0), ("publish.after-commit", 0, 2)],
    ids=["the second publishes first", "the first publishes first"],
)
def test_two_answers_at_once_are_one(flow: Flow, place: str, first_code: int, second_code: int) -> None:
    damage.reset_forwards(flow)
    accept = ("positions-changed", "--choose", "accept", "--yes")
    codes: list[int] = []
    with reached(place, lambda: codes.append(resolve(flow, *accept).exit_code)):
        first = resolve(flow, *accept)
    assert (first.exit_code, codes) == (first_code, [second_code]), first.output
    facts = run_and_prove(flow)
    assert (facts["records"], facts["lost"]) == (25, 5)


def test_an_answer_neither_ends_a_pause_nor_begins_one(flow: Flow) -> None:
    with flow.session() as session:
        bound = session.bind()
        session.log.append(Paused(pipeline_id=bound.pipeline_id, by="test", reason="looking at it"))
    damage.delete_the_group(flow)
    resolved(flow, "positions-missing", "restore")
    ended = flow.run().ended
    assert ("test" in ended, "looking at it" in ended) == (True, True)


def test_a_finding_that_comes_back_at_once_is_not_called_resolved(flow: Flow) -> None:
    damage.reset_backwards(flow)
    with reached("resolve.after-effect", lambda: damage.reset_backwards(flow)):
        again = resolve(flow, "positions-changed", "--choose", "restore", "--yes")
    assert again.exit_code == 1
    says(again.stderr, finding("positions-changed"))
    assert flow.events(Resolved) == []
    with raises(finding("positions-changed")):
        flow.run()


def test_restart_begins_topics_that_were_created_again_and_leaves_the_others(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), kafka_topic(1))
    flow.produce(range(10))
    flow.produce(range(100, 110), topic=flow.topics[1])
    flow.run()
    flow.recreate_topic(flow.topic, 3)
    flow.produce(range(200, 215), partition=2)
    flow.produce(range(300, 320))
    flow.produce(range(110, 115), topic=flow.topics[1])
    said = resolved(flow, "topic-recreated", "restart")
    assert f"{flow.topic}[0]" in said["does"][0]
    assert "10" in said["does"][0].split()
    assert {at: p.offset for at, p in flow.positions().items()} == {
        TopicPartition(flow.topic, 0): 0,
        TopicPartition(flow.topic, 1): 0,
        TopicPartition(flow.topic, 2): 0,
        TopicPartition(flow.topics[1], 0): 10,
    }
    run_and_prove(flow)
    expected = [*range(10), *range(100, 115), *range(200, 215), *range(300, 320)]
    assert flow.ids() == expected
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    flow.produce(range(320, 330))
    run_and_prove(flow)
    assert flow.ids() == [*expected, *range(320, 330)]


def test_what_retention_deleted_of_a_new_topic_before_its_restart_is_counted_as_lost(flow: Flow) -> None:
    damage.recreate_the_source_topic(flow)
    flow.delete_records(flow.topic, 4)
    said = resolved(flow, "topic-recreated", "restart")
    assert "4" in said["does"][0].split()
    assert run_and_prove(flow)["lost"] == 4
    assert flow.ids() == [*range(20), *range(104, 130)]


def test_a_row_lost_after_a_restart_is_a_violation(flow: Flow) -> None:
    damage.recreate_the_source_topic(flow)
    resolved(flow, "topic-recreated", "restart")
    run_and_prove(flow)
    flow.load_table().delete("id = 101")
    with flow.session() as session:
        found = {v.kind for v in verify(session, deep=True).violations}
    assert "range-rows" in found


def test_a_topic_created_again_once_more_during_the_answer_is_not_restarted_by_it(flow: Flow) -> None:
    damage.recreate_the_source_topic(flow)
    with reached("resolve.after-files", lambda: damage.recreate_the_source_topic(flow)):
        again = resolve(flow, "topic-recreated", "--choose", "restart", "--yes")
    assert again.exit_code == 1
    says(again.stderr, finding("topic-recreated"))
    resolved(flow, "topic-recreated", "restart")
    run_and_prove(flow)
    assert flow.ids() == [*range(20), *range(100, 130)]
