"""A pipeline's log and table, committed to for real: an Iceberg catalog on this disk, and a log that is a list."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from calve.sink_core.control.events import Event, Logged
from calve.sink_core.iceberg.commit.append import build_append
from calve.sink_core.iceberg.commit.merge import NO_MERGING, Merging
from calve.sink_core.iceberg.commit.other_pipelines import OtherPipelines
from calve.sink_core.iceberg.commit.plan import Attempt, CommitPlan
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.iceberg.commit.view import view_of
from calve.sink_core.iceberg.files.manifests import write_manifest, write_manifest_of
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.history.record import SnapshotRecord, to_summary
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState
from tests.unit.iceberg.commit.build import KEYS, NOW
from tests.unit.tables.log.build import TABLE, bound, complete, log, written

CommitTable = Callable[..., Any]

TAG = "calve-flights"
SCHEMA = Schema(NestedField(1, "id", LongType()))


@dataclass
class Log:
    """What a commit reads: the events there are, as they are folded."""

    events: list[Event] = field(default_factory=lambda: [bound()])
    whole: bool = True

    @property
    def state(self) -> CommitState:
        return log(*self.events)

    def require_whole(self) -> None:
        assert self.whole

    def refresh(self) -> CommitState:
        return self.state


@dataclass
class World:
    """A pipeline that feeds one table of ids."""

    catalog: Catalog
    log: Log = field(default_factory=Log)

    @classmethod
    def create(cls, catalog: Catalog) -> World:
        catalog.create_namespace(TABLE.partition(".")[0])
        catalog.create_table(TABLE, SCHEMA)
        return cls(catalog)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(TABLE)

    @property
    def view(self) -> TableView:
        return look(self.table)

    def event(self, batch_id: str, *ids: int, **changes: Any) -> DataWritten:
        """For the table as it is now, of files that are there; without ids, without files."""
        table = self.table
        manifests = (manifest_of(table, *ids),) if ids else ()
        return replace(written(batch_id, uuid=str(table.metadata.table_uuid)), manifests=manifests, **changes)

    def publish(self, batch_id: str, *ids: int, **changes: Any) -> None:
        self.log.events += [self.event(batch_id, *ids, **changes), complete(batch_id)]

    def committer(self, merging: Merging = NO_MERGING) -> TableCommitter:
        others = OtherPipelines(self.catalog, KEYS.group, NOW.cluster_id)
        return TableCommitter(self.catalog, TAG, KEYS, NOW, self.log, "flights.yaml", "calve.ledger", others,
                              merging=merging)  # fmt: skip

    def commit(self, merging: Merging = NO_MERGING) -> TableCommit:
        found = self.committer(merging).commit(TABLE)
        assert found is not None
        return found

    def ids(self) -> list[int]:
        return ids_of(self.table)

    def recreate(self) -> None:
        """Somebody drops the table and creates one like it."""
        self.catalog.drop_table(TABLE)
        self.catalog.create_table(TABLE, SCHEMA)

    def append_foreign(self, *ids: int) -> None:
        self.table.append(rows(*ids))

    def roll_back(self, snapshot_id: int) -> None:
        self.table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def through(catalog: Catalog, patch: pytest.MonkeyPatch, edge: Callable[[CommitTable, Table, Any], object]) -> None:
    """From now on every call of the catalog's `commit_table` passes `edge`, which may drop it or its answer."""
    real = catalog.commit_table
    patch.setattr(catalog, "commit_table", lambda table, *given: edge(real, table, given))


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids_of(table: Table) -> list[int]:
    """Sorted: doubles and losses show."""
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def look(table: Table) -> TableView:
    return view_of(table.metadata, table=TABLE, tag=TAG, keys=KEYS)


def plan_of(table: Table, events: Sequence[Logged[DataWritten]], state: CommitState | None = None) -> CommitPlan:
    """Of all the events, for the table as loaded."""
    view = view_of(table.metadata, table=".".join(table.name()), tag=TAG, keys=KEYS)
    return CommitPlan(table, view, state or CommitState(), None, 0, events, events, len(events))


def manifest_of(table: Table, *ids: int) -> ManifestRef:
    """A file of these rows, in a manifest that no snapshot names."""
    writer = TableWriter(table.io, table.metadata, "calve-b")
    writer.write(rows(*ids).to_batches()[0])
    return write_manifest(table.io, table.metadata, 0, writer.close(), metadata_path(table, "m"))


def metadata_path(table: Table, name: str) -> str:
    return table.location_provider().new_metadata_location(f"{name}-{uuid.uuid4()}.avro")


def attempt_of(table: Table, own: SnapshotRecord, *manifests: ManifestRef, gone: Sequence[ManifestRef] = ()) -> Attempt:
    return build_append(table, [Step(manifests, to_summary(KEYS, own), gone)], tag=TAG)


def land(table: Table, attempt: Attempt) -> Table:
    """The table with the attempt."""
    table.catalog.commit_table(table, attempt.requirements, attempt.updates)
    return table.refresh()


def row_deletes(table: Table, file: DataFile, *places: int) -> ManifestRef:
    """Deletes of the rows at these places in a data file, as Spark's merge-on-read writes them."""
    path = table.location_provider().new_data_location(f"deletes-{uuid.uuid4()}.parquet")
    names = pa.array([file.file_path] * len(places), pa.string())
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table({"file_path": names, "pos": pa.array(places, pa.int64())}), stream)
    entry = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(places),
        file_size_in_bytes=len(table.io.new_input(path)),
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
    )
    entry.spec_id = 0
    place = metadata_path(table, "deletes")
    return write_manifest_of(table.io, table.metadata, 0, [entry], place, content=ManifestContent.DELETES)
