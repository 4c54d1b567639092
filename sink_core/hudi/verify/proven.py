"""A Hudi table as a proof looks at it: its timeline, and its rows as Hudi's reader for Python (hudi-rs) gives them."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from calve.sink_core.config.error_text import describe
from calve.sink_core.control.events import Logged
from calve.sink_core.errors import ProtocolError
from calve.sink_core.hudi.files.read import NotReadable, file_slices, read_rows
from calve.sink_core.hudi.files.schema import META_COLUMNS
from calve.sink_core.hudi.files.staged import HudiFile, read_staged
from calve.sink_core.hudi.files.timeline import extra_of
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.hudi.table.writer import record_keys
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN
from calve.sink_core.tables.format.proven import NoReader, Wanted
from calve.sink_core.tables.history.contents import contents
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.proof import Evidence

if TYPE_CHECKING:
    from hudi import HudiFileSlice

RECORD_KEY = META_COLUMNS[2]
_BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class ProvenHudi:
    """As `Proven`."""

    table: HudiTable

    @property
    def view(self) -> TableView:
        return self.table.view

    @property
    def schema(self) -> Schema:
        return self.table.schema

    def rows(self, written: Iterable[Logged[DataWritten]], evidence: Evidence, wanted: Wanted | None) -> HudiRows:  # noqa: ARG002
        """All of them, as files say nothing of their offsets."""
        self._check_timeline(evidence)
        slices = self._slices(evidence)
        for each in slices:
            if not (self.table.place.folder / each.base_file_relative_path()).exists():
                message = f"{each.base_file_relative_path()} does not exist, and the table's last version names it"
                evidence.violation("file-missing", self.table.name, message)
        evidence.count("files", len(slices))
        return HudiRows(self.table, evidence)

    def pending(self, pending: Iterable[Logged[DataWritten]], evidence: Evidence) -> StagedRows:
        paths: list[Path] = []
        for logged in pending:
            try:
                for ref in logged.event.manifests:
                    paths += self._staged(read_staged(self.table.place, ref).files, logged.event.batch_id, evidence)
            except ProtocolError as error:
                batch_id = logged.event.batch_id
                message = f"{error.message}; batch {batch_id} is published and not committed"
                evidence.violation("file-missing", self.table.name, message, batches=(batch_id,))
        return StagedRows(tuple(paths))

    def head(self, evidence: Evidence) -> HudiRows:
        return HudiRows(self.table, evidence)

    def compare_total(self, evidence: Evidence, *, whole: bool, changes_rows: bool) -> None:
        """The number of rows that the commits of ours have counted on."""
        name, view = self.table.name, self.table.view
        if changes_rows or not whole:
            why = "records change rows" if changes_rows else "commits have left the active timeline"
            evidence.skipped(name, f"the total number of rows: {why}")
            return
        if any(s is not None and s.own is None for s in view.ancestors()):
            evidence.skipped(name, "the total number of rows: other writers have committed to the table")
            return
        total, held = self.table.counted.rows, sum(contents(view).rows.values())
        if total != held:
            evidence.violation(
                "table-total", name, f"the head says {total} rows, the batches in its commits have {held}"
            )

    def _slices(self, evidence: Evidence) -> Sequence[HudiFileSlice]:
        try:
            return file_slices(self.table.place) if self.table.timeline.commits else ()
        except NotReadable as error:
            evidence.skipped(self.table.name, f"its files: {error}")
            return ()

    def _check_timeline(self, evidence: Evidence) -> None:
        """Each instant completed once, else incremental queries see its rows again; and offsets that only rise."""
        name, commits = self.table.name, self.table.timeline.commits
        for requested, times in Counter(instant.requested for instant in commits).items():
            if times > 1:
                evidence.violation("instant-twice", name, f"instant {requested} was completed {times} times")
        stored = [(each.requested, extra_of(each).get(self.table.keys.offsets)) for each in commits]
        offsets = [(requested, int(json.loads(said)["0"])) for requested, said in stored if said]
        for (_, before), (requested, after) in pairwise(offsets):
            if after < before:
                message = f"instant {requested} stores control offset {after}, one before it {before}"
                evidence.violation("offset-back", name, message)

    def _staged(self, files: Iterable[HudiFile], batch_id: str, evidence: Evidence) -> Iterator[Path]:
        """Where the files are: staged, or in the table already."""
        place = self.table.place
        for file in files:
            found = [p for p in (place.staged / file.folder / file.name, place.folder / file.path) if p.exists()]
            if found:
                yield found[0]
            else:
                message = f"{file.name} does not exist; batch {batch_id} is published and not committed"
                evidence.violation("file-missing", self.table.name, message, batches=(batch_id,))


@dataclass(frozen=True, slots=True)
class StagedRows:
    """As `Rows`: of files that no commit has named yet."""

    paths: tuple[Path, ...]

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with pq.ParquetFile(path) as file:
                wanted = [name for name in columns if name in file.schema_arrow.names]
                yield from file.iter_batches(columns=wanted)


@dataclass(frozen=True, slots=True)
class HudiRows:
    """As `Rows`: of the table's last version, in batches."""

    table: HudiTable
    evidence: Evidence

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Each row's record key is held against the place that it says it came from."""
        if not self.table.timeline.commits:
            return
        known = {field.name for field in self.table.schema.fields}
        wanted = [RECORD_KEY, *(column for column in columns if column in known)]
        try:
            for number, batch in enumerate(read_rows(self.table.place, wanted, _BATCH_ROWS)):
                self.evidence.progress(f"{self.table.name}: {number * _BATCH_ROWS:,} rows read")
                self._check_keys(batch)
                yield batch.select(wanted[1:])
        except NotReadable as error:
            raise NoReader(error) from None
        except Exception as error:  # noqa: BLE001 - hudi-rs has no class of its own
            self.evidence.violation("file-unreadable", self.table.name, f"its rows can't be read: {describe(error)}")

    def _check_keys(self, rows: pa.RecordBatch) -> None:
        if KAFKA_COLUMN not in rows.schema.names or self.table.key:
            return
        keys = rows.column(RECORD_KEY)
        wrong = pc.sum(pc.not_equal(keys.cast(pa.string()), record_keys(rows.column(KAFKA_COLUMN)))).as_py()
        if wrong:
            message = f"{wrong:,} rows have a record key that is not the place they came from"
            self.evidence.violation("record-key", self.table.name, message)
