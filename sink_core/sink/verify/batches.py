"""The log against the ledger, batch by batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calve.sink_core.sink.ledger.rows import BatchSums, Ledger, combined, digest
from calve.sink_core.sink.verify.history import History, Published
from calve.sink_core.tables.proof import Evidence


@dataclass(frozen=True, slots=True)
class Internal:
    """The names of the pipeline's own two tables; every other table of a batch is a data table."""

    ledger: str
    dead_letters: str


def compare(
    history: History,
    ledger: Ledger,
    tables: Internal,
    evidence: Evidence,
    only: Mapping[str, Published] | None = None,
) -> None:
    """Every published batch is in the ledger with the same positions, totals and rows, and no other batch is.

    With `only` no other batches are looked at, and the ledger has no others.
    """
    for batch_id, published in (history.batches if only is None else only).items():
        if published.kind != "batch":
            continue
        evidence.count("batches")
        sums = ledger.batches.get(batch_id)
        if sums is None:
            message = f"batch {batch_id} is published at control offset {published.offset} and has no row in the ledger"
            evidence.violation("batch-not-in-ledger", tables.ledger, message, batches=(batch_id,))
            continue
        new = digest((at, end) for at, end in published.new.items() if ledger.begins.get(at, end) < end)
        if sums.ends != combined(published.ends, new):
            message = f"batch {batch_id}: the ledger's end offsets are not the positions that the batch published"
            evidence.violation("ledger-positions", tables.ledger, message, batches=(batch_id,))
        _compare_totals(batch_id, published, sums, tables, evidence)
        _compare_rows(batch_id, published, sums, tables, evidence)
    unknown = sorted(ledger.batches.keys() - history.batches.keys())
    if history.base is None:
        for batch_id in unknown:
            message = f"batch {batch_id} is in the ledger and was never published"
            evidence.violation("batch-not-in-log", tables.ledger, message, batches=(batch_id,))
    elif only is None and (trimmed := history.trimmed_batches) is not None and len(unknown) != trimmed:
        kind = "batch-not-in-log" if len(unknown) > trimmed else "batch-not-in-ledger"
        message = f"{len(unknown)} batches of the ledger are not in the log, {trimmed} were published before it begins"
        evidence.violation(kind, tables.ledger, message)


def expected_rows(
    history: History, ledger: Ledger, table: str, tables: Internal, only: Mapping[str, Published] | None = None
) -> dict[str, int]:
    """Rows that each batch holds for `table`, or the records that it changed rows by, for batches that have files: as
    published, else as the ledger says.
    """
    published = history.batches if only is None else only
    # A batch may have nothing but deletes, which stand for tombstones.
    expected = {
        batch_id: p.rows[table]
        for batch_id, p in published.items()
        if p.rows.get(table) or (table in p.rows and p.kind == "batch")
    }
    for batch_id, sums in ledger.batches.items():
        if batch_id not in history.batches and (rows := _by_ledger(sums, table, tables)):
            expected[batch_id] = rows
    return expected


def _by_ledger(sums: BatchSums, table: str, tables: Internal) -> int:
    if table == tables.ledger:
        return sums.rows
    return sums.dead_lettered if table == tables.dead_letters else sums.written.get(table, 0)


def _compare_totals(batch_id: str, published: Published, sums: BatchSums, tables: Internal, evidence: Evidence) -> None:
    for name, total in sums.numbers().items():
        if published.totals.get(name, total) != total:
            message = f"batch {batch_id}: {name} are {published.totals[name]} as published, {total} in the ledger"
            evidence.violation("ledger-totals", tables.ledger, message, batches=(batch_id,))


def _compare_rows(batch_id: str, published: Published, sums: BatchSums, tables: Internal, evidence: Evidence) -> None:
    """By its records a batch holds so many rows for a table; ledger and events must say the same."""
    for table in sorted(published.tables):
        if table == tables.ledger:
            by_records, said = sums.rows, {}
        elif table == tables.dead_letters:
            by_records, said = sums.dead_lettered, {}
        else:
            by_records, said = sums.due.get(table, 0), {"the ledger's `written`": sums.written.get(table, 0)}
        for where, rows in {**said, "its DATA_WRITTEN": published.rows.get(table, 0)}.items():
            if rows != by_records:
                message = f"batch {batch_id}: {rows} rows for {table} by {where}, {by_records} by the ledger's records"
                evidence.violation("batch-rows", table, message, batches=(batch_id,))
