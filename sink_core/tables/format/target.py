"""What a table format offers to tasks: a table's columns, and what writes its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.records.columns.column_names import ColumnRule
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tables.row_changes import RowChanges

Distribution = Literal["none", "hash", "range"]
"""How rows reach the tasks that write them: from where they are read, by partition, or by the sort order."""

Written = Any
"""A file as the format describes it, picklable: what a task hands to the driver, which hands it back."""


class RowWriter(Protocol):
    """Rows of one table on their way into files, or to the tasks that write these."""

    def write(self, rows: pa.RecordBatch, /) -> None: ...

    def close(self) -> Sequence[Written]:
        """Every file, finished and described."""
        ...

    def abort(self) -> None:
        """Close what is open; its files are nobody's."""
        ...


class ChangingWriter(RowWriter, Protocol):
    """Writes changes of rows."""

    def hold_against(self, existing: pa.RecordBatch, /) -> None:
        """Leave out changes that are older than these rows of the table; no change may come any more."""
        ...


@dataclass(frozen=True, slots=True)
class RowCheck:
    """Finds rows that a table can't have, by some of their columns: given these by name, `wrong` says what is wrong
    with rows, by their place.
    """

    columns: tuple[str, ...]
    wrong: Callable[[Mapping[str, pa.Array]], Mapping[int, str]]


class Target(Protocol):
    """A table as tasks write it: as it was when the batch was planned, picklable."""

    @property
    def schema(self) -> Schema: ...

    @property
    def names(self) -> Mapping[int, Sequence[str]]:
        """Further names of fields, by field id."""
        ...

    @property
    def distribution(self) -> Distribution: ...

    def writer(self, file_prefix: str, budget: Budget) -> RowWriter:
        """Writes rows to files whose names begin with the prefix."""
        ...

    def change_writer(
        self, file_prefix: str, budget: Budget, changes: RowChanges, topics: Sequence[str]
    ) -> ChangingWriter:
        """Writes changes of rows; `topics` are those that their sources are of."""
        ...

    @property
    def column_rule(self) -> ColumnRule:
        """What a field of records must be for the table to get a column for it."""
        ...

    def row_checks(self, key: Sequence[str]) -> Sequence[RowCheck]:
        """Find rows that the table could not have, or not tell from others by the columns of its `key`."""
        ...

    def spreader(
        self, outbox: Outbox, number: int, budget: Budget, changes: RowChanges | None, *, bounded: bool
    ) -> RowWriter:
        """Hands rows, or `changes` of them, of the table with that number to the tasks that write them. If `bounded`
        the outbox is told what the keys of changes lie between.
        """
        ...
