"""The ledger's proof: each partition's rows are contiguous, without overlap or gap, and each row adds up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, NamedTuple

import pyarrow as pa
from pyroaring import BitMap64

from calve.sink_core.named_counts import NamedCounts
from calve.sink_core.offset_sets import of_range, shown
from calve.sink_core.offsets import OffsetRange, Offsets, TopicPartition
from calve.sink_core.tables.internal import LEFT_OUT, LOST, UNROUTED
from calve.sink_core.tables.proof import Evidence

_DIGEST_MASK = 2**64 - 1
_NUMBERS = ("records", "gaps", "tombstones", "filtered", "dead_lettered", "value_bytes", LOST)
_PLANNED = "planned_at"
COLUMNS = (
    *("batch_id", "topic", "partition", "start_offset", "end_offset"),
    *_NUMBERS,
    *("written", "topic_id", _PLANNED, UNROUTED, LEFT_OUT),
)
_LATE = frozenset({LOST, UNROUTED, LEFT_OUT})
_NONE: Mapping[str, int] = {}


class LedgerRow(NamedTuple):
    """What became of the offsets `[start, end)` of one partition in one batch; `written` is rows per data table,
    `left_out` what tables did not take by their rules.

    `planned_ms` is the broker's time just before the batch was written. `former`: of a topic that was deleted and
    created again since. Its offsets are not those of the topic of today.
    """

    batch_id: str
    topic: str
    partition: int
    start: int
    end: int
    records: int
    gaps: int
    tombstones: int
    filtered: int
    dead_lettered: int
    value_bytes: int
    lost: int
    written: Mapping[str, int]
    topic_id: str = ""
    planned_ms: int = 0
    unrouted: int = 0
    left_out: Mapping[str, int] = {}
    former: bool = False

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def place(self) -> TopicPartition:
        """Where its offsets are accounted for: a topic that was created again has a place for each of its ids."""
        return former_place(self.at, self.topic_id) if self.former else self.at

    @property
    def shown(self) -> str:
        return str(OffsetRange(self.topic, self.partition, self.start, self.end))

    @property
    def storable(self) -> int:
        """Records that each data table must have got or left out by its rule."""
        return self.records - self.filtered - self.dead_lettered - self.tombstones

    def due(self, table: str) -> int:
        """Rows that a table which `written` names must have got."""
        return self.storable - self.left_out.get(table, 0)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[LedgerRow]:
    """Ledger rows from Arrow batches that hold `COLUMNS`, but for those that older ledgers lack."""
    for batch in batches:
        columns = [_column(batch, name) for name in COLUMNS]
        for at in (COLUMNS.index("written"), COLUMNS.index(LEFT_OUT)):
            columns[at] = [dict(each or ()) for each in columns[at]]
        yield from map(LedgerRow, *columns)


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name == _PLANNED:
        return batch.column(name).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    if name in _LATE and name not in batch.schema.names:
        return [0] * len(batch)
    values = batch.column(name).to_pylist()
    return [value or 0 for value in values] if name in _LATE else values


def with_former(rows: Iterable[LedgerRow], topic_ids: Mapping[str, str]) -> Iterator[LedgerRow]:
    """The rows, those marked whose topic has another id in `topic_ids`."""
    for row in rows:
        yield row._replace(former=True) if row.topic_id != topic_ids.get(row.topic, row.topic_id) else row


def former_place(at: TopicPartition, topic_id: str) -> TopicPartition:
    """A partition of a topic that was deleted, named so that no topic can be called like it."""
    return TopicPartition(f"{at.topic} of id {topic_id}", at.partition)


def digest(ends: Iterable[tuple[TopicPartition, int]]) -> int:
    """A number for a set of end positions that does not depend on their order."""
    return combined(*(_hash(at, end) for at, end in ends))


def _hash(at: TopicPartition, end: int) -> int:
    return hash((at, end))


def combined(*digests: int) -> int:
    """The digest of a union of disjoint sets."""
    return sum(digests) & _DIGEST_MASK


@dataclass(slots=True)
class BatchSums:
    """A batch over all its ledger rows; `ends` is the digest of the positions that it moved."""

    rows: int = 0
    offsets: int = 0
    ends: int = 0
    records: int = 0
    gaps: int = 0
    tombstones: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    value_bytes: int = 0
    lost: int = 0
    unrouted: int = 0
    written: Mapping[str, int] = field(default_factory=lambda: _NONE)
    due: Mapping[str, int] = field(default_factory=lambda: _NONE)

    def add(self, row: LedgerRow) -> None:
        self.rows += 1
        self.offsets += row.end - row.start
        if row.end > row.start:
            self.ends = combined(self.ends, _hash(row.at, row.end))
        self.records += row.records
        self.gaps += row.gaps
        self.tombstones += row.tombstones
        self.filtered += row.filtered
        self.dead_lettered += row.dead_lettered
        self.value_bytes += row.value_bytes
        self.lost += row.lost
        self.unrouted += row.unrouted
        self.written = _sum(self.written, row.written)
        self.due = _sum(self.due, {table: row.due(table) for table in row.written})

    def numbers(self) -> dict[str, int]:
        return {"offsets": self.offsets, **{name: getattr(self, name) for name in (*_NUMBERS, UNROUTED)}}


def _sum(counts: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    return NamedCounts({**counts, **{name: counts.get(name, 0) + number for name, number in more.items()}})


@dataclass(slots=True)
class Ledger:
    """The fold of all ledger rows, in any order. Memory grows with batches and partitions, not with offsets.

    `covered`, `twice` and `begins` are by place; `former` are the places of deleted topics, `restarted` the partitions
    of today's that have such.
    """

    batches: dict[str, BatchSums] = field(default_factory=dict[str, BatchSums])
    covered: dict[TopicPartition, BitMap64] = field(default_factory=dict[TopicPartition, BitMap64])
    twice: dict[TopicPartition, BitMap64] = field(default_factory=dict[TopicPartition, BitMap64])
    begins: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    former: set[TopicPartition] = field(default_factory=set[TopicPartition])
    restarted: set[TopicPartition] = field(default_factory=set[TopicPartition])

    def take(self, row: LedgerRow, evidence: Evidence) -> None:
        """Fold a row in; it must be a range, and add up by itself."""
        evidence.count("ledger rows")
        if not 0 <= row.start <= row.end:
            message = f"the row runs from {row.start} to {row.end}, which is no range"
            evidence.violation("ledger-row-invalid", row.at, message, batches=(row.batch_id,))
            return
        _check_sums(row, evidence)
        self.batches.setdefault(intern(row.batch_id), BatchSums()).add(row)
        self._cover(row)

    def _cover(self, row: LedgerRow) -> None:
        at, span = row.place, row.end - row.start
        if row.former:
            self.former.add(at)
            self.restarted.add(row.at)
        self.begins[at] = min(row.start, self.begins.get(at, row.start))
        covered = self.covered.setdefault(at, BitMap64())
        if span and covered.range_cardinality(row.start, row.end):
            self.twice.setdefault(at, BitMap64()).update(covered & of_range(row.start, row.end))
        if span:
            covered.add_range(row.start, row.end)

    def under_one_name(self) -> dict[TopicPartition, BitMap64]:
        """The offsets covered, those of deleted topics under the partition that has the name today."""
        merged = {at: covered for at, covered in self.covered.items() if at not in self.former}
        for at in self.restarted:
            name = former_place(at, "").topic
            places = (p for p in self.former if p.partition == at.partition and p.topic.startswith(name))
            merged[at] = BitMap64.union(merged.get(at, BitMap64()), *(self.covered[p] for p in places))
        return merged

    def check(
        self, begins: Offsets, ends: Offsets, rows: Callable[[], Iterable[LedgerRow]], evidence: Evidence
    ) -> None:
        """Contiguity from `begins` (a partition that is not in it: from its first row) to `ends`.

        `rows` gives the same rows again; it is only called to name the batches where something is wrong.
        """
        holes: dict[TopicPartition, BitMap64] = {}
        beyond: dict[TopicPartition, BitMap64] = {}
        for at in sorted(self.covered.keys() | ends.keys()):
            covered = self.covered.get(at, BitMap64())
            begin = begins.get(at, self.begins.get(at, ends.get(at, 0)))
            expected = of_range(begin, ends.get(at, begin))
            holes[at], beyond[at] = expected - covered, covered - expected
        for kind, found, what in (
            ("ledger-gap", holes, "published offsets are in no row of the ledger"),
            ("ledger-overlap", self.twice, "offsets are in more than one row of the ledger"),
            ("ledger-beyond-positions", beyond, "offsets are in the ledger and outside of what was published"),
        ):
            _name(kind, {at: bad for at, bad in found.items() if bad}, what, rows, evidence)


def _check_sums(row: LedgerRow, evidence: Evidence) -> None:
    span = row.end - row.start
    accounted = row.records + row.gaps + row.lost
    if accounted != span:
        lost = f" + {row.lost} lost" if row.lost else ""
        message = f"{row.records} records + {row.gaps} gaps{lost} are {accounted}, the range has {span} offsets"
        evidence.violation("ledger-row-sum", row.at, message, ranges=(row.shown,), batches=(row.batch_id,))
    for table, written in row.written.items():
        if written != row.due(table):
            left = f"{row.left_out[table]} left out + " if table in row.left_out else ""
            message = (
                f"{table}: {written} written + {left}{row.filtered} filtered + {row.dead_lettered} dead-lettered + "
                f"{row.tombstones} tombstones are not {row.records} records"
            )
            evidence.violation("ledger-row-sum", row.at, message, ranges=(row.shown,), batches=(row.batch_id,))
    if row.left_out or row.unrouted or not row.written:
        _check_unrouted(row, evidence)


def _check_unrouted(row: LedgerRow, evidence: Evidence) -> None:
    """A record that could be stored is unrouted or in a table, never both."""
    least = min((row.left_out.get(table, 0) for table in row.written), default=row.storable)
    if not row.storable - sum(row.written.values()) <= row.unrouted <= least:
        message = (
            f"{row.unrouted} unrouted and {sum(row.written.values())} written do not account for {row.storable} "
            "records that could be stored"
        )
        evidence.violation("ledger-row-sum", row.at, message, ranges=(row.shown,), batches=(row.batch_id,))


def _name(
    kind: str,
    bad: Mapping[TopicPartition, BitMap64],
    what: str,
    rows: Callable[[], Iterable[LedgerRow]],
    evidence: Evidence,
) -> None:
    if not bad:
        return
    batches: dict[TopicPartition, dict[str, None]] = {at: {} for at in bad}
    for row in rows():
        # One offset more at both sides: the rows around a gap are the only ones there are.
        if row.place in bad and bad[row.place].range_cardinality(max(0, row.start - 1), row.end + 1):
            batches[row.place][row.batch_id] = None
    for at, offsets in sorted(bad.items()):
        message = f"{len(offsets)} {what}" + (", next to the batches named" if kind == "ledger-gap" else "")
        evidence.violation(kind, at, message, ranges=shown(at, offsets), batches=tuple(batches[at])[:10])
