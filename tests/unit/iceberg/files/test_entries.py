"""What manifests name is what pyiceberg itself reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from calve.sink_core.iceberg.files import entries, known_schemas
from calve.sink_core.iceberg.files.entries import head_files, live_entries, manifests_in
from tests.changing import Change, commit, written

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "country", StringType()))
BY_COUNTRY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"))


def fed(catalog: SqlCatalog, batches: int, **properties: str) -> Table:
    """A table with a manifest for each batch, of one file and row for each country."""
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA, partition_spec=BY_COUNTRY, properties=properties)
    for number in range(batches):
        rows: list[dict[str, Any]] = [{"id": number, "country": country} for country in ("de", "fr", None)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return table


def manifests(table: Table) -> list[ManifestFile]:
    head = table.current_snapshot()
    assert head is not None
    return head.manifests(table.io)


def shown(found: list[ManifestEntry]) -> list[object]:
    return [[fields(entry)[:-1], fields(entry.data_file), entry.data_file.spec_id] for entry in found]


def fields(record: Record) -> list[object]:
    values = (record[place] for place in range(len(record)))
    return [dict(value) if isinstance(value, Mapping) else value for value in values]


@pytest.mark.parametrize("version", ["1", "2"])
def test_entries_are_those_that_pyiceberg_reads(catalog: SqlCatalog, version: str) -> None:
    table = fed(catalog, 2, **{"format-version": version})
    # Leaves files that are gone beside those that stay.
    table.delete("country = 'de' and id = 0")
    table.delete("country = 'fr'")
    found = manifests(table)
    assert any(m.deleted_files_count for m in found)
    for manifest in found:
        assert shown(live_entries(table.io, manifest)) == shown(manifest.fetch_manifest_entry(table.io))
    assert sorted(task.file.file_path for task in head_files(table)) == sorted(
        task.file.file_path for task in table.scan().plan_files()
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_manifests_are_those_that_pyiceberg_reads(catalog: SqlCatalog, version: str) -> None:
    table = fed(catalog, 2, **{"format-version": version})
    table.delete("country = 'de'")
    found = manifests_in(table.io, table.current_snapshot())
    assert [fields(manifest) for manifest in found] == [fields(manifest) for manifest in manifests(table)]
    assert any(manifest.partitions for manifest in found)


def test_an_empty_table_has_no_files(catalog: SqlCatalog) -> None:
    assert head_files(fed(catalog, 0)) == []


def test_a_schema_is_worked_out_once(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[object] = []
    by_pyiceberg = known_schemas.resolve_reader

    def counted(*given: Any) -> Any:
        worked_out.append(given)
        return by_pyiceberg(*given)

    monkeypatch.setattr(known_schemas, "resolve_reader", counted)
    table = fed(catalog, 10)
    for reader in (entries._ENTRIES, entries._MANIFESTS):
        reader._reader_of.cache_clear()
    assert len(head_files(table)) == 30
    assert len(worked_out) == 2


def test_equality_deletes_are_refused_as_by_pyiceberg(catalog: SqlCatalog) -> None:
    fed(catalog, 1, **{"format-version": "2"})
    table = catalog.load_table("ns.t")
    commit(catalog, "ns.t", [written(catalog, table, ["id"], [Change({"id": 0, "country": None}, deletes=True)])])
    with pytest.raises(ValueError, match="equality deletes"):
        head_files(catalog.load_table("ns.t"))
