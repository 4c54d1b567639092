"""SQL catalogs read no metadata file that they know, and are otherwise what pyiceberg's are."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate, ValidatableTableRequirement
from sqlalchemy import event, text

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.catalog import sql
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.catalog.sql import PlainSqlCatalog
from calve.sink_core.records.columns.type_text import schema_of
from tests.support import catalog_properties

TABLE = "db.t"


@pytest.fixture
def ours(catalog: SqlCatalog, catalog_dir: Path) -> Generator[PlainSqlCatalog]:
    """The catalog as Calve opens it, in which pyiceberg has created a table."""
    catalog.create_namespace("db")
    catalog.create_table(TABLE, schema_of({"id": "long"}))
    with closing(
        open_catalog(CatalogSettings("lake", {"type": "sql", **catalog_properties(catalog_dir)}, {}))
    ) as opened:
        assert isinstance(opened, PlainSqlCatalog)
        yield opened


def put(catalog: SqlCatalog, key: str, *requirements: ValidatableTableRequirement) -> None:
    change = SetPropertiesUpdate(updates={key: "1"})
    catalog.commit_table(catalog.load_table(TABLE), requirements, (change,))


def test_tables_are_those_that_pyiceberg_loads(catalog: SqlCatalog, ours: PlainSqlCatalog) -> None:
    for _time in range(2):
        found, expected = ours.load_table(TABLE), catalog.load_table(("db", "t"))
        assert found == expected
        assert found.metadata_location == expected.metadata_location
        assert found.io.properties.items() >= expected.io.properties.items()
        put(ours, "a")


def remove_metadata(table: Table) -> None:
    Path(table.metadata_location.removeprefix("file://")).unlink()


def test_a_metadata_file_is_read_once(ours: PlainSqlCatalog) -> None:
    table = ours.load_table(TABLE)
    remove_metadata(table)
    assert ours.load_table(TABLE).metadata is table.metadata


def test_what_a_commit_has_written_is_not_read(catalog: SqlCatalog, ours: PlainSqlCatalog) -> None:
    put(ours, "a")
    table = catalog.load_table(TABLE)
    remove_metadata(table)
    assert ours.load_table(TABLE) == table


def test_a_commit_to_what_was_loaded_is_one_statement(ours: PlainSqlCatalog) -> None:
    table, said = ours.load_table(TABLE), list[str]()
    event.listen(ours.engine, "before_cursor_execute", lambda *given: said.append(given[2].split()[0]))
    ours.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "1"}),))
    assert said == ["UPDATE"]


def test_a_commit_to_what_is_not_the_table_any_more_is_based_on_what_is(
    catalog: SqlCatalog, ours: PlainSqlCatalog
) -> None:
    before = ours.load_table(TABLE)
    put(catalog, "theirs")
    same = AssertTableUUID(uuid=before.metadata.table_uuid)
    ours.commit_table(before, (same,), (SetPropertiesUpdate(updates={"ours": "1"}),))
    after = catalog.load_table(TABLE)
    assert after.properties.keys() >= {"ours", "theirs"}
    assert len(after.metadata.metadata_log) == 2


def test_tables_of_the_same_properties_share_what_opens_their_files(catalog: SqlCatalog, ours: PlainSqlCatalog) -> None:
    for name in ("db.one", "db.two"):
        catalog.create_table(name, schema_of({"id": "long"}), properties={"of": "both"})
    one, two, other = (ours.load_table(name).io for name in ("db.one", "db.two", TABLE))
    assert one is two
    assert (one.properties["of"], other.properties.get("of")) == ("both", None)


def test_of_many_tables_those_used_last_are_kept(
    catalog: SqlCatalog, ours: PlainSqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "KEPT", 2 * (5 + 1))
    names = [("db", f"t{number}") for number in range(4)]
    for name in names:
        catalog.create_table(name, schema_of({"id": "long"})).append(pa.table({"id": [1]}))
    for name in (names[0], names[1], names[0], names[2], names[0], names[3]):
        ours.load_table(name)
    for name in names:
        remove_metadata(catalog.load_table(name))
    assert [ours.load_table(name).name() for name in (names[0], names[3])] == [names[0], names[3]]
    for name in names[1:3]:
        with pytest.raises(FileNotFoundError):
            ours.load_table(name)


def test_which_file_is_the_tables_is_asked_each_time(catalog: SqlCatalog, ours: PlainSqlCatalog) -> None:
    before = ours.load_table(TABLE)
    put(catalog, "theirs")
    assert "theirs" in ours.load_table(TABLE).properties
    assert "theirs" not in before.properties


def test_what_a_commit_makes_is_what_pyiceberg_makes(catalog: SqlCatalog, ours: PlainSqlCatalog) -> None:
    before = ours.load_table(TABLE)
    put(ours, "a", AssertTableUUID(uuid=before.metadata.table_uuid))
    after = catalog.load_table(TABLE)
    assert after.properties["a"] == "1"
    assert [entry.metadata_file for entry in after.metadata.metadata_log] == [before.metadata_location]
    with ours.engine.connect() as connection:
        said = connection.execute(text("SELECT previous_metadata_location FROM iceberg_tables")).scalar()
    assert said == before.metadata_location


class Meanwhile(ValidatableTableRequirement):
    """Is met by a table that is there, but something happens after the load and before the swap."""

    type: str = "meanwhile"
    happens: Callable[[], object]

    def validate(self, base_metadata: TableMetadata | None) -> None:
        if base_metadata is None:
            raise CommitFailedException("there is no such table")
        self.happens()


def test_a_commit_that_another_overtook_is_refused_and_changes_nothing(
    catalog: SqlCatalog, ours: PlainSqlCatalog
) -> None:
    with pytest.raises(CommitFailedException, match="updated by another process"):
        put(ours, "ours", Meanwhile(happens=lambda: put(catalog, "theirs")))
    assert catalog.load_table(TABLE).properties.keys() & {"ours", "theirs"} == {"theirs"}


def test_a_commit_to_a_table_that_is_dropped_meanwhile_is_refused(catalog: SqlCatalog, ours: PlainSqlCatalog) -> None:
    table = ours.load_table(TABLE)
    same, change = AssertTableUUID(uuid=table.metadata.table_uuid), SetPropertiesUpdate(updates={"a": "1"})
    with pytest.raises(CommitFailedException):
        put(ours, "a", Meanwhile(happens=lambda: catalog.drop_table(TABLE)))
    with pytest.raises(CommitFailedException):
        ours.commit_table(table, (same,), (change,))
    with pytest.raises(NoSuchTableError):
        ours.load_table(TABLE)


def test_a_view_of_another_client_is_no_table(ours: PlainSqlCatalog) -> None:
    with ours.engine.begin() as connection:
        connection.execute(text("UPDATE iceberg_tables SET iceberg_type = 'VIEW'"))
    with pytest.raises(NoSuchTableError):
        ours.load_table(TABLE)


def test_a_catalog_of_an_early_version_is_read_and_committed_to(ours: PlainSqlCatalog, catalog_dir: Path) -> None:
    with ours.engine.begin() as connection:
        connection.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
    with closing(PlainSqlCatalog("lake", **catalog_properties(catalog_dir))) as early:
        put(early, "a")
        assert early.load_table(TABLE).properties["a"] == "1"
