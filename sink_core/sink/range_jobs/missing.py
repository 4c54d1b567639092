"""History for a table that was added to a pipeline: what was published without it and not read again since. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.errors import ConfigError, TableUnusable
from calve.sink_core.offset_sets import by_partition
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class Missing:
    """The offsets of the next range job and how many batches it has read again with them; `left` are for later ones."""

    offsets: dict[TopicPartition, BitMap64]
    batches: int
    left: int


def check_stated(tables: Iterable[TableSettings], state: CommitState) -> None:
    """Raise ConfigError for a table that was not fed last, while others were, and whose `history` is not set."""
    last = state.complete.event if state.complete and state.complete.event.kind == "batch" else None
    for table in tables:
        if table.explicit and last is not None and table.name not in last.tables and table.history is None:
            raise ConfigError(
                f"table {table.name} was added to a pipeline that has published {state.published:,} batches, and "
                "its `history` is not set",
                hint="set `history: replay` to read these again for it, or `history: none` to begin now",
                code=Code.HISTORY_UNSET,
            )


def check_new(tables: Iterable[TableSettings], state: CommitState, read: Callable[[], Iterable[LedgerRow]]) -> None:
    """Raise ConfigError for a table, found at run time and about to be created, of which records were published before:
    its name was added to the file later. `read` gives the ledger's rows.

    A position above the beginning alone says little: that of a topic found late begins where its log does by then. The
    ledger, which takes long to read, is asked only about such topics.
    """
    moved = {at.topic for at, offset in state.partitions.items() if offset > state.begins.get(at, 0)}
    wanted = [(table, moved & (table.rule.topics or frozenset())) for table in tables if table.history is None]
    published = {row.at.topic for row in read() if row.records} if any(topics for _, topics in wanted) else set[str]()
    for table, topics in wanted:
        if before := sorted(topics & published):
            raise ConfigError(
                f"table {table.name} is new, and records of topic {before[0]} were published before",
                hint="set `history: none` for its entry to begin now, or give it an entry of its own with "
                "`history: replay`",
                code=Code.HISTORY_UNSET,
            )


def missing(table: str, rows: Iterable[LedgerRow], state: CommitState, *, max_offsets: int) -> Missing:
    """Whole batches that did not feed the table and that no range job has read for it, up to `max_offsets` (or one).

    Raises TableUnusable if one of them was read from a topic that was created again.
    """
    jobs = (job for job in state.range_jobs_of(table) if not job.conditional)
    done = by_partition(part for job in jobs for part in job.ranges if state.rules.history_leaves_out_what_was_read)
    batches: dict[str, list[OffsetRange]] = {}
    for row in rows:
        read = done.get(row.at, BitMap64()).range_cardinality(row.start, row.end) == row.end - row.start
        if table not in row.written and row.records and row.former:
            raise TableUnusable(
                f"{table}: {row.shown} was read from a topic that has been created again: its records can't be read "
                "any more",
                hint="set `history: none` for the table",
                code=Code.OTHER_TOPIC,
            )
        if table not in row.written and not read:
            batches.setdefault(row.batch_id, []).append(OffsetRange(*row.at, row.start, row.end))
    return _first(batches.values(), max_offsets)


def _first(batches: Iterable[list[OffsetRange]], max_offsets: int) -> Missing:
    parts: list[OffsetRange] = []
    taken, left, room = 0, 0, max_offsets
    for ranges in sorted(batches):
        size = sum(r.span for r in ranges)
        if taken and size > room:
            left += 1
            continue
        room, taken = room - size, taken + 1
        parts += ranges
    return Missing(by_partition(parts), taken, left)
