"""The JSON form of a plan and of a written batch, as they travel between plan, write, publish and commit.

Ranges are grouped by topic, `[["flights", [[partition, start, end], …]], …]`; bytes are base64. Reading is strict: what
was written comes back equal; an unknown key, a missing one that has no default, or a value of another type is a
ProtocolError naming it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from calve.sink_core.batch import BatchPlan, ManifestRef, TableOutput, WrittenBatch
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import ProtocolError
from calve.sink_core.offsets import OffsetRange

Json = dict[str, Any]
_Runs = tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]
_T = TypeVar("_T")
_OTHER_VERSION = "use one version of Calve for all steps of a batch, or plan the batch again"


class _Wire(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class _Plan(_Wire):
    batch_id: str
    predecessor: str
    ranges: _Runs
    tasks: tuple[_Runs, ...]
    topic_ids: dict[str, str]
    broker_time_ms: int
    estimated_bytes: int


class _Written(_Wire):
    plan: _Plan
    tables: tuple[TableOutput, ...]
    counts: tuple[PartitionCounts, ...]


class _Of(_Wire, Generic[_T]):
    """Lends the settings of `_Wire` to a plain dataclass."""

    value: _T


def plan_to_json(plan: BatchPlan) -> Json:
    return _dump(_Of[_Plan](value=_plan_to_wire(plan)))


def plan_from_json(value: Json) -> BatchPlan:
    return _plan_from_wire(_load(_Of[_Plan], value))


def written_to_json(written: WrittenBatch) -> Json:
    wire = _Written(plan=_plan_to_wire(written.plan), tables=written.tables, counts=written.counts)
    return _dump(_Of[_Written](value=wire))


def written_from_json(value: Json) -> WrittenBatch:
    wire = _load(_Of[_Written], value)
    return WrittenBatch(plan=_plan_from_wire(wire.plan), tables=wire.tables, counts=wire.counts)


def table_to_json(table: TableOutput) -> Json:
    return _dump(_Of[TableOutput](value=table))


def table_from_json(value: Json) -> TableOutput:
    return _load(_Of[TableOutput], value)


def manifest_to_json(manifest: ManifestRef) -> Json:
    return _dump(_Of[ManifestRef](value=manifest))


def manifest_from_json(value: Json) -> ManifestRef:
    return _load(_Of[ManifestRef], value)


def _dump(wire: _Of[Any]) -> Json:
    return wire.model_dump(mode="json")["value"]


def _load(kind: type[_Of[_T]], value: Json) -> _T:
    # Strict reading takes a list for a tuple and text for bytes only from JSON text.
    try:
        return kind.model_validate_json(json.dumps({"value": value})).value
    except (ValidationError, TypeError) as error:
        raise ProtocolError(f"not what this version writes: {error}", hint=_OTHER_VERSION) from error


def _plan_to_wire(plan: BatchPlan) -> _Plan:
    return _Plan(
        batch_id=plan.batch_id,
        predecessor=plan.predecessor,
        ranges=_runs(plan.ranges),
        tasks=tuple(_runs(task) for task in plan.tasks),
        topic_ids=dict(plan.topic_ids),
        broker_time_ms=plan.broker_time_ms,
        estimated_bytes=plan.estimated_bytes,
    )


def _plan_from_wire(wire: _Plan) -> BatchPlan:
    try:
        return BatchPlan(
            batch_id=wire.batch_id,
            predecessor=wire.predecessor,
            ranges=_ranges(wire.ranges),
            tasks=tuple(_ranges(task) for task in wire.tasks),
            topic_ids=wire.topic_ids,
            broker_time_ms=wire.broker_time_ms,
            estimated_bytes=wire.estimated_bytes,
        )
    except ValueError as error:
        raise ProtocolError(f"batch {wire.batch_id}: {error}", hint=_OTHER_VERSION) from error


def _runs(ranges: Iterable[OffsetRange]) -> _Runs:
    by_topic = groupby(ranges, key=lambda r: r.topic)
    return tuple((topic, tuple((r.partition, r.start, r.end) for r in run)) for topic, run in by_topic)


def _ranges(runs: _Runs) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(topic, *numbers) for topic, run in runs for numbers in run)
