"""Listing a table's files on an object store (SeaweedFS), by the FileIOs that pyiceberg has for one."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from calve.sink_core.iceberg.maintenance.orphans import list_files
from tests.object_store import BUCKET, ObjectStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[ObjectStore]:
    store = ObjectStore(tmp_path_factory.mktemp("weed"))
    store.start()
    yield store
    store.stop()


@pytest.mark.parametrize("io", ["pyarrow.PyArrowFileIO", "fsspec.FsspecFileIO"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_every_file_is_listed_as_the_table_spells_it(store: ObjectStore, tmp_path: Path, io: str, scheme: str) -> None:
    catalog = SqlCatalog(
        "lake",
        **{
            "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
            "warehouse": f"{scheme}://{BUCKET}/{tmp_path.name}",
            **store.properties,
            "py-io-impl": f"pyiceberg.io.{io}",
        },
    )
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", rows.schema)
    before_ms = time.time() * 1000 - 60_000
    table.append(rows)
    neighbour = catalog.create_table("db.t_2", rows.schema)
    neighbour.append(rows)
    files = {file.path: file for file in list_files(catalog.load_table("db.t"))}
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    named = {table.metadata_location, snapshot.manifest_list}
    for manifest in snapshot.manifests(table.io):
        named.add(manifest.manifest_path)
        named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    assert named <= files.keys()
    assert all("/t_2/" not in path for path in files)
    assert all(file.size > 0 and before_ms < file.modified_ms < before_ms + 120_000 for file in files.values())
    catalog.close()
