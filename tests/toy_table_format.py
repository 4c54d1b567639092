"""A table format that the product does not know: a folder of JSON lines for each table, beside the pipeline file. One
file is all it takes: what creates, loads, writes and commits to such tables, and its row among the formats.

    table.json          the table's id and columns
    …-<uuid>.jsonl      rows; nobody reads those that no commit names
    commits/<n>.json    what a commit added, and the control offset that the table then has. Who is second with a number
                        has lost
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.config.sink_pipeline import TableSettings, TargetFileSize
from calve.sink_core.config.table_formats import TableFormatRow
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.errors import CalveError, TableUnusable
from calve.sink_core.failpoints import reach
from calve.sink_core.findings import TABLE_DROPPED
from calve.sink_core.records.columns.column_names import ANY_COLUMN, ColumnRule
from calve.sink_core.records.columns.evolution import Used, evolved
from calve.sink_core.tables.batch import ManifestRef, TableOutput, ToMerge
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import Columns, Described, LoadedTable, Looked, Opening, Totals
from calve.sink_core.tables.format.target import ChangingWriter, Distribution, RowCheck, RowWriter
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges

LINES = TableFormatRow("lines", "tests.toy_table_format:lines_lake")


def lines_lake(opening: Opening) -> LinesLake:
    return LinesLake(opening)


@dataclass(frozen=True)
class LinesTarget:
    folder: Path
    schema: Schema
    distribution: Distribution = "none"

    @property
    def names(self) -> dict[int, list[str]]:
        return {}

    def writer(self, file_prefix: str, budget: Budget) -> RowWriter:  # noqa: ARG002 - nothing is gathered
        return LinesWriter(self.folder / f"{file_prefix}-{uuid.uuid4()}.jsonl")

    def change_writer(
        self, file_prefix: str, budget: Budget, changes: RowChanges, topics: Sequence[str]
    ) -> ChangingWriter:
        raise NotImplementedError("refused by `row_changes`")

    @property
    def column_rule(self) -> ColumnRule:
        return ANY_COLUMN

    def row_checks(self, key: Sequence[str]) -> Sequence[RowCheck]:  # noqa: ARG002 - it takes all
        return ()

    def spreader(
        self, outbox: Outbox, number: int, budget: Budget, changes: RowChanges | None, *, bounded: bool
    ) -> RowWriter:
        raise NotImplementedError("its distribution is none")


@dataclass(frozen=True)
class LinesFile:
    path: str
    rows: int


class LinesWriter:
    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, 0

    def write(self, rows: pa.RecordBatch) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row, default=str)}\n" for row in rows.to_pylist())
        self._rows += len(rows)

    def close(self) -> list[LinesFile]:
        return [LinesFile(str(self._path), self._rows)] if self._rows else []

    def abort(self) -> None:
        pass


@dataclass(frozen=True)
class LinesTable:
    name: str
    folder: Path
    uuid: str
    schema: Schema
    commits: int
    stored_offset: int

    @property
    def view(self) -> TableView:
        """Nothing says what its commits hold."""
        return TableView(self.name, self.uuid, None, None, {})

    @property
    def totals(self) -> Totals:
        rows, files = rows_of(self.folder), list(self.folder.glob("*.jsonl"))
        size = sum(file.stat().st_size for file in files)
        return Totals(len(rows), len(files), size, self.commits, str(self.commits), None)

    @property
    def described(self) -> Described:
        return Described(str(self.folder), {})

    def sample(self, columns: Sequence[str], rows: int) -> Sequence[Mapping[str, Any]]:
        return [{name: row.get(name) for name in columns} for row in rows_of(self.folder)[:rows]]

    def check_usable(self) -> None:
        pass

    def row_changes(self, settings: TableSettings) -> RowChanges | None:
        if settings.changes_rows:
            raise TableUnusable(f"{self.name}: tables of lines take no row changes", hint="set mode: append")
        return None

    def existing_rows(self, key: Sequence[int], held: Sequence[int]) -> ExistingRows | None:  # noqa: ARG002
        return None

    def ready(self, settings: TableSettings) -> LinesTable:
        self.row_changes(settings)
        return self

    def target(self, size: TargetFileSize, changes: RowChanges | None = None, instant_ms: int = 0) -> LinesTarget:  # noqa: ARG002
        return LinesTarget(self.folder, self.schema)

    def output(
        self,
        batch_id: str,
        files: Sequence[LinesFile],
        changes: int | None = None,  # noqa: ARG002 - there are none
        to_merge: ToMerge | None = None,  # noqa: ARG002
    ) -> TableOutput:
        if not files:
            return TableOutput(self.name, self.uuid, self.schema.schema_id)
        path, text = self.folder / f"{batch_id}.json", json.dumps([file.path for file in files]).encode()
        path.write_bytes(text)
        rows, size = sum(file.rows for file in files), sum(Path(file.path).stat().st_size for file in files)
        digest = hashlib.sha256(text).hexdigest()
        ref = ManifestRef(str(path), len(text), digest, 0, 0, len(files), rows, size, ())
        return TableOutput(self.name, self.uuid, self.schema.schema_id, (ref,))


class LinesLake:
    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def look(self, name: str, *, compare: bool = True) -> Looked:
        table = self._load(name)
        dropped = compare and table is None and name in self._opening.log.state.tables
        finding = TABLE_DROPPED.of(name, stored="its commits", found="no folder").error() if dropped else None
        return Looked(table, finding)

    def load(self, names: Collection[str]) -> Iterator[tuple[str, LinesTable | CalveError | None]]:
        for name in names:
            looked = self.look(name)
            yield name, looked.finding or cast("LinesTable | None", looked.table)

    def proven(self, table: LoadedTable) -> None:  # noqa: ARG002
        return None

    def create(self, settings: TableSettings, shown: Columns) -> None:
        folder = folder_of(self._opening.pipeline().path, settings.name)
        (folder / "commits").mkdir(parents=True, exist_ok=True)
        text = json.dumps({"uuid": str(uuid.uuid4()), "schema": shown().model_dump(mode="json")})
        if not (folder / "table.json").exists():
            (folder / "table.json").write_text(text)

    def change_schema(self, name: str, wanted: Schema, steps: Sequence[EvolveStep]) -> tuple[str, ...]:
        table = self._load(name)
        assert table is not None
        used = Used(table.schema.highest_field_id, table.schema.schema_id)
        change = evolved(table.schema, wanted, steps, used)
        if change is None:
            return ()
        text = json.dumps({"uuid": table.uuid, "schema": change.schema.model_dump(mode="json")})
        (table.folder / "table.json").write_text(text)
        return change.changes

    def put(self, table: LoadedTable, steps: Callable[[], Sequence[Step]]) -> int | Exception:  # noqa: ARG002
        raise TableUnusable(f"{table.name}: tables of lines take no answers")

    def commit(self, names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
        for name, table in self.load(names):
            yield name, self._commit(table) if isinstance(table, LinesTable) else table

    @property
    def upkeep(self) -> None:
        return None

    def close(self) -> None:
        pass

    def _commit(self, table: LinesTable) -> TableCommit:
        state = self._opening.log.state
        pending = state.pending(table.name, table.uuid, table.stored_offset)
        if not pending:
            return TableCommit(table.name, table.uuid, table.commits, table.stored_offset, None, landed=False)
        manifests = [manifest.path for logged in pending for manifest in logged.event.manifests]
        said = {"stored_offset": state.limit, "manifests": manifests}
        try:
            reach("lines.before-commit")
            with (table.folder / "commits" / f"{table.commits}.json").open("x") as file:
                json.dump(said, file)
        except FileExistsError:
            now = self._load(table.name)
            assert now is not None
            return self._commit(now)
        batches = tuple(logged.event.batch_id for logged in pending)
        rows = sum(logged.event.rows for logged in pending)
        return TableCommit(
            table.name, table.uuid, table.commits + 1, state.limit, None, landed=True, batches=batches, rows=rows
        )

    def _load(self, name: str) -> LinesTable | None:
        folder = folder_of(self._opening.pipeline().path, name)
        if not (folder / "table.json").exists():
            return None
        said: dict[str, Any] = json.loads((folder / "table.json").read_text())
        schema, last = Schema.model_validate(said["schema"]), _commits(folder)[-1:]
        stored_offset = max((each["stored_offset"] for each in last), default=0)
        return LinesTable(name, folder, said["uuid"], schema, len(_commits(folder)), stored_offset)


def folder_of(pipeline_file: Path, name: str) -> Path:
    return pipeline_file.parent / "lines" / name


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table as its reader sees them."""
    manifests = [path for commit in _commits(folder) for path in commit["manifests"]]
    files = [file for manifest in manifests for file in json.loads(Path(manifest).read_text())]
    return [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]


def _commits(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "commits").iterdir(), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]
