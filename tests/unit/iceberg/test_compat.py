"""Names that pyiceberg keeps to itself are there, and are what Calve takes them for."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import manifest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, update
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetDefaultSortOrderUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record, TableVersion

from calve.sink_core.iceberg.compat import (
    OpenManifestWriter,
    batches_of,
    delete_old_metadata,
    inherited,
    parquet_statistics,
    staged,
    upper_bound,
    write_staged,
)
from calve.sink_core.records.columns.type_text import schema_of

KEPT_TO_ITSELF: list[tuple[Any, str, list[str]]] = [
    (manifest, "_inherit_from_manifest", ["entry", "manifest"]),
    (Catalog, "_delete_old_metadata", ["io", "base", "metadata"]),
    (MetastoreCatalog, "_parse_metadata_version", ["metadata_location"]),
    (update, "_apply_table_update", ["update", "base_metadata", "context"]),
    (update, "_update_table_metadata_log", ["base_metadata", "metadata_location", "last_updated_ms"]),
    (update._TableMetadataUpdateContext, "has_changes", ["self"]),  # pyright: ignore[reportPrivateUsage]
    (MetastoreCatalog, "_write_metadata", ["metadata", "io", "metadata_path"]),
    (ArrowScan, "_record_batches_from_scan_tasks_and_deletes", ["self", "tasks", "deletes_per_file"]),
    (ManifestWriterV2, "_with_partition", ["self", "format_version"]),
]


@pytest.mark.parametrize(("owner", "name", "parameters"), KEPT_TO_ITSELF, ids=lambda value: str(value)[:60])
def test_a_function_is_there_with_its_parameters(owner: Any, name: str, parameters: list[str]) -> None:
    assert hasattr(owner, name), f"pyiceberg has no {owner.__name__}.{name} any more"
    found = list(inspect.signature(getattr(owner, name)).parameters)
    assert found == parameters, f"pyiceberg has changed {owner.__name__}.{name}"


def test_an_entry_inherits_what_its_manifest_says() -> None:
    of = ManifestFile.from_args(added_snapshot_id=7, sequence_number=3, partition_spec_id=5, content=0)
    added = ManifestEntry.from_args(status=manifest.ManifestEntryStatus.ADDED, data_file=DataFile.from_args())
    found = inherited(added, of)
    assert (found.snapshot_id, found.sequence_number, found.data_file.spec_id) == (7, 3, 5)


def test_metadata_files_go_that_a_table_has_outgrown(catalog: SqlCatalog) -> None:
    catalog.create_namespace("db")
    bounds = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    first = catalog.create_table("db.t", schema_of({"id": "long"}), properties=bounds)
    second = catalog.load_table("db.t")
    with second.transaction() as changes:
        changes.set_properties({"a": "1"})
    third = catalog.load_table("db.t")
    response = catalog.commit_table(third, (), (SetPropertiesUpdate(updates={"b": "1"}),))
    place = Path(first.metadata_location.removeprefix("file://"))
    assert place.exists()
    delete_old_metadata(catalog, third.io, third.metadata, response.metadata)
    assert not place.exists()


def test_what_is_staged_is_written_where_it_says(catalog: SqlCatalog) -> None:
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema_of({"id": "long"}))
    after = staged(catalog, table, (), (SetPropertiesUpdate(updates={"a": "1"}),), load_file_io)
    place = Path(after.metadata_location.removeprefix("file://"))
    assert not place.exists()
    write_staged(catalog, after)
    written = FromInputFile.table_metadata(table.io.new_input(after.metadata_location))
    assert (written, written.properties["a"]) == (after.metadata, "1")


@pytest.mark.parametrize(
    "change",
    [
        SetPropertiesUpdate(updates={"a": "1"}),
        AddSchemaUpdate(schema=schema_of({"id": "long", "b": "string"})),
        AddSortOrderUpdate(sort_order=SortOrder(SortField(1, IdentityTransform()), order_id=1)),
    ],
    ids=lambda change: change.action,
)
def test_what_is_staged_is_what_pyiceberg_would_stage(catalog: SqlCatalog, change: TableUpdate) -> None:
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema_of({"id": "long"}))
    theirs = catalog._update_and_stage_table(table, table.name(), (), (change,))  # pyright: ignore[reportPrivateUsage]
    ours = staged(catalog, table, (), (change,), load_file_io)
    now = ours.metadata.model_copy(update={"last_updated_ms": theirs.metadata.last_updated_ms})
    assert (now, ours.name()) == (theirs.metadata, theirs.name())
    assert 0 <= ours.metadata.last_updated_ms - theirs.metadata.last_updated_ms < 60_000
    assert Path(ours.metadata_location).parent == Path(theirs.metadata_location).parent
    assert Path(ours.metadata_location).name.startswith("00001-")


def test_what_is_staged_has_a_sort_order_that_its_schema_allows(catalog: SqlCatalog) -> None:
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema_of({"id": "long"}))
    changes = (
        AddSortOrderUpdate(sort_order=SortOrder(SortField(99, IdentityTransform()), order_id=1)),
        SetDefaultSortOrderUpdate(sort_order_id=1),
    )
    with pytest.raises(ValidationError, match="Cannot find source column for sort field"):
        staged(catalog, table, (), changes, load_file_io)


def test_a_file_is_read_in_more_than_one_batch(catalog: SqlCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema_of({"id": "long"}))
    rows = pa.table({"id": pa.array(range(300_000))}).cast(table.schema().as_arrow())
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    file = DataFile.from_args(
        file_path=f"file://{path}",
        file_format=manifest.FileFormat.PARQUET,
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    batches = batches_of(ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()), FileScanTask(file))
    assert 0 < len(next(batches)) < 300_000
    assert sum(len(batch) for batch in batches) < 300_000


class _Said(OpenManifestWriter):
    asked = 0

    def entry_schema(self, format_version: TableVersion) -> Schema:
        self.asked += 1
        return super().entry_schema(format_version)

    def further_header(self) -> dict[str, str]:
        return {"said": "more"}


def test_a_manifest_may_say_more_than_pyiceberg_writes(tmp_path: Path, catalog: SqlCatalog) -> None:
    schema = schema_of({"id": "long"})
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id_itself"))
    catalog.create_namespace("db")
    output = catalog.create_table("db.t", schema).io.new_output(f"file://{tmp_path}/m.avro")
    writer = _Said(spec, schema, output, 7, "null")  # pyright: ignore[reportArgumentType]
    assert [field.name for field in writer.partition_type().fields] == ["id_itself"], "_spec or _schema of the writer"
    with writer:
        file = DataFile.from_args(
            content=manifest.DataFileContent.DATA,
            file_path="a",
            file_format=manifest.FileFormat.PARQUET,
            partition=Record(1),
            record_count=1,
            file_size_in_bytes=1,
        )
        writer.add_entry(ManifestEntry.from_args(status=manifest.ManifestEntryStatus.ADDED, data_file=file))
    assert writer.asked, "_with_partition of pyiceberg's ManifestWriter"
    written = (tmp_path / "m.avro").read_bytes()
    for said in (b"said", b"more", b"partition-spec", b"id_itself"):
        assert said in written, f"{said!r} is not in the header: _meta of pyiceberg's ManifestWriter"


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("ab", "ab"),
        ("abc", "ac"),
        ("a\ud7ffc", "a\ue000"),
        ("a\U0010ffffc", "b"),
        ("\U0010ffff\U0010ffffc", None),
        ("a\uffffc", "a\U00010000"),
    ],
)
def test_an_upper_bound_is_text_that_is_not_below(text: str, bound: str | None) -> None:
    assert upper_bound(text, 2) == bound
    assert bound is None or bound.encode() >= text.encode()


def test_metrics_of_texts_that_are_cut_where_unicode_has_a_gap(tmp_path: Path) -> None:
    text, schema = "a" * 15 + "\ud7ff" + "b", schema_of({"s": "string"})
    metadata: list[pq.FileMetaData] = []
    pq.write_table(pa.table({"s": [text]}), tmp_path / "f.parquet", metadata_collector=metadata)
    plan = compute_statistics_plan(schema, {})
    found = parquet_statistics(metadata[0], plan, parquet_path_to_id_mapping(schema))
    _, upper = found.column_aggregates[1].min_as_bytes(), found.column_aggregates[1].max_as_bytes()
    assert upper == ("a" * 15 + "\ue000").encode()
