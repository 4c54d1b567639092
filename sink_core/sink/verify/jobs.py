"""What range jobs change in the proof of a table: whose rows they hold in the place of batches. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pyroaring import BitMap64

from calve.sink_core.offset_sets import by_partition
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.ledger.stored_offsets import NONE, Held, OffsetSets
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead
from calve.sink_core.tables.proof import Evidence


def expected_rows(jobs: Iterable[RangeJob], held: Collection[str], *, dead_letters: bool) -> dict[str, int]:
    """Rows of each job that the table must hold, or does: one without rows has no snapshot unless it resolved.

    To the dead letters a job adds those that came back with another error.
    """
    rows: dict[str, int] = {}
    for job in jobs:
        back = job.letters and dead_letters
        rows[job.batch_id] = sum((0 if part.rows else part.span) if back else part.rows for part in job.ranges)
    return {batch_id: number for batch_id, number in rows.items() if number or batch_id in held}


def excused(jobs: Collection[RangeJob], held: Collection[str], rows: Iterable[LedgerRow]) -> set[str]:
    """Batches and jobs that need no snapshot of their own.

    Those all of whose ranges were read again by a job that the table holds; and jobs that were dropped: for a finding
    that was gone, or had become another, when they were to be committed, or in place of rows that were gone by then.
    """
    covered = by_partition(part for job in jobs if job.batch_id in held for part in job.ranges)
    replaced: dict[str, bool] = {}
    for row in rows:
        replaced[row.batch_id] = replaced.get(row.batch_id, True) and _inside(covered, row.at, row.start, row.end)
    for job in jobs:
        replaced[job.batch_id] = job.conditional or all(_inside(covered, p.at, p.start, p.end) for p in job.ranges)
    return {batch_id for batch_id, whole in replaced.items() if whole and batch_id not in held}


def ranges_read(
    jobs: Sequence[RangeJob], pending: Collection[str], held: Collection[str], letters: Collection[str] = ()
) -> list[RangeRead]:
    """What was read for the table of batches that did not feed it, as far as it is committed, and in place of rows that
    it had, if the table `held` the job; with the dead letters that the jobs `letters` have put there later. `jobs` are
    oldest first.
    """
    found: list[RangeRead] = []
    later: dict[TopicPartition, BitMap64] = {}
    for job in reversed(jobs):
        if job.batch_id in letters:
            for at, offsets in by_partition(job.ranges).items():
                later[at] = later.get(at, NONE) | offsets
        elif not (
            job.resolves or job.letters or job.batch_id in pending or (job.replaces and job.batch_id not in held)
        ):
            found += [replace(p, rows=p.rows + _number(later, p)) for p in reversed(job.ranges)]
    return found[::-1]


def _number(offsets: OffsetSets, part: RangeRead) -> int:
    return offsets.get(part.at, NONE).range_cardinality(part.start, part.end)


def compare(table: str, held: Held, parts: Iterable[RangeRead], evidence: Evidence) -> None:
    """As many rows of each range as its job has written."""
    for part in parts:
        found = held.seen.get(part.at, NONE).range_cardinality(part.start, part.end)
        if found != part.rows:
            shown = f"{part.at} [{part.start}, {part.end})"
            message = f"{found} rows of {shown} are in the table, the range job that read them again wrote {part.rows}"
            evidence.violation("range-rows", table, message, ranges=(shown,))


def _inside(covered: OffsetSets, at: TopicPartition, start: int, end: int) -> bool:
    return covered.get(at, NONE).range_cardinality(start, end) == end - start
