"""The deep proof: which offsets a table holds, each once, against what the ledger says of each range. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from calve.sink_core.offset_sets import of_range, shown
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.tables.proof import Evidence

OffsetSets = Mapping[TopicPartition, BitMap64]
NONE = BitMap64()
# Partition numbers are 32 bits wide; the topic's number goes above them.
_PARTITION_BITS = 32


@dataclass(slots=True)
class Held:
    """The source offsets of a table's rows. `foreign` rows have none: another writer put them there."""

    seen: dict[TopicPartition, BitMap64] = field(default_factory=dict[TopicPartition, BitMap64])
    twice: dict[TopicPartition, BitMap64] = field(default_factory=dict[TopicPartition, BitMap64])
    per_partition: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    rows: int = 0
    foreign: int = 0

    def take(self, topic: pa.Array, partition: pa.Array, offset: pa.Array) -> None:
        """Add rows by arrays of string, int and long; a row without topic or offset is foreign."""
        known = pc.call_function("and", [topic.is_valid(), offset.is_valid()])
        topic, partition, offset = topic.filter(known), partition.filter(known), offset.filter(known)
        self.rows += len(known)
        self.foreign += len(known) - len(offset)
        if len(offset) == 0:
            return
        names = topic.dictionary_encode()
        keys = (names.indices.to_numpy().astype(np.int64) << _PARTITION_BITS) | partition.to_numpy().astype(np.int64)
        order = np.argsort(keys, kind="stable")
        sorted_keys, offsets = keys[order], offset.to_numpy()[order].astype(np.uint64)
        borders = np.flatnonzero(np.diff(sorted_keys)) + 1
        for start, chunk in zip([0, *borders.tolist()], np.split(offsets, borders), strict=True):
            key = int(sorted_keys[start])
            name = names.dictionary[key >> _PARTITION_BITS].as_py()
            self._add(TopicPartition(name, key & (2**_PARTITION_BITS - 1)), chunk)

    def drop(self, topics: Collection[str]) -> None:
        """Forget the rows of these topics."""
        for sets in (self.seen, self.twice):
            for at in [at for at in sets if at.topic in topics]:
                del sets[at]

    def _add(self, at: TopicPartition, offsets: np.ndarray) -> None:
        self.per_partition[at] = self.per_partition.get(at, 0) + len(offsets)
        seen, new = self.seen.setdefault(at, BitMap64()), BitMap64(offsets)
        again = new & seen
        if len(new) < len(offsets):
            values, counts = np.unique(offsets, return_counts=True)
            again |= BitMap64(values[counts > 1])
        if again:
            self.twice.setdefault(at, BitMap64()).update(again)
        seen |= new


def held_by(batches: Iterable[pa.RecordBatch], *, struct: str | None = None) -> Held:
    """What a table holds by its columns topic, partition and offset, or by the fields of its column `struct`."""
    held = Held()
    for batch in batches:
        # `flatten` puts the struct's own nulls into its fields.
        table = pa.Table.from_batches([batch]).flatten()
        prefix = f"{struct}." if struct else ""
        topic, partition, offset = (table[f"{prefix}{n}"].combine_chunks() for n in ("topic", "partition", "offset"))
        held.take(topic, partition, offset)
    for offsets in held.seen.values():
        offsets.run_optimize()
    return held


def compare(
    table: str,
    held: Held,
    rows: Iterable[LedgerRow],
    expected: Callable[[LedgerRow], int | None],
    covered: OffsetSets,
    evidence: Evidence,
    others: Collection[str] = (),
) -> None:
    """No offset twice, each inside a range of the ledger, and as many per range as `expected` says, if it says any.

    Where other pipelines (`others`) feed the table too, what lies outside is theirs.
    """
    evidence.count("rows scanned", held.rows)
    if held.foreign:
        evidence.skipped(table, f"{held.foreign} rows without a Kafka offset: another writer put them there")
    for row in rows:
        _compare_range(table, held, row, expected(row), evidence)
    if others:
        theirs = sum(len(offsets - covered.get(at, NONE)) for at, offsets in held.seen.items())
        evidence.skipped(table, f"{theirs} offsets in no range of the ledger: {', '.join(sorted(others))} feed it too")
        return
    for at, offsets in sorted(held.seen.items()):
        outside = offsets - covered.get(at, NONE)
        if outside:
            message = f"{len(outside)} offsets of {at} are in the table and in no range of the ledger"
            evidence.violation("offset-outside", table, message, ranges=shown(at, outside))
        if not (loose := held.twice.get(at, NONE) - covered.get(at, NONE)):
            continue
        evidence.violation(
            "offset-twice", table, f"{len(loose)} offsets of {at} more than once", ranges=shown(at, loose)
        )


def _compare_range(table: str, held: Held, row: LedgerRow, expected: int | None, evidence: Evidence) -> None:
    at = row.at
    twice = held.twice.get(at, NONE)
    if twice.range_cardinality(row.start, row.end):
        again = twice & of_range(row.start, row.end)
        message = f"batch {row.batch_id}: {len(again)} offsets of {row.shown} are in the table more than once"
        evidence.violation("offset-twice", table, message, ranges=shown(at, again), batches=(row.batch_id,))
    found = held.seen.get(at, NONE).range_cardinality(row.start, row.end)
    if expected is not None and found != expected:
        message = f"batch {row.batch_id}: {found} rows of {row.shown} are in the table, the ledger says {expected}"
        ranges = _suspects(held, row, found, expected)
        evidence.violation("range-rows", table, message, ranges=ranges, batches=(row.batch_id,))


def _suspects(held: Held, row: LedgerRow, found: int, expected: int) -> tuple[str, ...]:
    """The lost offsets themselves where each offset of the range must have a row, else the range."""
    if found < expected == row.end - row.start:
        return shown(row.at, of_range(row.start, row.end) - held.seen.get(row.at, NONE))
    return (row.shown,)


def compare_restarted(
    table: str,
    held: Held,
    at: TopicPartition,
    rows: Iterable[LedgerRow],
    expected: Callable[[LedgerRow], int | None],
    evidence: Evidence,
) -> None:
    """A partition whose topic was deleted and created again: its rows don't say of which topic they are.

    No offset more often than topics had it, and as many rows in all as the ledger says.
    """
    evidence.skipped(table, f"which rows of {at} are of which topic of that name: only their total")
    once, again, total = BitMap64(), BitMap64(), 0
    for row in rows:
        if row.at != at:
            continue
        covers = of_range(row.start, row.end)
        again |= once & covers
        once |= covers
        wanted = expected(row)
        total = total + wanted if wanted is not None and total >= 0 else -1
    if loose := held.twice.get(at, NONE) - again:
        message = f"{len(loose)} offsets of {at} more than once"
        evidence.violation("offset-twice", table, message, ranges=shown(at, loose))
    found = held.per_partition.get(at, 0)
    if total >= 0 and found != total:
        evidence.violation("range-rows", table, f"{found} rows of {at} are in the table, the ledger says {total}")


def compare_dead_letters(
    table: str, held: Held, dead: Held, restarted: Collection[TopicPartition], evidence: Evidence
) -> None:
    """A record is in the tables or among the dead letters, never both; of `restarted` partitions nobody can tell."""
    for at, offsets in sorted(dead.seen.items()):
        if at in restarted:
            continue
        both = offsets & held.seen.get(at, NONE)
        if both:
            message = f"{len(both)} offsets of {at} are in the table and among the dead letters"
            evidence.violation("offset-in-both", table, message, ranges=shown(at, both))


def compare_delivered(
    delivered: OffsetSets, starts: Mapping[TopicPartition, int], row: LedgerRow, evidence: Evidence
) -> None:
    """Hold a row's `records` against what Kafka delivers today, if it still holds the whole range."""
    at = row.place
    if at not in delivered or row.start < starts[at]:
        evidence.count("offsets no longer in Kafka", row.end - row.start)
        return
    if row.lost:
        # Whatever these offsets hold was passed over unread.
        return
    evidence.count("offsets recounted", row.end - row.start)
    found = delivered[at].range_cardinality(row.start, row.end)
    if found != row.records:
        message = f"batch {row.batch_id}: Kafka delivers {found} records of {row.shown}, the ledger says {row.records}"
        evidence.violation("range-records", at, message, ranges=(row.shown,), batches=(row.batch_id,))
