"""What Dagster shows of a mirror's batches. Pure: reports in, metadata out. Numbers become plots; ids stay text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.moving import engine_metadata, step_times

if TYPE_CHECKING:
    from calve.sink_core.mirror.batches import CopyReport
    from calve.sink_core.mirror.events import CopiedRange

SHOWN_RANGES = 100

_RANGES = dg.TableSchema(
    [
        dg.TableColumn("partition", "int"),
        dg.TableColumn("source start", "int", description="first source offset, inclusive"),
        dg.TableColumn("source end", "int", description="last source offset, exclusive"),
        dg.TableColumn("target start", "int", description="offset of the first record on the target; -1 of none"),
        dg.TableColumn("target end", "int", description="offset behind the last record on the target; -1 of none"),
        dg.TableColumn("records", "int"),
    ]
)


def of_batch(batch: CopyReport) -> dict[str, Any]:
    """A generation: what its slots copied, the lag they left and the seconds each step took."""
    topics = {part.topic for part in batch.ranges}
    return {
        "batch id": batch.batch_id,
        "records": batch.records,
        "bytes": batch.bytes,
        "offsets": batch.offsets,
        "adjusted records": batch.adjusted,
        "remote topics": len(topics),
        "slots": batch.slots,
        **engine_metadata(batch.written_by),
        "lag (offsets)": batch.lag_after,
        **step_times(batch.seconds),
    }


def by_topic(batch: CopyReport) -> dict[str, list[CopiedRange]]:
    """The ranges that a generation copied, by remote topic."""
    found: dict[str, list[CopiedRange]] = {}
    for part in batch.ranges:
        found.setdefault(part.topic, []).append(part)
    return found


def of_topic(batch: CopyReport, source: str, ranges: Sequence[CopiedRange], now_ms: int) -> dict[str, Any]:
    """What one remote topic got in a batch; the ranges of a partition follow each other, and stand as one."""
    rows = [dg.TableRecord(_row(partition, parts)) for partition, parts in _by_partition(ranges).items()]
    newest_ms = max((part.max_timestamp_ms for part in ranges if part.records), default=0)
    of_newest: dict[str, Any] = (
        {
            "newest record": dg.MetadataValue.timestamp(newest_ms / 1000),
            "behind (s)": round(max(0, now_ms - newest_ms) / 1000, 3),
        }
        if newest_ms > 0
        else {}
    )
    return {
        "records": sum(part.records for part in ranges),
        "bytes": sum(part.bytes for part in ranges),
        "adjusted records": sum(part.adjusted for part in ranges),
        **of_newest,
        "slots": batch.slots,
        "batch id": batch.batch_id,
        "source topic": source,
        "ranges": dg.MetadataValue.table(rows[:SHOWN_RANGES], schema=_RANGES),
        **({"partitions not shown": len(rows) - SHOWN_RANGES} if len(rows) > SHOWN_RANGES else {}),
    }


def _by_partition(ranges: Sequence[CopiedRange]) -> Mapping[int, list[CopiedRange]]:
    found: dict[int, list[CopiedRange]] = {}
    for part in sorted(ranges, key=lambda each: (each.partition, each.start)):
        found.setdefault(part.partition, []).append(part)
    return found


def _row(partition: int, parts: Sequence[CopiedRange]) -> dict[str, Any]:
    filled = [part for part in parts if part.records]
    return {
        "partition": partition,
        "source start": parts[0].start,
        "source end": parts[-1].end,
        "target start": filled[0].first if filled else -1,
        "target end": filled[-1].last if filled else -1,
        "records": sum(part.records for part in parts),
    }
