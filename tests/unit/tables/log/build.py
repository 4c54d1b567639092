"""Events with the fields a test does not care about filled in, and logs made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calve.sink_core.control.events import ByPartition, Event, PipelineBound
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.log.events import CommitToTable, DataComplete, DataWritten, StartCommit, TableCheckpoint
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.range_parts import Resolves
from calve.sink_core.tables.log.state import CommitState

PIPELINE_ID = "7c9d"
TABLE, UUID = "air.flights", "uuid-1"
TOPIC = "flights"


def manifest(path: str = "m.avro", **changes: Any) -> ManifestRef:
    values: dict[str, Any] = {
        "path": path,
        "length": 900,
        "sha256": "ab" * 32,
        "content": 0,
        "spec_id": 0,
        "files": 1,
        "rows": 10,
        "data_bytes": 2700,
        "partitions": (),
    }
    return ManifestRef(**(values | changes))


def bound(**changes: Any) -> PipelineBound:
    values: dict[str, Any] = {
        "pipeline_id": PIPELINE_ID,
        "pipeline": "flights",
        "deployment": "prod",
        "fingerprint": "lake-1",
        "cluster_id": "cluster-1",
        "control_topic_id": "topic-1",
    }
    return PipelineBound(**(values | changes))


def written(batch_id: str, table: str = TABLE, uuid: str = UUID, resolves: Resolves | None = None) -> DataWritten:
    return DataWritten(
        pipeline_id=PIPELINE_ID,
        batch_id=batch_id,
        table=table,
        table_uuid=uuid,
        schema_id=0,
        manifests=(manifest(f"{batch_id}.avro"),),
        resolves=resolves,
    )


def complete(
    batch_id: str,
    positions: ByPartition | None = None,
    *,
    kind: str = "batch",
    predecessor: str = "b0",
    tables: tuple[str, ...] = (TABLE,),
    topic_ids: Mapping[str, str] | None = None,
    through_ms: ByPartition | None = None,
) -> DataComplete:
    return DataComplete(
        pipeline_id=PIPELINE_ID,
        batch_id=batch_id,
        predecessor=predecessor,
        kind=kind,
        tables=tables,
        totals={"records": 10},
        topic_ids={TOPIC: "id-1"} if topic_ids is None else topic_ids,
        positions={TOPIC: (10,)} if positions is None else positions,
        through_ms=through_ms or {},
        through_is_estimate=False,
        value_bytes_by_topic={TOPIC: 2700},
        records_by_topic={TOPIC: 10},
    )


def started(batch_id: str, predecessor: str) -> StartCommit:
    return StartCommit(
        pipeline_id=PIPELINE_ID, batch_id=batch_id, predecessor=predecessor, file_prefix="", config_fingerprint="f"
    )


def through(batch_id: str, *values: int) -> DataComplete:
    """A batch after which partition *i* has been read through `values[i]` ms."""
    return complete(batch_id, {TOPIC: (10,) * len(values)}, through_ms={TOPIC: values})


def reported(stored_offset: int, table: str = TABLE, uuid: str = UUID, topic_id: str = "") -> CommitToTable:
    return CommitToTable(
        pipeline_id=PIPELINE_ID,
        table=table,
        table_uuid=uuid,
        snapshot_id=1,
        stored_offset=stored_offset,
        valid_through_ms=None,
        control_topic_id=topic_id,
    )


def checkpoint(up_to_offset: int, **changes: Any) -> TableCheckpoint:
    values: dict[str, Any] = {
        "pipeline_id": PIPELINE_ID,
        "up_to_offset": up_to_offset,
        "pipeline": "flights",
        "deployment": "prod",
        "fingerprint": "lake-1",
        "cluster_id": "cluster-1",
        "control_topic_id": "topic-1",
        "paused_by": None,
        "last_complete_batch_id": "b1",
        "positions": {TOPIC: (10,)},
        "topic_ids": {TOPIC: "id-1"},
        "through_ms": {},
        "reported": {},
        "open_findings": (),
    }
    return TableCheckpoint(**(values | changes))


def log(*events: Event, start: int = 0) -> CommitState:
    """The fold of a log that holds `events` at the offsets `start`, `start + 1`, …"""
    state = CommitState(log_start=start)
    state.reached(start)
    return SINK.apply_all(state, enumerate(events, start))


def at(partition: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, partition)


def positions(batch_id: str, *offsets: int) -> dict[TopicPartition, Position]:
    """Positions of the partitions 0, 1, … as one publish leaves them."""
    return {at(partition): Position(offset, batch_id) for partition, offset in enumerate(offsets)}
