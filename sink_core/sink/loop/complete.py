"""From a written batch to the events that publish it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import CalveError
from calve.sink_core.kafka.source import Silent
from calve.sink_core.offsets import NOWHERE, Offsets, TopicPartition, offsets_to_dense
from calve.sink_core.tables.batch import TableOutput, WrittenBatch
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.log.state import UNREAD

LOG_APPEND_TIME = 2
"""`Message.timestamp()` type of a topic whose timestamps the broker sets."""

_REASON = 1000
"""Characters of why something stays behind, before the code: the log keeps them."""

COUNTED = ("records", "gaps", "tombstones", "filtered", "dead_lettered", "value_bytes", "lost", "unrouted")
"""What is counted per partition, and summed up in the `totals` of a batch."""


def data_written(batch: WrittenBatch, pipeline_id: str) -> list[DataWritten]:
    """One event per table that got rows, or changes of which none was new."""
    return [written(batch.plan.batch_id, out, pipeline_id) for out in batch.tables if out.manifests or out.changes]


def written(batch_id: str, output: TableOutput, pipeline_id: str) -> DataWritten:
    """The event for the files of one table."""
    return DataWritten(
        pipeline_id=pipeline_id,
        batch_id=batch_id,
        table=output.table,
        table_uuid=output.table_uuid,
        schema_id=output.schema_id,
        manifests=output.manifests,
        changes=output.changes,
        to_merge=output.to_merge,
    )


def data_complete(
    batch: WrittenBatch,
    *,
    pipeline_id: str,
    high_watermarks: Offsets,
    timestamp_types: Mapping[str, int],
    ledger_table: str,
    silent: Silent | None = None,
    held: Collection[str] = (),
) -> DataComplete:
    """The event that makes the batch count.

    `high_watermarks` were read after the plan's broker time; `timestamp_types` by topic as the broker numbers them. A
    partition read up to its high watermark contributes the plan's broker time under LogAppendTime: whatever comes later
    is later. Up to its LSO would not do: a record of an open transaction is older than the moment it becomes visible.
    Tables that are `held` were fed by no topic of the batch, and so lack nothing of it.
    """
    plan = batch.plan
    counts = {TopicPartition(c.topic, c.partition): c for c in batch.counts}
    names = silent.by_name if silent is not None else {}
    lacking = names.keys() - {str(r.at) for r in plan.ranges}
    through = {
        r.at: through_ms(
            counts.get(r.at),
            caught_up=r.at in high_watermarks and r.end >= high_watermarks[r.at],
            log_append_time=timestamp_types.get(r.topic) == LOG_APPEND_TIME,
            broker_time_ms=plan.broker_time_ms,
        )
        for r in plan.ranges
    }
    ledger = next((o.manifests[0].path for o in batch.tables if o.table == ledger_table and o.manifests), None)
    return DataComplete(
        pipeline_id=pipeline_id,
        batch_id=plan.batch_id,
        predecessor=plan.predecessor,
        kind="batch",
        tables=tuple(sorted({*held, *(o.table for o in batch.tables)})),
        totals=totals(batch),
        topic_ids=plan.topic_ids,
        positions=offsets_to_dense({r.at: r.end for r in plan.ranges}),
        through_ms=offsets_to_dense({} if lacking else through),
        through_is_estimate=any(timestamp_types.get(r.topic) != LOG_APPEND_TIME for r in plan.ranges),
        value_bytes_by_topic=_by_topic(batch, "value_bytes"),
        records_by_topic=_by_topic(batch, "records"),
        ledger_manifest=ledger,
        dropped=batch.dropped,
        written_by=batch.written_by.to_map() if batch.written_by is not None else {},
        silent={name: reason_of(error) for name, error in names.items()},
        instant_ms=plan.instant_ms,
    )


def through_ms(counts: PartitionCounts | None, *, caught_up: bool, log_append_time: bool, broker_time_ms: int) -> int:
    """Up to which timestamp a partition has been read, or NOWHERE / UNREAD (see `control.state`).

    A producer's timestamp beyond the broker's clock is capped: it would promise the future.
    """
    if log_append_time and caught_up and broker_time_ms > 0:
        return broker_time_ms
    if counts is not None and counts.max_timestamp_ms >= 0:
        return min(counts.max_timestamp_ms, broker_time_ms) if broker_time_ms > 0 else counts.max_timestamp_ms
    return NOWHERE if caught_up else UNREAD


def totals(batch: WrittenBatch) -> dict[str, int]:
    """The batch's sums, over all partitions."""
    sums = {name: sum(int(getattr(c, name)) for c in batch.counts) for name in COUNTED}
    return {**sums, "offsets": batch.plan.offsets, "files": sum(o.files for o in batch.tables)}


def reason_of(error: CalveError) -> str:
    """Why something stays behind, as events have it."""
    return f"{error.message[:_REASON]} [{error.code}]"


def _by_topic(batch: WrittenBatch, name: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for counts in batch.counts:
        sums[counts.topic] = sums.get(counts.topic, 0) + int(getattr(counts, name))
    return sums
