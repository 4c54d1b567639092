"""What the ledger says was read, and whether the tables agree with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.read.rows import all_rows
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tables.history.record import SnapshotRecord
from calve.sink_core.tables.history.view import TableView

_COLUMNS = (
    "batch_id",
    "planned_at",
    "topic",
    "topic_id",
    "partition",
    "start_offset",
    "end_offset",
    "dead_lettered",
    "written",
)


@dataclass(slots=True)
class Accounts:
    """The fold of the ledger's rows. `batches` has by id the tables that got rows; all else is of topics' last ids."""

    batches: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    topic_ids: dict[str, str] = field(default_factory=dict[str, str])
    begins: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    ends: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


def accounts_of(ledger: Table, dead_letter_table: str) -> Accounts:
    """Read the whole ledger; memory grows with its rows. Raises Unreachable."""
    return fold(all_rows(ledger, _COLUMNS).to_pylist(), dead_letter_table)


def fold(rows: Iterable[Mapping[str, Any]], dead_letter_table: str) -> Accounts:
    """Pure. Of a topic that was created again the rows of its last id say where it is."""
    accounts = Accounts()
    ordered = sorted(rows, key=lambda row: row["planned_at"])
    for row in ordered:
        accounts.topic_ids[row["topic"]] = row["topic_id"]
        fed = accounts.batches.setdefault(row["batch_id"], set())
        fed.update(table for table, number in dict(row["written"] or ()).items() if number)
        if row["dead_lettered"]:
            fed.add(dead_letter_table)
    for row in ordered:
        if row["topic_id"] == accounts.topic_ids[row["topic"]]:
            at = TopicPartition(row["topic"], row["partition"])
            accounts.begins[at] = min(row["start_offset"], accounts.begins.get(at, row["start_offset"]))
            accounts.ends[at] = max(row["end_offset"], accounts.ends.get(at, 0))
    return accounts


def disagreement(
    accounts: Accounts, views: Mapping[str, TableView], ledger: str, *, dropped: Collection[str] = ()
) -> str:
    """What a table lacks of the ledger's batches, or the ledger of a table's; empty if neither. Pure.

    `dropped` are tables of the pipeline that are not there.

    A snapshot that is expired does not say any more what it held. The ledger's snapshot tells by which control offset
    it had a batch; a table that has come at least as far has it too.
    """
    for batch_id, fed in accounts.batches.items():
        if gone := sorted(fed.intersection(dropped)):
            return f"{gone[0]} is not there, and the ledger has batch {batch_id} with rows of it"
    taken = _taken_at(views[ledger])
    for name, view in sorted(views.items()):
        batches, reached = view.held, _reached(view)
        unknown = sorted(batches - accounts.batches.keys())
        if unknown:
            return f"{name} holds batch {unknown[0]}, which the ledger lacks"
        for batch_id, fed in accounts.batches.items():
            if name not in fed or batch_id in batches:
                continue
            topic_id, offset = taken.get(batch_id, taken.get("", ("", 0)))
            if reached.get(topic_id, -1) < offset:
                return (
                    f"{name} lacks batch {batch_id}, which the ledger has, and the event that names its files is gone"
                )
    return ""


def _owns(view: TableView) -> list[SnapshotRecord]:
    """What the head's ancestors of ours say, newest first."""
    return [snapshot.own for snapshot in view.ancestors() if snapshot is not None and snapshot.own is not None]


def _taken_at(ledger: TableView) -> dict[str, tuple[str, int]]:
    """By batch the control topic's id and the offset below which the ledger took it in; "" for those of expired
    snapshots: no later than the oldest that is left.
    """
    taken: dict[str, tuple[str, int]] = {}
    for own in _owns(ledger):
        taken[""] = (own.control_topic_id, own.stored_offset)
        taken.update(dict.fromkeys(own.batches, taken[""]))
    return taken


def _reached(view: TableView) -> dict[str, int]:
    """By control topic id how far the table has come."""
    reached: dict[str, int] = {}
    for own in _owns(view):
        reached[own.control_topic_id] = max(own.stored_offset, reached.get(own.control_topic_id, 0))
    return reached
