"""What a replay replaces: ranges that were published for the table and that the table has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.offset_sets import by_partition, of_range, shown
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead

Offsets = dict[TopicPartition, BitMap64]
NONE = BitMap64()
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """Batches planned in `[from_ms, to_ms)` by the broker's time, and of their offsets those within `ranges`.

    None, and no ranges at all, leave nothing out.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    ranges: tuple[OffsetRange, ...] = ()

    @property
    def timed(self) -> bool:
        return self.from_ms is not None or self.to_ms is not None

    def has_time(self, row: LedgerRow) -> bool:
        after_from = self.from_ms is None or self.from_ms <= row.planned_ms
        return after_from and (self.to_ms is None or row.planned_ms < self.to_ms)


@dataclass(frozen=True, slots=True)
class Moved:
    """Offsets of dead letters that range jobs have moved into tables, by partition and topic id: those of a topic that
    was created again since are not today's."""

    offsets: Mapping[tuple[TopicPartition, str], BitMap64]

    def within(self, at: TopicPartition, topic_id: str, start: int, end: int) -> int:
        """How many of them lie in `[start, end)` of the partition of the topic with that id."""
        return self.offsets.get((at, topic_id), BitMap64()).range_cardinality(start, end)


def moved_by(jobs: Iterable[RangeJob]) -> Moved:
    """What those of `jobs` have moved that have tried dead letters again, each offset once."""
    found: dict[tuple[TopicPartition, str], BitMap64] = {}
    for job in jobs:
        for part in job.ranges if job.letters else ():
            if part.rows:
                place = (part.at, job.topic_ids.get(part.topic, ""))
                found.setdefault(place, BitMap64()).update(of_range(part.start, part.end))
    return Moved(found)


def selected(
    table: str,
    rows: Iterable[LedgerRow],
    wanted: Wanted,
    jobs: Collection[RangeJob],
    absent: Mapping[str, str],
) -> Offsets:
    """The offsets whose rows are replaced. `jobs` are the table's range jobs, `absent` says by batch why the table
    does not have it.

    Raises TableUnusable for ranges that were not published for the table, for batches that are absent, and where rows
    of a topic that was created again since may stand under the same offsets.
    """
    asked = by_partition(wanted.ranges) if wanted.ranges else None
    history = by_partition(part for job in jobs if not job.conditional for part in job.ranges)
    found, former = Offsets(), Offsets()
    for row in rows:
        offsets = of_range(row.start, row.end)
        if asked is not None:
            offsets &= asked.get(row.at, NONE)
        if not offsets:
            continue
        if row.former:
            former.setdefault(row.at, BitMap64()).update(offsets)
        elif wanted.has_time(row) and not row.lost and _has_fed(table, row, history):
            if row.batch_id in absent:
                raise TableUnusable(
                    f"{table}: batch {row.batch_id} with {row.shown} {absent[row.batch_id]}",
                    hint="replay what the table has: leave these ranges out",
                    code=Code.NOT_HELD,
                )
            found.setdefault(row.at, BitMap64()).update(offsets)
    _refuse_two_topics(table, found, former)
    if asked is not None and not wanted.timed:
        _refuse_unpublished(table, {at: offsets - found.get(at, NONE) for at, offsets in asked.items()})
    return found


def whole_rows(
    table: str, ranges: Iterable[OffsetRange], rows: Collection[LedgerRow], moved: Moved
) -> dict[OffsetRange, int]:
    """By range how many rows the ledger says the table got of it, for ranges that are made of whole rows of it; with
    the dead letters that it has got since.
    """
    expected: dict[OffsetRange, int] = {}
    for part in ranges:
        inside = [r for r in rows if r.at == part.at and not r.former and part.start <= r.start and r.end <= part.end]
        if sum(r.end - r.start for r in inside) == part.span and all(table in r.written for r in inside):
            late = sum(moved.within(r.at, r.topic_id, r.start, r.end) for r in inside)
            expected[part] = sum(r.written[table] for r in inside) + late
    return expected


def check_same(table: str, read: Iterable[RangeRead], expected: Mapping[OffsetRange, int]) -> None:
    """Raise TableUnusable if a range now gives another number of rows than when it was published."""
    for part in read:
        place = OffsetRange(part.topic, part.partition, part.start, part.end)
        if expected.get(place, part.rows) != part.rows:
            raise TableUnusable(
                f"{table}: {place} gives {part.rows} rows now, and gave {expected[place]} when it was published",
                hint="records are gone from Kafka, or dead letters were deleted; nothing was published",
                code=Code.OTHER_ROWS,
            )


def _has_fed(table: str, row: LedgerRow, history: Mapping[TopicPartition, BitMap64]) -> bool:
    span = row.end - row.start
    return table in row.written or history.get(row.at, NONE).range_cardinality(row.start, row.end) == span


def _refuse_two_topics(table: str, found: Offsets, former: Offsets) -> None:
    for at, offsets in sorted(found.items()):
        if both := offsets & former.get(at, NONE):
            raise TableUnusable(
                f"{table}: {shown(at, both)[0]} stands for records of two topics, as {at.topic} was created again: "
                "which rows are whose can't be told",
                hint="replay other ranges; rows of these can only be changed by hand",
                code=Code.TWO_TOPICS,
            )


def _refuse_unpublished(table: str, left: Offsets) -> None:
    ranges = [each for at, offsets in sorted(left.items()) if offsets for each in shown(at, offsets)]
    if ranges:
        more = f" and {len(ranges) - _SHOWN} more" if len(ranges) > _SHOWN else ""
        raise TableUnusable(
            f"{', '.join(ranges[:_SHOWN])}{more}: not published for {table}, or passed over unread",
            hint="the ledger has what was published; what was published without the table is its history, which replay "
            "reads if no range is given",
            code=Code.NOT_PUBLISHED,
        )
