"""Of many changes the last one of each key. Pure."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink_core.changes.rows import DELETES, OFFSET, SOURCE, source_of
from sink_core.errors import BadRecord


@dataclass(frozen=True, slots=True)
class Folded:
    """What becomes of changes: `keys` whose rows go, each once, and the `rows` that come, with the columns of the
    table. A key that comes goes too: nobody knows whether the table has a row of it.
    """

    keys: pa.Table
    rows: pa.Table


def last_by_key(changes: pa.Table, key: Sequence[int], *, table: str, topics: Sequence[str]) -> pa.Table:
    """The change with the highest offset of each key, in the order they were given. `key` are places of columns.

    Folding what was folded, with more, is folding all of it. Raises BadRecord for a key from two source partitions:
    between these there is no order.
    """
    if not len(changes):
        return changes
    by_offset = np.argsort(changes.column(OFFSET).to_numpy(), kind="stable")
    rank = np.empty(len(changes), np.int64)
    rank[by_offset] = np.arange(len(changes))
    names = [f"key{i}" for i in range(len(key))]
    keyed = pa.table(
        {
            **{name: changes.column(at) for name, at in zip(names, key, strict=True)},
            "rank": pa.array(rank),
            "source": changes.column(SOURCE),
        }
    )
    wanted = [("rank", "max"), ("source", "min"), ("source", "max")]
    groups = keyed.group_by(names, use_threads=False).aggregate(wanted)
    apart = groups.filter(pc.not_equal(groups["source_min"], groups["source_max"]))
    if len(apart):
        raise _two_sources(apart, names, table, topics)
    last = by_offset[groups["rank_max"].to_numpy()]
    return changes.take(pa.array(np.sort(last)))


def folded(last: pa.Table, key: Sequence[int]) -> Folded:
    """What the last changes, one for each key, do to a table."""
    stays = last.filter(pc.invert(last.column(DELETES)))
    return Folded(last.select(list(key)), stays.select(list(range(stays.num_columns + DELETES))))


def _two_sources(apart: pa.Table, names: Sequence[str], table: str, topics: Sequence[str]) -> BadRecord:
    first = apart.slice(0, 1).to_pylist()[0]
    one, other = (source_of(first[name], topics) for name in ("source_min", "source_max"))
    shown = ", ".join(repr(first[name])[:100] for name in names)
    return BadRecord(
        f"{table}: key ({shown}) has changes in {one} and {other} in one batch, and {len(apart) - 1:,} other keys in "
        "two partitions too: which change is the last can't be told; nothing was published",
        hint="have producers send all changes of a key to one partition, and name as key what tells rows apart",
    )
