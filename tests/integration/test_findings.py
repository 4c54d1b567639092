"""Findings: a stored state that contradicts the world stops the pipeline, with both values, before it does anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration.broker import Broker
from sink_core.control import schemas
from sink_core.control.decision import Decision, Verdict
from sink_core.control.events import DataComplete, DataWritten, Resumed, encode
from sink_core.control.log import REQUIRED_CONFIG
from sink_core.control.state import CommitState
from sink_core.errors import FindingError, ProtocolError
from sink_core.offsets import Position, TopicPartition
from sink_core.planning import Planner
from tests import support
from tests.integration.conftest import StartBroker
from tests.pipelines import TIMEOUT_S, Flow, reached
from tests.support import TopicFactory

Break = Callable[[Flow], Flow | None]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline with two batches in its table and records waiting."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    for start in (0, 10):
        flow.produce(range(start, start + 10))
        flow.run()
    flow.produce(range(20, 30))
    return flow


def world(flow: Flow) -> list[Any]:
    """All that a run may change: tables, data files, positions, events."""
    with flow.iceberg() as catalog:
        names = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
        tables = {name: catalog.load_table(name).metadata_location for name in names}
    files = sorted(path.name for path in flow.lake.rglob("*.parquet"))
    events = support.consume(flow.bootstrap, flow.pipeline.control_topic)
    return [tables, files, flow.positions(), events]


def roll_back(flow: Flow) -> None:
    first = flow.own_snapshots()[0][0]
    flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit()


def remove_tag(flow: Flow) -> None:
    flow.load_table().manage_snapshots().remove_tag(flow.pipeline.tag).commit()


def restore_the_catalog(flow: Flow) -> None:
    """The metadata from between the two commits is registered again: what restoring a catalog's backup does."""
    register_again(flow, -1)


def restore_the_catalog_from_before_the_first_commit(flow: Flow) -> None:
    register_again(flow, 0)


def register_again(flow: Flow, version: int) -> None:
    old = flow.load_table().metadata.metadata_log[version].metadata_file
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
        catalog.register_table(flow.table, old)


def drop_the_table(flow: Flow) -> None:
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)


def reset_backwards(flow: Flow) -> None:
    flow.move_positions({TopicPartition(flow.topic, 0): 10})


def reset_forwards(flow: Flow) -> None:
    flow.move_positions({TopicPartition(flow.topic, 0): 25})


def delete_the_group(flow: Flow) -> None:
    for done in flow.admin.delete_consumer_groups([flow.pipeline.group]).values():
        done.result(TIMEOUT_S)


def lose_the_log_s_end(flow: Flow) -> None:
    """As after an unclean election: what was published lies beyond the end that is left."""
    beyond = replace(flow.events(DataComplete)[-1], event_id="b", batch_id="b", positions={flow.topic: (1000, 0)})
    offsets = {TopicPartition(flow.topic, 0): Position(1000, "b"), TopicPartition(flow.topic, 1): Position(0, "b")}
    with flow.session() as session:
        session.bind()
        session.publisher.publish(lambda _positions, _state: Decision(Verdict.PUBLISH, ""), [beyond], offsets)


def lose_records_to_retention(flow: Flow) -> None:
    flow.delete_records(flow.topic, 25)


def recreate_the_source_topic(flow: Flow) -> None:
    flow.recreate_topic(flow.topic, 2)
    flow.produce(range(100, 130))


def recreate_the_control_topic(flow: Flow) -> None:
    flow.recreate_topic(flow.pipeline.control_topic, 1, REQUIRED_CONFIG)


def truncate_the_control_topic(flow: Flow) -> None:
    flow.delete_records(flow.pipeline.control_topic, 3)


def configure_another_catalog(flow: Flow) -> Flow:
    other = flow.but(lake=flow.lake.parent / "other")
    support.open_catalog(other.lake, other.catalog).close()
    return other


@pytest.mark.parametrize(
    ("damage", "finding", "stored", "found"),
    [
        (roll_back, "table-rolled-back", r"snapshot \d+ \(tag, control offset \d+\)", r"head \d+"),
        (remove_tag, "tag-removed", r"snapshot \d+ of ours", "no tag"),
        (restore_the_catalog, "table-restored", r"control offset \d+ \(COMMIT_TO_TABLE\)", r"control offset \d+ \(tag"),
        (restore_the_catalog_from_before_the_first_commit, "table-restored", r"control offset \d+", "no snapshot"),
        (Flow.recreate_table, "table-recreated", r"uuid [0-9a-f-]{36}", r"uuid [0-9a-f-]{36}"),
        (drop_the_table, "table-dropped", r"uuid [0-9a-f-]{36}", "no such table"),
        (reset_backwards, "positions-changed", r"topic-\w+\[0\] at 20", "position 10"),
        (reset_forwards, "positions-changed", r"topic-\w+\[0\] at 20", "position 25"),
        (delete_the_group, "positions-missing", r"topic-\w+\[0\] at 20", "no position for 2 partitions"),
        (lose_the_log_s_end, "positions-beyond-end", r"topic-\w+\[0\] at 1000", "end offset 30"),
        (lose_records_to_retention, "records-lost-to-retention", r"topic-\w+\[0\] at 20", "log start 25: 5 offsets"),
        (recreate_the_source_topic, "topic-recreated", r"topic id \S+", r"topic id \S+"),
        (recreate_the_control_topic, "control-topic-recreated", r"positions of batch \S+", "no DATA_COMPLETE"),
        (truncate_the_control_topic, "control-topic-truncated", "events from offset 0", "log start 3"),
        (configure_another_catalog, "other-catalog", r"catalog\.db", r"other/catalog\.db"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
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
    text = str(caught.value)
    assert re.search(rf"stored .*{stored}.*, found .*{found}", text)
    assert f"calve resolve {flow.pipeline.path} {finding} --subject {caught.value.subject} --choose " in text
    assert world(flow) == before


@pytest.mark.parametrize("min_reader", [None, 99], ids=["foreign bytes", "a newer reader version"])
def test_an_event_that_can_t_be_read_stops_the_pipeline(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, min_reader: int | None
) -> None:
    message = b"not an event"
    if min_reader is not None:
        monkeypatch.setitem(schemas.MIN_READER, "RESUMED", min_reader)
        message = encode(Resumed(pipeline_id="", by="a newer Calve"))
    support.produce(flow.bootstrap, flow.pipeline.control_topic, [message])
    before = world(flow)
    with pytest.raises(ProtocolError, match="upgrade this host" if min_reader else "nothing else may write to the"):
        flow.run()
    assert world(flow) == before


def test_the_same_pipeline_on_another_cluster_is_a_finding(flow: Flow, start_broker: StartBroker) -> None:
    there = start_broker()
    control = flow.pipeline.control_topic
    support.create_topic(there.bootstrap, flow.topic, 2)
    support.create_topic(there.bootstrap, control, 1, REQUIRED_CONFIG)
    support.produce(there.bootstrap, control, support.consume(flow.bootstrap, control))
    with pytest.raises(FindingError, match=r"other-cluster: .*: stored \S+, found \S+\n.*calve resolve .*rebuild"):
        flow.but(bootstrap=there.bootstrap).run()
    assert support.consume(there.bootstrap, control) == support.consume(flow.bootstrap, control)


def test_a_topic_recreated_between_plan_and_publish_is_a_finding(flow: Flow) -> None:
    published = flow.events(DataComplete)
    rows = flow.ids()
    with (
        reached("write.after-manifests", lambda: recreate_the_source_topic(flow)),
        pytest.raises(FindingError, match="topic-recreated"),
    ):
        flow.run()
    assert flow.events(DataComplete) == published
    assert flow.ids() == rows


def test_a_rollback_during_a_run_stops_it_before_the_commit(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: roll_back(flow)), pytest.raises(FindingError, match="rolled-back"):
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
