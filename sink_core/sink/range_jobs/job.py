"""A range job from plan to the events that publish it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offsets import OffsetRange, Offsets, Position, TopicPartition, batch_id_of
from calve.sink_core.sink.loop.complete import COUNTED
from calve.sink_core.sink.loop.plan import cut
from calve.sink_core.tables.batch import TableOutput
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.log.range_parts import RangeRead, Replaces, Resolves
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class RangePlan:
    """Ranges that were published before, to be read again for one table.

    `token` is as read before everything else the plan rests on. `batches` is the number of batches that are read again
    as a whole; `topic_ids` are the UUIDs of the topics.
    """

    batch_id: str
    table: str
    token: Position
    ranges: tuple[OffsetRange, ...]
    batches: int
    topic_ids: Mapping[str, str]
    resolves: Resolves | None = None

    @property
    def offsets(self) -> int:
        return sum(r.span for r in self.ranges)


def tasks_of(ranges: Sequence[OffsetRange], max_tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """The ranges cut into tasks of about equal numbers of offsets; more than `max_tasks` where a partition has several
    ranges, since a task reads a partition once.
    """
    cuts = cut(ranges, [1] * len(ranges), max(1, min(max_tasks, sum(r.span for r in ranges)))) if ranges else ()
    return tuple(piece for task in cuts for piece in _partition_once(task))


def _partition_once(task: Iterable[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    pieces: list[dict[TopicPartition, OffsetRange]] = []
    for part in task:
        piece = next((piece for piece in pieces if part.at not in piece), None)
        if piece is None:
            pieces.append(piece := {})
        piece[part.at] = part
    return [tuple(piece.values()) for piece in pieces]


def deleted(ranges: Iterable[OffsetRange], log_starts: Offsets) -> tuple[OffsetRange, ...]:
    """What retention has taken of the ranges."""
    return tuple(
        OffsetRange(*r.at, r.start, min(r.end, log_starts[r.at])) for r in ranges if r.start < log_starts[r.at]
    )


def events(
    plan: RangePlan,
    output: TableOutput,
    counts: Sequence[PartitionCounts],
    pipeline_id: str,
    replaces: Replaces | None = None,
    instant_ms: int = 0,
) -> list[DataWritten | DataComplete]:
    """What publishes the job. One that resolves or replaces something has its `DATA_WRITTEN` also without a row."""
    written = DataWritten(
        pipeline_id=pipeline_id,
        batch_id=plan.batch_id,
        table=plan.table,
        table_uuid=output.table_uuid,
        schema_id=output.schema_id,
        manifests=output.manifests,
        resolves=plan.resolves,
        replaces=replaces,
    )
    sums = {name: sum(int(getattr(c, name)) for c in counts) for name in COUNTED}
    complete = DataComplete(
        pipeline_id=pipeline_id,
        batch_id=plan.batch_id,
        predecessor=plan.token.metadata,
        kind="range",
        tables=(plan.table,),
        totals={**sums, "offsets": plan.offsets, "files": output.files, "batches": plan.batches},
        topic_ids=plan.topic_ids,
        positions={},
        through_ms={},
        through_is_estimate=True,
        value_bytes_by_topic={},
        records_by_topic={},
        ranges=read_again(plan, counts),
        instant_ms=instant_ms,
    )
    return [written, complete] if output.manifests or plan.resolves or replaces else [complete]


def read_again(plan: RangePlan, counts: Sequence[PartitionCounts]) -> tuple[RangeRead, ...]:
    """The plan's ranges with the rows that were written of each."""
    return tuple(_read(part, plan.table, counts) for part in plan.ranges)


def _read(part: OffsetRange, table: str, counts: Iterable[PartitionCounts]) -> RangeRead:
    inside = (c for c in counts if (c.topic, c.partition) == part.at and part.start <= c.start and c.end <= part.end)
    return RangeRead(*part.at, part.start, part.end, sum(c.written[table] for c in inside))


def decide(batch_id: str, planned: Position, found: Position, state: CommitState) -> Decision:
    """Whether the token, as read after the fence, is still the one that the job was planned with.

    Every range job that is published puts its id there, and giving up a mark: what the plan rests on (which ranges are
    missing) can have changed only if the token did. The log decides about the job's own id, as the token may have got
    a mark since.
    """
    if batch_id in state.batches or found.batch_id == batch_id:
        return Decision(Verdict.ALREADY_PUBLISHED, f"range job {batch_id} is in the log; an earlier try landed")
    if found.metadata == planned.metadata or not state.rules.range_job_compares_the_token:
        return Decision(Verdict.PUBLISH, "the token is as planned")
    if found.batch_id == batch_id_of(planned.metadata):
        why = f"range job {batch_id} was given up by orphan removal while it was in progress"
        return Decision(Verdict.STALE, f"{why}; start it again", given_up=True)
    return Decision(Verdict.STALE, f"range job {found.batch_id} has been published since {batch_id} was planned")
