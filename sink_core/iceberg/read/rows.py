"""Rows of a table as Arrow batches: of its head by a filter or by age, or of files that manifests name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import FileScanTask, Table

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.tables.batch import ManifestRef

_BUFFER_BYTES = 1024 * 1024


def all_rows(table: Table, columns: Sequence[str], *, limit: int | None = None) -> pa.Table:
    """The columns of the head, or of `limit` rows of it, whichever come first; memory grows with them.

    Raises NotImplementedError or ValueError for what pyiceberg can't read, such as equality deletes, and Unreachable.
    """
    with unreachable_as_ours(f"reading {_name(table)}"):
        return table.scan(selected_fields=tuple(columns), limit=limit).to_arrow()


def rows_where(
    table: Table,
    columns: Sequence[str],
    *,
    equal: Mapping[str, object] | None = None,
    at_least: Mapping[str, object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns of those rows of the head whose columns are `equal` to values and `at_least` others, as Iceberg
    stores these. Memory: a batch of one file. Raises Unreachable.
    """
    wanted: BooleanExpression = AlwaysTrue()
    for name, value in (equal or {}).items():
        wanted = And(wanted, EqualTo(name, value))  # pyright: ignore[reportCallIssue] (a model's __new__)
    for name, value in (at_least or {}).items():
        wanted = And(wanted, GreaterThanOrEqual(name, value))  # pyright: ignore[reportCallIssue]
    with unreachable_as_ours(f"reading {_name(table)}"):
        scan = table.scan(row_filter=wanted, selected_fields=tuple(columns))
        read = ArrowScan(table.metadata, table.io, scan.projection(), wanted)
        for task in scan.plan_files():
            yield from read.to_record_batches([task])


def rows_added_since(table: Table, columns: Sequence[str], since_ms: float) -> Iterator[pa.RecordBatch]:
    """The columns of those files of the head that a snapshot made at `since_ms` or later has added: what was compacted
    is as young as that. Memory: one file. Raises Unreachable.
    """
    recent = {s.snapshot_id for s in table.metadata.snapshots if s.timestamp_ms >= since_ms}
    with unreachable_as_ours(f"reading {_name(table)}"):
        scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), AlwaysTrue())
        for task in _added_by(table, recent):
            yield from scan.to_record_batches([task])


def rows_named(table: Table, manifests: Iterable[ManifestRef], *, at_once: int) -> Iterator[pa.RecordBatch]:
    """All columns of the files that manifests name, whether a snapshot has these or not, as the files have them; memory
    is that of `at_once` rows. Raises Unreachable.
    """
    with unreachable_as_ours(f"reading back what was written for {_name(table)}"):
        for manifest in manifests:
            for entry in entries_of(table.io, manifest):
                with table.io.new_input(entry.data_file.file_path).open() as stream:
                    # Not as a scan, which decodes a row group at once and reads several ahead.
                    file = pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES, pre_buffer=False)
                    yield from file.iter_batches(at_once)


def _added_by(table: Table, snapshots: Collection[int]) -> Iterator[FileScanTask]:
    head = table.current_snapshot()
    for manifest in head.manifests(table.io) if head else ():
        if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in snapshots:
            for entry in live_entries(table.io, manifest):
                if entry.snapshot_id in snapshots:
                    yield FileScanTask(entry.data_file)


def _name(table: Table) -> str:
    return ".".join(table.name())
