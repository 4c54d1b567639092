"""Findings: a stored state that contradicts the world stops the pipeline, with both values, before it does anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Resumed
from calve.sink_core.control.log import REQUIRED_CONFIG
from calve.sink_core.errors import FindingError
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState
from tests import damage, support
from tests.codes import finding, raises
from tests.damage import (
    Break,
    configure_another_catalog,
    delete_the_group,
    drop_the_table,
    lose_records_to_retention,
    lose_the_log_s_end,
    recreate_the_control_topic,
    recreate_the_source_topic,
    remove_tag,
    reset_backwards,
    reset_forwards,
    restore_the_catalog,
    restore_the_catalog_from_before_the_first_commit,
    roll_back,
    truncate_the_control_topic,
    world,
    write_another_pipeline_s_events,
    write_to_the_control_topic,
)
from tests.integration.conftest import StartBroker
from tests.pipelines import Flow, reached
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two batches in its table and records waiting."""
    return damage.with_two_batches(tmp_path, broker, kafka_topic(2))


# Of the values that a finding names, as patterns.
UUID, KAFKA_ID, SNAPSHOT, FIRST = r"\b[0-9a-f-]{36}\b", r"[\w+/-]{22}$", r"\b\d{10,}\b", r"topic-\w+\[0\]"


@pytest.mark.parametrize(
    ("damage", "finding", "stored", "found"),
    [
        (roll_back, "table-rolled-back", SNAPSHOT, SNAPSHOT),
        (remove_tag, "tag-removed", SNAPSHOT, ""),
        (restore_the_catalog, "table-restored", r"\b\d+\b.*\bCOMMIT_TO_TABLE\b", r"\b\d+\b"),
        (restore_the_catalog_from_before_the_first_commit, "table-restored", r"\b\d+\b", ""),
        (Flow.recreate_table, "table-recreated", UUID, UUID),
        (drop_the_table, "table-dropped", UUID, ""),
        (reset_backwards, "positions-changed", rf"{FIRST}.*\b20\b", r"\b10\b"),
        (reset_forwards, "positions-changed", rf"{FIRST}.*\b20\b", r"\b25\b"),
        (delete_the_group, "positions-missing", rf"{FIRST}.*\b20\b", r"\b2\b"),
        (lose_the_log_s_end, "positions-beyond-end", rf"{FIRST}.*\b1000\b", r"\b30\b"),
        (lose_records_to_retention, "records-lost-to-retention", rf"{FIRST}.*\b20\b", r"\b25\b.*\b5\b"),
        (recreate_the_source_topic, "topic-recreated", KAFKA_ID, KAFKA_ID),
        (recreate_the_control_topic, "control-topic-recreated", UUID, "DATA_COMPLETE"),
        (truncate_the_control_topic, "control-topic-truncated", r"\b0\b", r"\b3\b"),
        (write_to_the_control_topic, "foreign-events", "", r"\b\d+\b"),
        (write_another_pipeline_s_events, "foreign-events", UUID, r"\bDATA_WRITTEN\b.*\banother\b.*\b\d+\b"),
        (configure_another_catalog, "other-catalog", r"catalog\.db", r"other/catalog\.db"),
    ],
    ids=damage.name,
)
def test_a_finding_stops_the_pipeline_before_it_does_anything(
    flow: Flow, damage: Break, finding: str, stored: str, found: str
) -> None:
    flow = damage(flow) or flow
    before = world(flow)
    with pytest.raises(FindingError) as caught:
        flow.run()
    assert caught.value.finding == finding
    assert caught.value.stored != caught.value.found
    assert re.search(stored, caught.value.stored)
    assert re.search(found, caught.value.found)
    answer = f"calve resolve {flow.pipeline.path} {finding} --subject {caught.value.subject} --choose "
    assert answer in caught.value.hint
    assert world(flow) == before


def test_an_event_of_a_newer_calve_stops_the_pipeline(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resumed, "min_reader", 99)
    newer = SINK.encode(Resumed(pipeline_id="", by="a newer Calve"))
    support.produce(flow.bootstrap, flow.pipeline.control_topic, [newer])
    before = world(flow)
    with raises(Code.NEWER_VERSION, flow.pipeline.control_topic, 99):
        flow.run()
    assert world(flow) == before


def test_what_was_read_before_an_event_of_a_newer_calve_is_not_taken_for_the_whole_log(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Resumed, "min_reader", 99)
    with flow.session() as session:
        session.bind()
        newer = SINK.encode(Resumed(pipeline_id=session.pipeline_id, by="a newer Calve"))
        support.produce(flow.bootstrap, flow.pipeline.control_topic, [newer])
        with raises(Code.NEWER_VERSION, 99):
            session.log.refresh()
        with raises(Code.NEWER_VERSION, 99):
            session.committer().examine(flow.table)


@pytest.mark.parametrize("theirs", [write_to_the_control_topic, write_another_pipeline_s_events], ids=damage.name)
@pytest.mark.parametrize("place", ["write.after-manifests", "publish.after-fence", "publish.after-commit"])
def test_what_others_write_to_the_control_topic_during_a_run_is_never_committed(
    flow: Flow, place: str, theirs: Break
) -> None:
    published, rows = flow.positions(), flow.ids()
    with reached(place, lambda: theirs(flow)), raises(finding("foreign-events"), flow.pipeline.control_topic):
        flow.run()
    assert flow.ids() == rows
    assert (flow.positions() == published) == (place != "publish.after-commit")


def test_the_same_pipeline_on_another_cluster_is_a_finding(flow: Flow, start_broker: StartBroker) -> None:
    there = start_broker()
    control = flow.pipeline.control_topic
    support.create_topic(there.bootstrap, flow.topic, 2)
    support.create_topic(there.bootstrap, control, 1, REQUIRED_CONFIG)
    support.produce(there.bootstrap, control, support.consume(flow.bootstrap, control))
    with raises(finding("other-cluster"), flow.name, "bootstrap.servers"):
        flow.but(bootstrap=there.bootstrap).run()
    assert support.consume(there.bootstrap, control) == support.consume(flow.bootstrap, control)


def test_a_topic_recreated_between_plan_and_publish_is_a_finding(flow: Flow) -> None:
    published = flow.events(DataComplete)
    rows = flow.ids()
    with (
        reached("write.after-manifests", lambda: recreate_the_source_topic(flow)),
        raises(finding("topic-recreated"), flow.topic),
    ):
        flow.run()
    assert flow.events(DataComplete) == published
    assert flow.ids() == rows


def test_a_topic_that_is_new_and_recreated_before_its_first_publish_is_read_from_its_beginning(
    flow: Flow, kafka_topic: TopicFactory
) -> None:
    new = kafka_topic()
    both = flow.but(topics=(flow.topic, new))
    both.produce(range(100, 110), topic=new)

    def recreate() -> None:
        """Its group has no offset of it that could have gone with it."""
        both.recreate_topic(new, 1)
        both.produce(range(200, 220), topic=new)

    with reached("write.after-manifests", recreate), raises(finding("topic-recreated"), new):
        both.run()
    assert both.run().ended == "caught up"
    assert both.ids() == [*range(30), *range(200, 220)]


def test_a_rollback_during_a_run_stops_it_before_the_commit(flow: Flow) -> None:
    with (
        reached("publish.after-commit", lambda: roll_back(flow)),
        raises(finding("table-rolled-back"), flow.table),
    ):
        flow.run()
    assert flow.ids() == list(range(10))
    assert len(flow.events(DataWritten)) > 0


def test_an_idle_pipeline_is_no_finding_and_changes_nothing(flow: Flow) -> None:
    flow.run()
    before = world(flow)
    assert flow.run().ended == "caught up"
    assert world(flow) == before


def test_a_publish_between_reading_positions_and_log_is_no_finding(flow: Flow) -> None:
    with flow.session() as session, pytest.MonkeyPatch.context() as patch:
        session.bind()
        refresh, calls = session.log.refresh, [0]

        def after_another_run() -> CommitState:
            calls[0] += 1
            # The first call is before the positions are read, the second right after.
            if calls[0] == 2:
                flow.run()
            return refresh()

        patch.setattr(session.log, "refresh", after_another_run)
        source = Planner(session, max_tasks=1).look()
    assert source.positions[TopicPartition(flow.topic, 0)].offset == 30


def test_a_foreign_append_is_no_finding(flow: Flow) -> None:
    flow.append_foreign(1000)
    assert flow.run().ended == "caught up"
    assert flow.ids() == [*range(30), 1000]
