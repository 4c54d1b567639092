"""A table's snapshots against the batches that fed it: each batch in exactly one, with the rows it published. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.proof import Evidence


@dataclass(frozen=True, slots=True)
class Contents:
    """What the head's ancestors say a table holds.

    `snapshots` by batch; `rows` by batch; `replaced` rows left the table for those of range jobs; `oldest_stored` is
    the control offset (exclusive) below which batches may have been in a snapshot that is expired.
    """

    snapshots: Mapping[str, tuple[int, ...]]
    rows: Mapping[str, int]
    oldest_stored: int
    replaced: int = 0


def contents(view: TableView) -> Contents:
    """Fold the ancestry of the head; a cherry-picked copy holds what its source says."""
    snapshots: dict[str, tuple[int, ...]] = {}
    rows: dict[str, int] = {}
    oldest_stored = replaced = 0
    for snapshot in view.ancestors():
        own = view.own_or_copied(snapshot) if snapshot is not None else None
        if snapshot is None or own is None:
            continue
        oldest_stored = own.stored_offset
        replaced += sum(own.replaced.values())
        for batch_id in own.batches:
            snapshots[batch_id] = (*snapshots.get(batch_id, ()), snapshot.snapshot_id)
            rows[batch_id] = rows.get(batch_id, 0) + own.counts.get(batch_id, 0)
    return Contents(snapshots, rows, oldest_stored, replaced)


def given_up(view: TableView, batches: Iterable[str], published_at: Mapping[str, int]) -> set[str]:
    """Those of `batches` that the table lacks because somebody answered a finding so; of batches whose events were
    trimmed, those that may be among them.
    """
    ranges = view.latest.given_up if view.latest else ()
    if not ranges:
        return set()
    held = contents(view).rows
    return {
        batch_id
        for batch_id in batches
        if batch_id not in held and any(start <= published_at.get(batch_id, start) < end for start, end in ranges)
    }


def compare(
    view: TableView,
    expected: Mapping[str, int],
    published_at: Mapping[str, int],
    pending: Iterable[str],
    evidence: Evidence,
    *,
    whole: bool,
    excused: Collection[str] = (),
    all_batches: bool = True,
) -> None:
    """Hold the table's snapshots against `expected` rows per batch; `whole` says that none of them is expired.

    `published_at` is the control offset of each batch that is still in the log; `pending` are the batches that are
    published and that the table has not yet, which is a state and not a violation. `excused` are those whose
    rows a range job has put there in their place. Unless `all_batches` are in `expected`, snapshots may hold others.
    """
    held, waiting = contents(view), set(pending)
    evidence.count("snapshots", len(view.snapshots))
    evidence.uncommitted[view.table] = len(waiting - held.rows.keys())
    unknown: list[str] = []
    let_go = given_up(view, expected, published_at)
    if let_go:
        rows = sum(expected[batch_id] for batch_id in let_go)
        why = f"{len(let_go)} batches ({rows} rows): given up by an answer to a finding"
        evidence.skipped(view.table, why)
    for batch_id, rows in expected.items():
        if batch_id in held.rows:
            _compare_rows(view.table, batch_id, rows, held, evidence)
        elif batch_id in waiting or batch_id in let_go or batch_id in excused:
            continue
        elif not whole and published_at.get(batch_id, 0) < held.oldest_stored:
            unknown.append(batch_id)
        else:
            message = f"batch {batch_id} ({rows} rows) is in no snapshot, and the table says that it has taken it in"
            evidence.violation("batch-missing", view.table, message, batches=(batch_id,))
    for batch_id in held.rows.keys() - expected.keys() if all_batches else ():
        if not held.rows[batch_id]:
            # Of a batch with nothing but deletes the ledger says nothing.
            continue
        message = f"snapshot {_ids(held, batch_id)} holds batch {batch_id}, which published nothing for this table"
        evidence.violation("batch-unknown", view.table, message, batches=(batch_id,))
    if unknown:
        why = f"{len(unknown)} batches can't be looked up: the snapshots that took them in have been expired"
        evidence.skipped(view.table, why)


def _compare_rows(table: str, batch_id: str, rows: int, held: Contents, evidence: Evidence) -> None:
    if len(held.snapshots[batch_id]) > 1:
        message = f"batch {batch_id} is in {len(held.snapshots[batch_id])} snapshots: {_ids(held, batch_id)}"
        evidence.violation("batch-twice", table, message, batches=(batch_id,))
    elif held.rows[batch_id] != rows:
        message = f"batch {batch_id}: {held.rows[batch_id]} rows in snapshot {_ids(held, batch_id)}, {rows} published"
        evidence.violation("batch-rows", table, message, batches=(batch_id,))


def _ids(held: Contents, batch_id: str) -> str:
    return ", ".join(map(str, held.snapshots[batch_id]))
