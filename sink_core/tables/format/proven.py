"""What a table format offers to a proof: a table's history, and the rows of its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.control.events import Logged
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.proof import Evidence


@dataclass(frozen=True, slots=True)
class RowsOfRuns:
    """Rows of source offsets, told by the column `struct`, or by the columns topic, partition and offset."""

    runs: Mapping[TopicPartition, Sequence[tuple[int, int]]]
    struct: str | None


@dataclass(frozen=True, slots=True)
class RowsSince:
    """Rows whose timestamp in `column` is `since_ms` or later."""

    column: str
    since_ms: int


Wanted = RowsOfRuns | RowsSince


class NoReader(Exception):
    """Nothing here reads rows of such a table; says why."""


class Rows(Protocol):
    """Rows of a table that a proof reads. What can't be read is a violation."""

    def read(self, columns: Sequence[str], /) -> Iterator[pa.RecordBatch]:
        """The columns, those that the table lacks left out. Raises NoReader."""
        ...


class Proven(Protocol):
    """A table as a proof looks at it."""

    @property
    def view(self) -> TableView: ...

    @property
    def schema(self) -> Schema: ...

    def rows(self, written: Iterable[Logged[DataWritten]], evidence: Evidence, wanted: Wanted | None) -> Rows:
        """Its rows, once its files were looked for; rows besides those that are wanted may be among them. `written` are
        the events of the table that the log has.
        """
        ...

    def pending(self, pending: Iterable[Logged[DataWritten]], evidence: Evidence) -> Rows:
        """Those of batches that are published and that the table has not yet, their files looked for."""
        ...

    def head(self, evidence: Evidence) -> Rows:
        """Its rows, whether its files are there or not."""
        ...

    def compare_total(self, evidence: Evidence, *, whole: bool, changes_rows: bool) -> None:
        """Hold the number of rows that the table says against its snapshots, where both tell."""
        ...
