"""What Dagster shows of batches and tables. Pure: reports in, metadata out. Numbers become plots; ids stay text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.moving import engine_metadata, step_times
from calve.sink_core.wording import moment_text

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from calve.sink_core.sink.batches import BatchReport
    from calve.sink_core.sink.dead_letters.listing import Letters
    from calve.sink_core.sink.range_jobs.jobs import RangePreview, RangeReport
    from calve.sink_core.tables.commit import TableCommit

SHOWN_RANGES = 100

_COLUMNS = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        dg.TableColumn("partition", "int"),
        dg.TableColumn("start", "int", description="first offset, inclusive"),
        dg.TableColumn("end", "int", description="last offset, exclusive"),
        dg.TableColumn("offsets", "int"),
    ]
)


def of_batch(batch: BatchReport) -> dict[str, Any]:
    """A published batch: its ranges as a table, what it moved, the lag it left and the seconds each step took."""
    return {
        "batch id": batch.batch_id,
        "records": batch.records,
        "bytes": batch.value_bytes,
        "dead letters": 0,
        **batch.not_stored,
        **({"rows left out": sum(batch.left_out.values())} if batch.left_out else {}),
        **({"dropped fields": dg.MetadataValue.json(batch.dropped)} if batch.dropped else {}),
        **engine_metadata(batch.written_by),
        "lag (offsets)": batch.lag_after,
        **step_times(batch.seconds),
        "ranges": _ranges(batch.ranges),
        **({"ranges not shown": len(batch.ranges) - SHOWN_RANGES} if len(batch.ranges) > SHOWN_RANGES else {}),
    }


def of_commit(commit: TableCommit, now_ms: int) -> dict[str, Any]:
    """A snapshot of ours, at the time it was made. Its id exceeds what the browser's numbers keep exactly."""
    known: dict[str, Any] = {
        **({} if commit.total_rows is None else {"dagster/row_count": commit.total_rows}),
        "rows added": commit.rows,
        "files added": commit.files,
        "batches": len(commit.batches),
        "total files": commit.total_files,
        "total bytes": commit.total_bytes,
        "snapshot id": str(commit.snapshot_id),
        "lost races": commit.conflicts,
        "commit time (s)": commit.seconds,
    }
    if commit.valid_through_ms:
        known["valid through"] = dg.MetadataValue.timestamp(commit.valid_through_ms / 1000)
        known["behind (s)"] = round(max(0, now_ms - commit.valid_through_ms) / 1000, 3)
    return known


def of_letters(letters: Letters) -> dict[str, Any]:
    """The newest dead letters, and how many there are of each error, as tables."""
    newest = [
        dg.TableRecord(
            {
                "record": f"{letter.topic}[{letter.partition}] {letter.offset}",
                "timestamp": "-" if letter.timestamp_ms is None else moment_text(letter.timestamp_ms),
                "stage": letter.stage,
                "error": letter.error,
                "value": letter.preview,
                "bytes": letter.value_bytes,
            }
        )
        for letter in letters.newest
    ]
    errors = [dg.TableRecord({"dead letters": number, "error": error}) for error, number in letters.by_error]
    tables = {"newest": newest, "by error": errors}
    return {name: dg.MetadataValue.table(records) for name, records in tables.items() if records}


def of_preview(preview: RangePreview) -> dict[str, Any]:
    """What a replay would read and replace."""
    return {
        "offsets": preview.offsets,
        "rows to replace": preview.rows,
        "files to write anew": preview.files,
        "bytes of these files": preview.bytes,
        **({"ranges": _ranges(preview.ranges)} if preview.ranges else {}),
        **({"ended": preview.ended} if preview.ended else {}),
    }


def of_range_jobs(reports: Sequence[RangeReport]) -> dict[str, Any]:
    """What range jobs for one table did."""
    return {
        "rows": sum(report.rows for report in reports),
        "rows replaced": sum(report.replaced for report in reports),
        "range jobs": [report.batch_id for report in reports if report.batch_id],
        "snapshots": [str(report.commit.snapshot_id) for report in reports if report.commit and report.commit.landed],
        "ended": reports[-1].ended if reports else "nothing to do",
    }


def of_schema(schema: Schema) -> dict[str, Any]:
    """The columns with their Iceberg types."""
    from calve.sink_core.records.columns.type_text import type_text

    return column_schema((f.name, type_text(f.field_type), f.required, f.doc) for f in schema.fields)


def of_columns(columns: Mapping[str, str], comments: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The columns a pipeline file names for a table it creates."""
    return column_schema((name, kind, False, comments.get(name)) for name, kind in columns.items()) if columns else {}


def column_schema(columns: Any) -> dict[str, Any]:
    shown = [
        dg.TableColumn(name, kind, description=doc, constraints=dg.TableColumnConstraints(nullable=not required))
        for name, kind, required, doc in columns
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=shown)}


def _ranges(ranges: Sequence[tuple[str, int, int, int]]) -> dg.TableMetadataValue:
    records = [
        dg.TableRecord({"topic": topic, "partition": partition, "start": start, "end": end, "offsets": end - start})
        for topic, partition, start, end in ranges[:SHOWN_RANGES]
    ]
    return dg.MetadataValue.table(records, schema=_COLUMNS)
