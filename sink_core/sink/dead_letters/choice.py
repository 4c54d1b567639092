"""Which dead letters a range job tries again, and for which tables. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from calve.sink_core.offset_sets import by_partition, of_range
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.ledger.stored_offsets import NONE
from calve.sink_core.tables.log.range_parts import RangeJob

Offsets = dict[TopicPartition, BitMap64]
MOST = 10_000
"""Dead letters that one job tries: its event names their offsets, and may hold a megabyte."""

NO_ROW = "their batch is not in the ledger"
CREATED_AGAIN = "their topic was created again: offsets stand for records of two topics"
NO_TABLE = "their batch fed no table that the pipeline file names"
CHANGING = (
    "{} takes row changes, and a record tried again would be put over newer ones: have the producer send them again"
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Dead letters that go to the same `tables`, none if all have them already. `left` counts by reason others that
    can't be tried.
    """

    tables: tuple[str, ...] = ()
    offsets: Mapping[TopicPartition, BitMap64] = field(default_factory=dict[TopicPartition, BitMap64])
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    left: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def total(self) -> int:
        return sum(map(len, self.offsets.values()))


def choose(
    places: Mapping[tuple[str, TopicPartition], BitMap64],
    rows: Iterable[LedgerRow],
    tables: Sequence[str],
    dead_letter_table: str,
    jobs: Collection[RangeJob],
    holds: Callable[[str, Offsets], Offsets],
    changing: Collection[str] = (),
) -> Chosen:
    """The dead letters at `places` (by batch and partition) of which most go to the same tables, up to `MOST`.

    A record goes to those of `tables` that its batch fed, or for which its range was read as history: what others get
    of it their history decides. One that an earlier job has moved, and that is back since the dead letters were rolled
    back, goes only where `holds` does not find it. One that was for a table of `changing` is left: it would come late.
    """
    wanted, former = _with_rows(places, rows)
    history = {t: by_partition(p for j in jobs if j.table == t and _is_history(j) for p in j.ranges) for t in tables}
    moved = [job for job in jobs if job.letters and job.table == dead_letter_table]
    groups: dict[tuple[str, ...], Offsets] = defaultdict(dict)
    left: dict[str, int] = defaultdict(int)
    topic_ids: dict[str, str] = {}
    for (_, at), (row, offsets) in wanted.items():
        if row is None:
            left[NO_ROW] += len(offsets)
            continue
        if row.former or offsets & former.get(at, NONE):
            twice = offsets if row.former else offsets & former.get(at, NONE)
            left[CREATED_AGAIN] += len(twice)
            offsets = offsets - twice
        topic_ids[at.topic] = row.topic_id
        back = offsets & by_partition(p for j in moved if _of(j, row) for p in j.ranges if p.rows).get(at, NONE)
        lacking = {table: offsets - (holds(table, {at: back}).get(at, NONE) if back else NONE) for table in tables}
        for offset in offsets:
            fed = [t for t in tables if t in row.written or offset in history[t].get(at, NONE)]
            if not fed:
                left[NO_TABLE] += 1
                continue
            targets = tuple(table for table in fed if offset in lacking[table])
            if late := next((table for table in targets if table in changing), None):
                left[CHANGING.format(late)] += 1
                continue
            groups[targets].setdefault(at, BitMap64()).add(offset)
    if not groups:
        return Chosen(left=dict(left))
    targets = max(groups, key=lambda each: (sum(map(len, groups[each].values())), each))
    offsets_of = _first(groups[targets])
    ids = {at.topic: topic_ids[at.topic] for at in offsets_of}
    return Chosen(targets, offsets_of, ids, dict(left))


def _with_rows(
    places: Mapping[tuple[str, TopicPartition], BitMap64], rows: Iterable[LedgerRow]
) -> tuple[dict[tuple[str, TopicPartition], tuple[LedgerRow | None, BitMap64]], Offsets]:
    """Each place with its batch's row of the ledger, and the offsets of topics that were created again since."""
    found: dict[tuple[str, TopicPartition], tuple[LedgerRow | None, BitMap64]] = {
        place: (None, offsets) for place, offsets in places.items()
    }
    former = Offsets()
    for row in rows:
        if row.former:
            former.setdefault(row.at, BitMap64()).update(of_range(row.start, row.end))
        place = (row.batch_id, row.at)
        if place in places:
            found[place] = (row, places[place])
    return found, former


def _is_history(job: RangeJob) -> bool:
    return not job.conditional and not job.letters


def _of(job: RangeJob, row: LedgerRow) -> bool:
    return job.topic_ids.get(row.topic, row.topic_id) == row.topic_id


def _first(offsets: Offsets) -> Offsets:
    taken, room = Offsets(), MOST
    for at in sorted(offsets):
        if room:
            taken[at] = BitMap64(list(offsets[at])[:room])
            room -= len(taken[at])
    return taken
