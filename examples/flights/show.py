"""What the demo prints: the events of a run; tables, snapshots, delays, dead letters, read with pyiceberg alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from dagster import EventLogEntry
from pyiceberg.table import Table as IcebergTable
from rich.console import Console
from rich.table import Table

from calve.sink_core.tables.history.record import SummaryKeys, from_summary

_PLAIN_WIDTH = 120
_VALUE_CHARACTERS = 60


def console() -> Console:
    """The terminal; lines of 120 characters where the output is no terminal."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def total_rows(table: IcebergTable | None) -> int:
    """The number of rows of the head; 0 for a table that doesn't exist or was never written to."""
    head = table.current_snapshot() if table else None
    return int(head.summary["total-records"] or 0) if head and head.summary else 0


def snapshots(table: IcebergTable, keys: SummaryKeys) -> Table:
    """Each snapshot with the control offset and the batches that Calve stored in it."""
    shown = _table("air.flights: snapshots", "snapshot", "committed (UTC)", ">control offset", "batches", ">rows added")
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        own = from_summary(keys, summary)
        committed = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).strftime("%H:%M:%S")
        stored = (f"{own.stored_offset}", ", ".join(batch[:8] for batch in own.batches)) if own else ("", "")
        shown.add_row(str(snapshot.snapshot_id), committed, *stored, _number(int(summary.get("added-records", 0))))
    return shown


def rows_by_month(table: IcebergTable) -> Table:
    """Rows and files per partition, from the metadata."""
    files = table.inspect.files().select(["partition", "record_count"])
    months = [_month(partition["time_hour_month"]) for partition in files["partition"].to_pylist()]
    sums = pa.table({"month": months, "rows": files["record_count"]}).group_by("month")
    shown = _table("air.flights: partitions", "month(time_hour)", ">rows", ">files")
    for month in sums.aggregate([("rows", "sum"), ("rows", "count")]).sort_by("month").to_pylist():
        shown.add_row(month["month"], _number(month["rows_sum"]), _number(month["rows_count"]))
    return shown


def delays(table: IcebergTable, airlines: dict[str, str]) -> Table:
    """Departure delays by carrier, the worst first."""
    shown = _table("air.delays_by_carrier", "carrier", "airline", ">flights", ">cancelled", ">mean delay, minutes")
    for row in table.scan().to_arrow().sort_by([("mean_dep_delay", "descending")]).to_pylist():
        mean = f"{row['mean_dep_delay'] or 0:.1f}"
        name = airlines.get(row["carrier"], "")
        shown.add_row(row["carrier"], name, _number(row["flights"]), _number(row["cancelled"]), mean)
    return shown


def dead_letters(table: IcebergTable) -> Table:
    """Each record that could not be stored, with its place in Kafka and the reason."""
    shown = _table("air.flights_dead_letters", "record", "stage", "error", "value")
    fields = ("topic", "partition", "offset", "stage", "error", "value")
    for row in table.scan(selected_fields=fields).to_arrow().sort_by([("partition", "ascending")]).to_pylist():
        value = (row["value"] or b"").decode("utf-8", "backslashreplace")[:_VALUE_CHARACTERS]
        shown.add_row(f"{row['topic']}[{row['partition']}]@{row['offset']}", row["stage"], row["error"], value)
    return shown


def ledger(table: IcebergTable) -> Table:
    """What became of every offset: the sums of the ledger."""
    names = ("records", "gaps", "tombstones", "dead_lettered")
    rows = table.scan(selected_fields=("start_offset", "end_offset", *names, "written")).to_arrow()
    offsets = _sum(rows["end_offset"]) - _sum(rows["start_offset"])
    written = sum(dict(row).get("air.flights", 0) for row in rows["written"].to_pylist())
    shown = _table(
        "the ledger: what became of every offset", ">offsets", *(f">{name}" for name in names), ">rows written"
    )
    shown.add_row(*map(_number, (offsets, *(_sum(rows[name]) for name in names), written)))
    return shown


def event(entry: EventLogEntry) -> str:
    """A line for an event of a run: what an op said, published, committed or checked; empty for all others."""
    if entry.dagster_event is None:
        # Dagster's own line: the tables already have everything.
        return "" if entry.user_message.startswith("Skipping step") else entry.user_message
    if (made := entry.asset_materialization) is not None:
        return _materialization(made.asset_key.to_user_string(), made.metadata)
    if entry.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        check = entry.dagster_event.asset_check_evaluation_data
        passed = "passed" if check.passed else "failed"
        return f"check {check.check_name} of {check.asset_key.to_user_string()} {passed}: {check.description}"
    return ""


def _materialization(asset: str, metadata: Mapping[str, dg.MetadataValue]) -> str:
    numbers = {name: value.value for name, value in metadata.items() if isinstance(value, dg.IntMetadataValue)}
    if "rows added" in numbers:
        return f"{asset}: {numbers['rows added'] or 0:,} rows, snapshot {metadata['snapshot id'].value}"
    return f"{asset}: {numbers.get('records') or 0:,} records published{_engine(metadata)}"


def _engine(metadata: Mapping[str, dg.MetadataValue]) -> str:
    """The Spark application that wrote a batch, and in how many tasks."""
    known = {name: value.value for name, value in metadata.items()}
    spark = f" {known['spark application']} on {known['spark master']}" if "spark application" in known else ""
    return f", written by {known['engine']}{spark} in {known['tasks']} tasks" if "engine" in known else ""


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)  # pyright: ignore[reportAttributeAccessIssue] - made at import


def _table(title: str, *columns: str) -> Table:
    """A column's title that begins with ">" aligns it to the right."""
    shown = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        shown.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    return shown


def _month(months_since_1970: int) -> str:
    return f"{1970 + months_since_1970 // 12}-{months_since_1970 % 12 + 1:02}"


def _number(value: int) -> str:
    return f"{value:,}"
