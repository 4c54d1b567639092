"""An Iceberg table as a proof looks at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.verify import snapshots
from calve.sink_core.iceberg.verify.files import ReadableFiles, check_files, head_tasks, pending_tasks
from calve.sink_core.tables.format.proven import Wanted
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.proof import Evidence


@dataclass(frozen=True, slots=True)
class ProvenIceberg:
    """As `Proven`."""

    table: Table
    view: TableView
    catalog: Catalog

    @property
    def schema(self) -> Schema:
        return self.table.schema()

    def rows(self, written: Iterable[Logged[DataWritten]], evidence: Evidence, wanted: Wanted | None) -> ReadableFiles:
        return check_files(self.table, self.view, written, self.catalog, evidence, wanted)

    def pending(self, pending: Iterable[Logged[DataWritten]], evidence: Evidence) -> ReadableFiles:
        name = self.view.table
        return ReadableFiles(self.table, name, pending_tasks(self.table, pending, name, evidence), evidence)

    def head(self, evidence: Evidence) -> ReadableFiles:
        """The rows of the head, whether its files are there or not."""
        name = self.view.table
        return ReadableFiles(self.table, name, head_tasks(self.table, name, evidence) or [], evidence)

    def compare_total(self, evidence: Evidence, *, whole: bool, changes_rows: bool) -> None:
        snapshots.compare_total(self.table, self.view, evidence, whole=whole, changes_rows=changes_rows)
