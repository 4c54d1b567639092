"""A SQL catalog that does not read again what it has read or written: as fresh, and the same tables."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from calve.sink_core.commit.append import Step, build_append
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.tables import sql
from calve.sink_core.tables.catalog import open_catalog
from calve.sink_core.tables.sql import RememberingSqlCatalog
from calve.sink_core.tables.type_text import schema_of

NAME = "db.t"


@pytest.fixture
def ours(catalog_dir: Path) -> Generator[Catalog]:
    """With one table that has one snapshot."""
    uri, warehouse = f"sqlite:///{catalog_dir / 'catalog.db'}", f"file://{catalog_dir / 'warehouse'}"
    settings = CatalogSettings("lake", {"type": "sql", "uri": uri, "warehouse": warehouse}, {})
    with closing(open_catalog(settings)) as catalog:
        catalog.create_namespace("db")
        _append(catalog.create_table(NAME, schema_of({"id": "long"})))
        yield catalog


def _append(table: Table) -> None:
    """A snapshot without files."""
    attempt = build_append(table, [Step((), {"said": "hello"})], tag="calve-test")
    table.catalog.commit_table(table, attempt.requirements, attempt.updates)


def test_it_is_what_pipelines_open(ours: Catalog) -> None:
    assert isinstance(ours, RememberingSqlCatalog)


def test_a_metadata_file_is_read_once(ours: Catalog, catalog: SqlCatalog) -> None:
    theirs = catalog.load_table(NAME)
    _append(theirs)
    read = ours.load_table(NAME)
    Path(read.metadata_location.removeprefix("file://")).unlink()
    assert ours.load_table(NAME).metadata == read.metadata
    with pytest.raises(FileNotFoundError):
        catalog.load_table(NAME)


def test_a_commit_needs_no_file_read(ours: Catalog) -> None:
    table = ours.load_table(NAME)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    _append(table)
    assert len(ours.load_table(NAME).metadata.snapshots) == 2


def test_what_others_commit_is_seen_at_once(ours: Catalog, catalog: SqlCatalog) -> None:
    before = ours.load_table(NAME)
    _append(catalog.load_table(NAME))
    assert len(ours.load_table(NAME).metadata.snapshots) == 2
    with pytest.raises(CommitFailedException):
        _append(before)


def test_tables_are_as_pyiceberg_reads_them(ours: Catalog, catalog: SqlCatalog) -> None:
    for _ in range(3):
        _append(ours.load_table(NAME))
    mine, theirs = ours.load_table(NAME), catalog.load_table(NAME)
    assert mine.metadata_location == theirs.metadata_location
    assert mine.name() == theirs.name()
    assert mine.metadata.model_dump_json() == theirs.metadata.model_dump_json()


def test_metadata_files_are_as_pyiceberg_writes_them(ours: Catalog) -> None:
    table = ours.load_table(NAME)
    with table.transaction() as changes:
        changes.set_properties({"said": '"snapshots":[] and {"snapshots":[]}', "snapshots": "[]"})
    for _ in range(3):
        _append(ours.load_table(NAME))
    table = ours.load_table(NAME)
    written = Path(table.metadata_location.removeprefix("file://")).read_text()
    assert len(table.metadata.snapshots) == 4
    assert written == TableMetadataUtil.parse_raw(written).model_dump_json()


def test_a_snapshot_is_formatted_once(ours: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[int] = []
    of_pyiceberg = Snapshot.model_dump_json

    def counted(snapshot: Snapshot, **options: bool) -> str:
        formatted.append(snapshot.snapshot_id)
        return of_pyiceberg(snapshot, **options)

    monkeypatch.setattr(Snapshot, "model_dump_json", counted)
    for _ in range(3):
        _append(ours.load_table(NAME))
    ids = [snapshot.snapshot_id for snapshot in ours.load_table(NAME).metadata.snapshots]
    assert sorted(formatted) == sorted(ids[1:])


def test_what_was_loaded_stays_as_it_was(ours: Catalog) -> None:
    before = ours.load_table(NAME)
    text = before.metadata.model_dump_json()
    _append(before)
    with ours.load_table(NAME).transaction() as change:
        change.set_properties({"said": "more"})
    assert before.metadata.model_dump_json() == text
    assert "said" not in before.metadata.properties


def test_it_remembers_only_so_many(ours: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(ours, RememberingSqlCatalog)
    _append(ours.load_table(NAME))
    assert len(ours._known) == 1, "the last metadata of a table"  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(sql, "KNOWN", 2)
    for number in range(4):
        ours.create_table(f"db.t{number}", schema_of({"id": "long"}))
    assert len(ours._known) == 2  # pyright: ignore[reportPrivateUsage]
    assert ours.load_table("db.t0").name() == ("db", "t0")
