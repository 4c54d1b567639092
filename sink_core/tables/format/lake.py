"""What a table format offers to a sink: tables that are created, loaded, written by tasks and committed to.

A format is one row of `config/table_formats.py`, and what that names: a `Lake` for each open pipeline. Ledger and dead
letters are Iceberg tables, whatever formats the data tables have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyiceberg.schema import Schema

from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings, TargetFileSize
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.control.log import ControlLog
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.batch import TableOutput, ToMerge
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.proven import Proven
from calve.sink_core.tables.format.target import Target, Written
from calve.sink_core.tables.format.upkeep import Upkeep
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges

Columns = Callable[[], Schema]
"""The columns that the records' format and a sample of them ask for."""


class ReadLog(Protocol):
    """What a commit needs of the control log, as in `ControlLog`."""

    @property
    def state(self) -> CommitState: ...

    @property
    def whole(self) -> bool: ...

    def require_whole(self) -> None: ...

    def refresh(self) -> CommitState: ...


@dataclass(frozen=True, slots=True)
class Totals:
    """What a table has by its own count: `rows` are None where only reading tells, `size` of the data files in bytes.
    `head` names its last version, of `versions` that it still has; it is complete up to a record time.
    """

    rows: int | None
    files: int
    size: int
    versions: int
    head: str | None
    valid_through_ms: int | None


@dataclass(frozen=True, slots=True)
class Described:
    """What people are shown of a table: where it lies, and what is said of one of its format, by name."""

    location: str
    facts: Mapping[str, str | int]


class LoadedTable(Protocol):
    """A table as it was loaded, and compared with the control log. `stored_offset` is the control offset (exclusive)
    that it says it has.
    """

    @property
    def name(self) -> str: ...

    @property
    def view(self) -> TableView:
        """What its snapshots say."""
        ...

    @property
    def uuid(self) -> str: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def stored_offset(self) -> int: ...

    @property
    def totals(self) -> Totals: ...

    @property
    def described(self) -> Described: ...

    def sample(self, columns: Sequence[str], rows: int) -> Sequence[Mapping[str, Any]]:
        """Some of its rows, whichever come first. Raises NotImplementedError or ValueError where they can't be read
        here.
        """
        ...

    def check_usable(self) -> None:
        """Raise TableUnusable for a table that can't be written."""
        ...

    def row_changes(self, settings: TableSettings) -> RowChanges | None:
        """How records change its rows; None if they are rows. Raises TableUnusable if they can't."""
        ...

    def existing_rows(self, key: Sequence[int], held: Sequence[int]) -> ExistingRows | None:
        """Where the rows are that changes are held against; None if there are none."""
        ...

    def ready(self, settings: TableSettings) -> LoadedTable:
        """The table, given what changes of its rows need of it. Raises as `row_changes`."""
        ...

    def target(self, size: TargetFileSize, changes: RowChanges | None = None, instant_ms: int = 0) -> Target:
        """What tasks are told of it; `instant_ms` as in `BatchPlan`."""
        ...

    def output(
        self, batch_id: str, files: Sequence[Written], changes: int | None = None, to_merge: ToMerge | None = None
    ) -> TableOutput:
        """Its part of the batch, the manifests written that name the files. `changes`, `to_merge` as in
        `TableOutput`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Looked:
    """A table as it is now, None if there is none, and what it contradicts the log by."""

    table: LoadedTable | None
    finding: FindingError | None


class Lake(Protocol):
    """The tables of one format that an open pipeline feeds. Outcomes come one by one, a table's failure among them."""

    def look(self, name: str, *, compare: bool = True) -> Looked:
        """A table, whatever finding stands against it; compared with the log unless there is none yet."""
        ...

    def load(self, names: Collection[str]) -> Iterator[tuple[str, LoadedTable | CalveError | None]]:
        """Tables as they are now, compared with the log; None for one that neither exists nor is in the log."""
        ...

    def create(self, settings: TableSettings, shown: Columns) -> None:
        """Create a table where it is missing. Raises ConfigError for one that is not to be created."""
        ...

    def proven(self, table: LoadedTable) -> Proven | None:
        """A table of it as a proof looks at it; None if proofs only compare such tables with the log."""
        ...

    def change_schema(self, name: str, wanted: Schema, steps: Sequence[EvolveStep]) -> Sequence[str]:
        """Give a table what is wanted of it; what was changed."""
        ...

    def commit(self, names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
        """Commit what is published and pending to each table; None for one that was never written to."""
        ...

    def put(self, table: LoadedTable, steps: Callable[[], Sequence[Step]]) -> int | Exception:
        """Put snapshots on a table as it was loaded: the id of the last, or why another try is due. Raises
        UnknownOutcome if nothing tells, and TableUnusable for steps that the format doesn't know.
        """
        ...

    @property
    def upkeep(self) -> Upkeep | None:
        """Maintenance of its tables; None if there is none."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Opening:
    """What a format is given to open its lake: the pipeline as it is at each look, the control log, and what merges
    changes of rows if an engine does. Commits say by whom they were `made_by`.
    """

    pipeline: Callable[[], SinkPipeline]
    log: ControlLog[CommitState]
    cluster_id: str
    merge: Callable[[], Callable[[Any], None] | None]
    rules: Rules = ALL
    made_by: str = ""
