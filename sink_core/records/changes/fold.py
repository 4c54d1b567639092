"""Of many changes the last one of each key. Pure."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from calve.sink_core.codes import Code
from calve.sink_core.errors import BadRecord
from calve.sink_core.records.changes.rows import DELETES, OFFSET, SOURCE, source_of

_STANDS = -1


@dataclass(frozen=True, slots=True)
class Folded:
    """What becomes of changes: `keys` whose rows go, each once, and the `rows` that come, with the columns of the
    table. A key that comes goes too: nobody knows whether the table has a row of it.
    """

    keys: pa.Table
    rows: pa.Table


def last_by_key(
    changes: pa.Table,
    key: Sequence[int],
    *,
    table: str,
    topics: Sequence[str],
    order: pa.ChunkedArray | None = None,
) -> pa.Table:
    """The last change of each key, in the order they were given. `key` are places of columns. Last is the one of the
    largest `order`, given for each change; among equals, and without, the one with the highest offset.

    Folding what was folded, with more, is folding all of it. Without `order` raises BadRecord for a key from two source
    partitions: between these there is none.
    """
    if not len(changes):
        return changes
    sources = changes.column(SOURCE)
    names, keys = _keys(changes, key)
    by_rank = ascending(changes.column(OFFSET)) if order is None else ascending(order, changes.column(OFFSET), sources)
    keyed = pa.table({**keys, "rank": _ranks(by_rank), "source": sources})
    wanted = [("rank", "max"), ("source", "min"), ("source", "max")]
    groups = keyed.group_by(names, use_threads=False).aggregate(wanted)
    if order is None:
        apart = groups.filter(pc.not_equal(groups["source_min"], groups["source_max"]))
        if len(apart):
            raise _two_sources(apart, names, table, topics)
    last = by_rank[groups["rank_max"].to_numpy()]
    return changes.take(pa.array(np.sort(last)))


def not_outdated(last: pa.Table, key: Sequence[int], order: pa.ChunkedArray, existing: pa.Table) -> pa.Table:
    """Of the last changes, one for each key, those that are no older than the row of their key, if that is among
    `existing` (`existing_rows_schema`), whose rows need not be of these keys.
    """
    names, keys = _keys(last, key)
    stand = existing.rename_columns([*names, "order"])
    places = pa.array(np.concatenate([np.arange(len(last)), np.full(len(stand), _STANDS)]))
    both = pa.concat_tables([pa.table({**keys, "order": order}), stand]).append_column("place", places)
    # A change of the same order comes from the same record, or from one that was read later.
    by_rank = ascending(both["order"], both["place"])
    ranked = both.select(names).append_column("rank", _ranks(by_rank))
    groups = ranked.group_by(names, use_threads=False).aggregate([("rank", "max")])
    winners = places.to_numpy()[by_rank[groups["rank_max"].to_numpy()]]
    return last.take(pa.array(np.sort(winners[winners != _STANDS])))


def check_unmoved(last: pa.Table, key: Sequence[int], existing: pa.Table, *, table: str, topics: Sequence[str]) -> None:
    """Raise BadRecord for a key among the last changes, one for each, whose row is among `existing` and came from
    another source partition: which of the two is newer nobody knows. `existing` as of `existing_rows_schema`.
    """
    names, keys = _keys(last, key)
    changes = pa.table({**keys, "now": last.column(SOURCE), "was": pa.nulls(len(last), pa.int64())})
    stand = existing.rename_columns([*names, "was"]).append_column("now", pa.nulls(len(existing), pa.int64()))
    both = pa.concat_tables([changes, stand.select(changes.column_names)])
    groups = both.group_by(names, use_threads=False).aggregate([("now", "max"), ("was", "max")])
    moved = groups.filter(pc.not_equal(groups["now_max"], groups["was_max"]))
    if not len(moved):
        return
    first = moved.slice(0, 1).to_pylist()[0]
    now, was = (source_of(first[name], topics) for name in ("now_max", "was_max"))
    raise BadRecord(
        f"{table}: key ({_shown(first, names)}) has a change in {now}, and its row came from {was}, and so have "
        f"{len(moved) - 1:,} other keys moved: which change is the last can't be told; nothing was published",
        hint="have producers send all changes of a key to one partition, or set order_by; if what comes now is newer, "
        "as after partitions were added to a topic that was read to its end, set on_moved_key: ignore",
        code=Code.KEY_MOVED,
    )


def folded(last: pa.Table, key: Sequence[int], *, soft: bool = False) -> Folded:
    """What the last changes, one for each key, do to a table. If `soft`, a row that is gone comes too."""
    stays = last if soft else last.filter(pc.invert(last.column(DELETES)))
    return Folded(last.select(list(key)), stays.select(list(range(stays.num_columns + DELETES))))


def _keys(rows: pa.Table, key: Sequence[int]) -> tuple[list[str], dict[str, pa.ChunkedArray]]:
    names = [f"key{i}" for i in range(len(key))]
    return names, {name: rows.column(at) for name, at in zip(names, key, strict=True)}


def ascending(*columns: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Places in ascending order of the first column, among equals of the next."""
    table = pa.table({str(number): column for number, column in enumerate(columns)})
    return pc.sort_indices(table, [(name, "ascending") for name in table.column_names]).to_numpy().astype(np.int64)


def _ranks(by_rank: npt.NDArray[np.int64]) -> pa.Array:
    ranks = np.empty(len(by_rank), np.int64)
    ranks[by_rank] = np.arange(len(by_rank))
    return pa.array(ranks)


def _two_sources(apart: pa.Table, names: Sequence[str], table: str, topics: Sequence[str]) -> BadRecord:
    first = apart.slice(0, 1).to_pylist()[0]
    one, other = (source_of(first[name], topics) for name in ("source_min", "source_max"))
    return BadRecord(
        f"{table}: key ({_shown(first, names)}) has changes in {one} and {other} in one batch, and "
        f"{len(apart) - 1:,} other keys in two partitions too: which change is the last can't be told; "
        "nothing was published",
        hint="have producers send all changes of a key to one partition, or set order_by; name as key what tells "
        "rows apart",
        code=Code.KEY_IN_TWO_PARTITIONS,
    )


def _shown(group: Mapping[str, object], names: Sequence[str]) -> str:
    return ", ".join(repr(group[name])[:100] for name in names)
