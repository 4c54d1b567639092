"""Ledgers, logs and tables made by hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from calve.sink_core.offsets import TopicPartition, offsets_to_dense
from calve.sink_core.sink.ledger.rows import Ledger, LedgerRow
from calve.sink_core.sink.verify.batches import Internal
from calve.sink_core.sink.verify.history import History
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.record import SnapshotRecord
from calve.sink_core.tables.history.view import SnapshotView, TableView
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.proof import Evidence

DATA, LEDGER, DEAD = "air.flights", "calve.p_ledger", "calve.p_dead_letters"
INTERNAL = Internal(LEDGER, DEAD)
AT = TopicPartition("flights", 3)
SUMMED = ("records", "gaps", "tombstones", "filtered", "dead_lettered", "value_bytes", "lost")


def row(batch_id: str, start: int, end: int, *, at: TopicPartition = AT, dead: int = 0, **changes: object) -> LedgerRow:
    """A row that adds up, unless `changes` says otherwise."""
    records = end - start
    made = LedgerRow(batch_id, *at, start, end, records, 0, 0, 0, dead, 10 * records, 0, {DATA: records - dead})
    return made._replace(**changes)


def fold(rows: Iterable[LedgerRow], evidence: Evidence | None = None) -> Ledger:
    ledger = Ledger()
    for each in rows:
        ledger.take(each, evidence or Evidence())
    return ledger


def complete(
    batch_id: str,
    predecessor: str,
    positions: Mapping[TopicPartition, int],
    *,
    kind: str = "batch",
    rows: Sequence[LedgerRow] = (),
) -> DataComplete:
    """The event of a batch whose ledger rows are `rows`."""
    sums = {name: sum(getattr(r, name) for r in rows) for name in SUMMED}
    totals = {"offsets": sum(r.end - r.start for r in rows), **sums} if kind == "batch" else {}
    return DataComplete(
        pipeline_id="p",
        batch_id=batch_id,
        predecessor=predecessor,
        kind=kind,
        tables=(DATA, LEDGER, DEAD) if kind == "batch" else (),
        totals=totals,
        topic_ids={"flights": "id"},
        positions=offsets_to_dense(positions),
        through_ms={},
        through_is_estimate=False,
        value_bytes_by_topic={},
        records_by_topic={},
    )


def written(batch_id: str, table: str, rows: int) -> DataWritten:
    ref = ManifestRef(f"{table}/{batch_id}.avro", 1, "", 0, 0, 1, rows, 1, ())
    return DataWritten(pipeline_id="p", batch_id=batch_id, table=table, table_uuid="u", schema_id=0, manifests=(ref,))


def publish(batch_id: str, predecessor: str, rows: Sequence[LedgerRow]) -> list[DataWritten | DataComplete]:
    """The events of a batch as a publisher writes them."""
    data, dead = sum(r.written.get(DATA, 0) for r in rows), sum(r.dead_lettered for r in rows)
    events = [(DATA, data), (LEDGER, len(rows)), (DEAD, dead)]
    positions = {r.at: r.end for r in rows}
    return [
        *(written(batch_id, table, number) for table, number in events if number),
        complete(batch_id, predecessor, positions, rows=rows),
    ]


def history(events: Iterable[DataWritten | DataComplete], evidence: Evidence | None = None) -> History:
    made, evidence = History("control"), evidence or Evidence()
    for offset, event in enumerate(events):
        made.apply(offset, event, evidence)
    made.finish(evidence)
    return made


def bootstrapped(*batches: tuple[str, Sequence[LedgerRow]], begin: int = 0) -> list[DataWritten | DataComplete]:
    """A log: bootstrap at `begin` on AT, then the batches in order."""
    events: list[DataWritten | DataComplete] = [complete("b0", "", {AT: begin}, kind="bootstrap")]
    before = "b0"
    for batch_id, rows in batches:
        events += publish(batch_id, before, rows)
        before = batch_id
    return events


def own(stored: int, counts: Mapping[str, int]) -> SnapshotRecord:
    return SnapshotRecord(stored, str(uuid.uuid4()), None, tuple(counts), dict(counts), "", "", "")


def table_view(*snapshots: tuple[int, SnapshotRecord | None], expired: bool = False, table: str = DATA) -> TableView:
    """Snapshots oldest first, the last is the head; `expired` cuts what was before the first."""
    views: dict[int, SnapshotView] = {}
    parent = 1 if expired else None
    for snapshot_id, said in snapshots:
        views[snapshot_id] = SnapshotView(snapshot_id, parent, None, said)
        parent = snapshot_id
    return TableView(table, "u", parent, parent, views)


def kinds(evidence: Evidence) -> list[str]:
    return [violation.kind for violation in evidence.violations]
