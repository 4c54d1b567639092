"""What can happen to a pipeline's tables, topics and offsets behind its back; and a look at all it could change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.log import REQUIRED_CONFIG
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.log.fold import SINK
from tests import support
from tests.pipelines import Flow
from tests.support import TIMEOUT_S

Break = Callable[[Flow], Flow | None]


def with_two_batches(directory: Path, broker: Broker, topic: str) -> Flow:
    """A pipeline with two batches of ten in its table, all of partition 0, and ten records waiting."""
    flow = Flow.create(directory, broker.bootstrap, topic)
    for start in (0, 10):
        flow.produce(range(start, start + 10))
        flow.run()
    flow.produce(range(20, 30))
    return flow


def compact_and_expire(spark: SparkSession, table: str) -> None:
    """Somebody's maintenance: the files of `table` (`catalog.namespace.name`) become one, and one snapshot is kept."""
    catalog, _, name = table.partition(".")
    call, now = f"CALL {catalog}.system", datetime.now(UTC).isoformat()
    spark.sql(f"{call}.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))").collect()
    expired = f"table => '{name}', older_than => timestamp'{now}', retain_last => 1"
    spark.sql(f"{call}.expire_snapshots({expired})").collect()


def name(value: object) -> str:
    """What a test is called by a damage."""
    return getattr(value, "__name__", "")


def world(flow: Flow) -> list[Any]:
    """All that a run may change: tables, data files, positions, events."""
    with flow.iceberg() as catalog:
        names = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
        tables = {name: catalog.load_table(name).metadata_location for name in names}
    files = sorted(path.name for path in flow.lake.rglob("*.parquet"))
    events = support.consume(flow.bootstrap, flow.pipeline.control_topic)
    return [tables, files, flow.positions(), events]


def roll_back(flow: Flow, to: int = 0) -> None:
    """The head goes back to the snapshot of the batch number `to`."""
    flow.load_table().manage_snapshots().rollback_to_snapshot(flow.own_snapshots()[to][0]).commit()


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


def write_to_the_control_topic(flow: Flow) -> None:
    """Another program takes the topic for its own."""
    support.produce(flow.bootstrap, flow.pipeline.control_topic, [b"not an event"])


def write_another_pipeline_s_events(flow: Flow) -> None:
    """As if two pipelines were configured to have one control topic: files of its own, and a batch of that name."""
    written, complete = flow.events(DataWritten)[-1], flow.events(DataComplete)[-1]
    theirs = [replace(event, pipeline_id="another", event_id="x", batch_id="x") for event in (written, complete)]
    support.produce(flow.bootstrap, flow.pipeline.control_topic, map(SINK.encode, theirs))


def configure_another_catalog(flow: Flow) -> Flow:
    other = flow.but(lake=flow.lake.parent / "other")
    support.open_catalog(other.lake, other.catalog).close()
    return other
