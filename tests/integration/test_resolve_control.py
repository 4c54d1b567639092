"""A control topic that was created again, or lost events, and is rebuilt by `calve resolve` from ledger and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Resumed
from calve.sink_core.control.trim import trim
from calve.sink_core.errors import CalveError
from calve.sink_core.tables.log.events import DataComplete, TableCheckpoint
from tests import damage
from tests.codes import finding, raises, says
from tests.gate import every_second
from tests.pipelines import Died, Flow, reached
from tests.resolving import numbers, refused, resolve, resolved, run_and_prove
from tests.support import Produce, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two batches in its table and records waiting."""
    return damage.with_two_batches(tmp_path, broker, kafka_topic(2))


def lose_topic_and_group(flow: Flow) -> None:
    damage.recreate_the_control_topic(flow)
    damage.delete_the_group(flow)


def read_again(said: dict[str, Any]) -> int:
    """How many offsets above the ledger's positions an answer has read again."""
    positions, offsets = numbers(said["does"][1])
    assert positions > 0
    return offsets


DAMAGES = [
    (damage.recreate_the_control_topic, "control-topic-recreated"),
    (damage.truncate_the_control_topic, "control-topic-truncated"),
    (damage.write_to_the_control_topic, "foreign-events"),
    (damage.write_another_pipeline_s_events, "foreign-events"),
]


@pytest.mark.parametrize(("break_it", "finding"), DAMAGES, ids=damage.name)
def test_a_pipeline_goes_on_with_a_control_topic_made_anew(flow: Flow, break_it: damage.Break, finding: str) -> None:
    break_it(flow)
    said = resolved(flow, finding, "rebuild")
    assert read_again(said) == 0
    run_and_prove(flow)
    assert flow.ids() == list(range(30))
    flow.produce(range(30, 40), partition=1)
    run_and_prove(flow)
    assert flow.ids() == list(range(40))


@pytest.mark.parametrize(("break_it", "finding"), every_second(DAMAGES), ids=damage.name)
def test_what_was_published_and_is_in_no_table_is_read_again(flow: Flow, break_it: damage.Break, finding: str) -> None:
    flow.publish()
    break_it(flow)
    said = resolved(flow, finding, "rebuild")
    assert read_again(said) == 10
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_what_only_a_lost_batch_had_read_of_a_partition_is_read_again(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20), partition=1)
    flow.publish()
    damage.recreate_the_control_topic(flow)
    said = resolved(flow, "control-topic-recreated", "rebuild")
    assert read_again(said) == 10
    run_and_prove(flow)
    assert flow.ids() == list(range(20))


def test_a_lost_batch_that_began_nobody_knows_where_is_refused(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1)).but(extra={"source": {"start": "latest"}})
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20))
    flow.publish()
    damage.recreate_the_control_topic(flow)
    refused(flow, "control-topic-recreated", "rebuild", Code.NOT_POSSIBLE, f"{flow.topic}[0]")


def test_a_table_that_was_dropped_as_well_is_refused(flow: Flow) -> None:
    damage.recreate_the_control_topic(flow)
    damage.drop_the_table(flow)
    refused(flow, "control-topic-recreated", "rebuild", Code.NOT_POSSIBLE, flow.table)


def test_the_group_may_be_gone_as_well(flow: Flow) -> None:
    lose_topic_and_group(flow)
    # Without positions a run that finds no control topic binds it anew, and stops on the tables.
    with raises(finding("control-topic-recreated")):
        flow.run()
    resolved(flow, "control-topic-recreated", "rebuild", "--subject", flow.table)
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_a_table_that_lacks_what_the_ledger_has_is_refused(flow: Flow) -> None:
    def die() -> None:
        raise Died

    # The ledger's name comes first.
    with reached("commit.after-swap", die), pytest.raises(Died):
        flow.run()
    lacking = flow.events(DataComplete)[-1].batch_id
    damage.recreate_the_control_topic(flow)
    refused(flow, "control-topic-recreated", "rebuild", Code.NOT_POSSIBLE, flow.table, lacking)


@pytest.mark.parametrize("place", ["write.after-manifests", "publish.after-fence", "commit.after-list"])
def test_a_run_under_way_does_not_bring_back_what_is_read_again(flow: Flow, place: str) -> None:
    def recreate_and_rebuild() -> None:
        damage.recreate_the_control_topic(flow)
        resolved(flow, "control-topic-recreated", "rebuild")

    with reached(place, recreate_and_rebuild):
        try:
            flow.run()
        except CalveError as error:
            stopped = error
            assert "control-topic" in str(stopped)
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_a_rebuild_that_fell_asleep_deletes_nothing_that_was_published_since(flow: Flow) -> None:
    def rebuild_and_publish() -> None:
        resolved(flow, "control-topic-truncated", "rebuild")
        flow.publish()

    damage.truncate_the_control_topic(flow)
    with reached("publish.after-fence", rebuild_and_publish):
        late = resolve(flow, "control-topic-truncated", "--choose", "rebuild", "--yes")
    assert late.exit_code == 3
    says(late.stderr, Code.OVERTAKEN)
    published = [event.batch_id for event in flow.events(DataComplete)]
    run_and_prove(flow)
    assert flow.ids() == list(range(30))
    assert [event.batch_id for event in flow.events(DataComplete)] == published


def test_a_topic_recreated_under_the_name_is_another_topic_however_long_it_is(flow: Flow) -> None:
    with flow.session() as session:
        bound = session.bind()
        damage.recreate_the_control_topic(flow)
        for _ in range(session.log.state.next_offset):
            session.log.append(Resumed(pipeline_id=bound.pipeline_id, by="u"))
        with raises(finding("control-topic-recreated")):
            session.log.refresh_to_end()


def test_a_table_that_is_dropped_under_a_rebuild_is_named(flow: Flow) -> None:
    name = flow.pipeline.table_names[-1]

    def drop() -> None:
        with flow.iceberg() as catalog:
            catalog.drop_table(name)

    damage.truncate_the_control_topic(flow)
    with reached("resolve.after-stamp", drop):
        late = resolve(flow, "control-topic-truncated", "--choose", "rebuild", "--yes")
    assert late.exit_code == 3
    says(late.stderr, Code.OVERTAKEN, name)


def test_no_commit_stores_the_id_of_a_topic_that_is_gone_beside_offsets_of_its_successor(flow: Flow) -> None:
    other = flow.but(name=f"{flow.name}_new")
    with other.session() as session:
        session.bind()
        damage.recreate_the_control_topic(other)
        other.publish()
        with other.session() as trimming:
            trimming.bind()
            trim(trimming, older_than_s=0.0)
        with raises(finding("control-topic-recreated")):
            session.coordinator().commit()
    other.run()
    assert other.ids() == list(range(30))


def test_whoever_reads_on_after_events_were_lost_stops(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        flow.publish()
        end = session.log.first_since(2**62)
        flow.delete_records(flow.pipeline.control_topic, end)
        with raises(finding("control-topic-truncated"), end):
            session.log.refresh()


def test_what_a_ledger_held_at_an_earlier_rebuild_and_has_lost_is_read_again(flow: Flow) -> None:
    run_and_prove(flow)
    damage.recreate_the_control_topic(flow)
    resolved(flow, "control-topic-recreated", "rebuild")
    damage.recreate_the_control_topic(flow)
    flow.recreate_table()
    flow.recreate_table(flow.pipeline.ledger_table)
    said = resolved(flow, "control-topic-recreated", "rebuild")
    assert read_again(said) == 30
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_where_a_partition_without_rows_began_nobody_knows_once_the_group_is_gone(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2)).but(extra={"source": {"start": "latest"}})
    flow.run()
    flow.produce(range(10))
    flow.run()
    lose_topic_and_group(flow)
    with raises(finding("control-topic-recreated")):
        flow.run()
    done = resolve(flow, "control-topic-recreated", "--subject", flow.table, "--choose", "rebuild", "--yes")
    assert done.exit_code == 2
    says(done.stderr, Code.NOT_POSSIBLE, f"{flow.topic}[1]")


def test_two_rebuilds_at_once_are_one(flow: Flow) -> None:
    damage.truncate_the_control_topic(flow)
    answer = ("control-topic-truncated", "--choose", "rebuild", "--yes")
    codes: list[int] = []
    with reached("resolve.after-stamp", lambda: codes.append(resolve(flow, *answer).exit_code)):
        first = resolve(flow, *answer)
    assert (first.exit_code, codes) == (3, [0]), first.output
    assert len(flow.events(TableCheckpoint)) == 1
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_a_rebuild_marks_no_table_once_the_topic_is_another_one_with_as_many_events(flow: Flow) -> None:
    damage.recreate_the_control_topic(flow)

    def recreate_and_rebuild() -> None:
        damage.recreate_the_control_topic(flow)
        resolved(flow, "control-topic-recreated", "rebuild")
        flow.run()

    with reached("resolve.after-delete", recreate_and_rebuild):
        late = resolve(flow, "control-topic-recreated", "--choose", "rebuild", "--yes")
    assert late.exit_code == 3
    says(late.stderr, Code.OVERTAKEN, flow.pipeline.control_topic)
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_a_table_rolled_back_while_the_topic_is_empty_is_not_said_to_have_what_it_had(flow: Flow) -> None:
    def untag_and_roll_back() -> None:
        damage.remove_tag(flow)
        damage.roll_back(flow)

    damage.truncate_the_control_topic(flow)
    with reached("resolve.after-delete", untag_and_roll_back):
        late = resolve(flow, "control-topic-truncated", "--choose", "rebuild", "--yes")
    assert late.exit_code == 3
    says(late.stderr, Code.OVERTAKEN, flow.table)
    assert len(flow.own_snapshots()) == 2
    refused(flow, "control-topic-truncated", "rebuild", Code.NOT_POSSIBLE, flow.table)


def test_a_roll_back_to_before_the_rebuild_is_found_and_accepted(flow: Flow) -> None:
    damage.recreate_the_control_topic(flow)
    resolved(flow, "control-topic-recreated", "rebuild")
    flow.run()
    damage.roll_back(flow)
    refused(flow, "table-rolled-back", "recommit", Code.NOT_POSSIBLE, flow.table)
    resolved(flow, "table-rolled-back", "accept")
    flow.produce(range(30, 40))
    run_and_prove(flow)
    assert flow.ids() == [*range(10), *range(30, 40)]


def test_what_was_given_up_before_a_rebuild_gives_up_nothing_after_it(flow: Flow) -> None:
    damage.roll_back(flow)
    resolved(flow, "table-rolled-back", "accept")
    damage.recreate_the_control_topic(flow)
    resolved(flow, "control-topic-recreated", "rebuild")
    run_and_prove(flow)
    stamp, _ = flow.own_snapshots()[-2]
    flow.load_table().manage_snapshots().rollback_to_snapshot(stamp).commit()
    resolved(flow, "table-rolled-back", "recommit")
    run_and_prove(flow)
    assert flow.ids() == [*range(10), *range(20, 30)]


def test_no_table_promises_what_another_had_taken_in_before_the_rebuild(flow: Flow, produce: Produce) -> None:
    flow.run()
    promised = flow.own_snapshots()[-1][1].valid_through_ms
    flow.produce(range(30, 40))
    flow.produce(range(40, 50), partition=1)
    produce(flow.topic, [b"no JSON"])
    flow.publish()
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.pipeline.dead_letter_table)
    resolved(flow, "table-dropped", "accept")
    damage.recreate_the_control_topic(flow)
    resolved(flow, "control-topic-recreated", "rebuild")
    damage.remove_tag(flow)
    # A commit before the lost batch is read again.
    resolved(flow, "tag-removed", "accept")
    assert flow.ids() == list(range(30))
    assert promised
    assert flow.own_snapshots()[-1][1].valid_through_ms == promised
    run_and_prove(flow)
    assert flow.ids() == list(range(50))
