"""Changes of a batch that keep values of earlier ones: `KEEP` gives way to what the last change before has. Pure.

What a row keeps it has from an earlier change of its key, back to one that deletes: what was there before that was
another row.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from calve.sink_core.records.changes.fold import ascending
from calve.sink_core.records.changes.rows import DELETES, OFFSET
from calve.sink_core.records.changes.unavailable import KEEP, UNAVAILABLE, stands_in, with_marker
from calve.sink_core.records.columns.arrow import Bools, true


def needed(changes: pa.Table, key: Sequence[int]) -> pa.Table:
    """Without what no later change can keep anything of: what came before a change of its key that deletes, or has all
    of its values. `key` are places of columns, whose changes all come from one source partition.

    More changes may come, whichever are the older ones: of what is left and these as much is needed as of all.
    """
    whole = ~np.logical_or.reduce([np.zeros(len(changes), np.bool_), *_keeps(changes, key).values()])
    order, first = _by_key(changes, key)
    places = np.arange(len(changes))
    starts = np.flatnonzero(first)
    if not len(starts):
        return changes
    since = np.maximum.reduceat(np.where(whole[order], places, -1), starts)
    kept = places >= np.repeat(since, np.diff(np.append(starts, len(changes))))
    return changes.take(pa.array(np.sort(order[kept])))


def filled(changes: pa.Table, key: Sequence[int]) -> pa.Table:
    """All changes of their keys in the batch, each with what it keeps of earlier ones; what is left to keep is the
    table's. After a change that deletes there is nothing to keep.
    """
    keeps = _keeps(changes, key)
    if not any(rows.any() for rows in keeps.values()):
        return changes
    order, first = _by_key(changes, key)
    deletes = true(changes.column(DELETES).combine_chunks())[order]
    places = np.arange(len(changes))
    begin = np.maximum.accumulate(np.where(first, places, 0))
    for at, rows in keeps.items():
        wants = rows[order]
        known = np.maximum.accumulate(np.where(wants, -1, places))
        found = wants & (known >= begin)
        source = np.arange(len(changes))
        source[order[found]] = order[known[found]]
        lost = np.zeros(len(changes), np.bool_)
        lost[order[found]] = deletes[known[found]]
        column = with_marker(changes.column(at).take(pa.array(source)), UNAVAILABLE, lost)
        changes = changes.set_column(at, changes.field(at), column)
    return changes


def _keeps(changes: pa.Table, key: Sequence[int]) -> dict[int, Bools]:
    """By place of a column, which changes keep its value. Those of the key never do."""
    columns = range(changes.num_columns + DELETES)
    return {at: stands_in(changes.column(at), KEEP) for at in columns if at not in key}


def _by_key(changes: pa.Table, key: Sequence[int]) -> tuple[npt.NDArray[np.int64], Bools]:
    """Places by key and offset, and which of these are the first of their key."""
    keys = [changes.column(at) for at in key]
    order = ascending(*keys, changes.column(OFFSET))
    first = np.zeros(len(order), np.bool_)
    first[:1] = True
    for column in keys:
        ordered = column.take(pa.array(order)).combine_chunks()
        first[1:] |= true(pc.not_equal(ordered[1:], ordered[:-1]))
    return order, first
