"""What Iceberg's `create_changelog_view` shows downstream of the tables of each mode (docs/row_changes.md)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.tables.batch import ToMerge
from tests import support
from tests.changing import Change, commit, merge, written

BATCHES = (
    [Change({"id": 1, "v": "a"}), Change({"id": 2, "v": "a"})],
    [Change({"id": 1, "v": "b"}), Change({"id": 2}, deletes=True), Change({"id": 3, "v": "a"})],
    # A key that was never there, and a row that is the same again.
    [Change({"id": 9}, deletes=True), Change({"id": 3, "v": "a"})],
    [Change({"id": 3}, deletes=True)],
)
REFUSED = "Delete files are currently not supported in changelog scans"
Changed = tuple[str, int, str]


@pytest.fixture
def settings(lake_dir: Path) -> CatalogSettings:
    return CatalogSettings("lake", {"type": "sql", **support.catalog_properties(lake_dir)}, {})


def create(lake: SqlCatalog, **properties: str) -> str:
    lake.create_namespace_if_not_exists("feed")
    name = f"feed.t{uuid.uuid4().hex}"
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()))
    lake.create_table(name, schema, properties={"format-version": "2", **properties})
    return name


def feed(spark: SparkSession, name: str) -> list[list[Changed]]:
    """What changed, by commit that changed anything, in the words of the view."""
    arguments = f"table => '{name}', changelog_view => 'feed', identifier_columns => array('id')"
    spark.sql(f"CALL lake.system.create_changelog_view({arguments})").collect()
    rows = spark.sql("SELECT _change_ordinal, _change_type, id, v FROM feed").collect()
    found = sorted((row[0], row["id"], row[1], row["v"]) for row in rows)
    return [[(kind, key, v) for at, key, kind, v in found if at == one] for one in sorted({row[0] for row in found})]


def test_of_appended_records_each_is_an_insert(lake: SqlCatalog, spark: SparkSession) -> None:
    name = create(lake)
    for batch in BATCHES[:2]:
        output = written(lake, lake.load_table(name), ["id"], batch)
        commit(lake, name, [replace(output, manifests=tuple(m for m in output.manifests if not m.deletes))])
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()
    assert feed(spark, name) == [[("INSERT", 1, "a"), ("INSERT", 2, "a")], [("INSERT", 1, "b"), ("INSERT", 3, "a")]]


def test_of_a_merged_table_it_shows_what_became_of_each_row(
    lake: SqlCatalog, spark: SparkSession, settings: CatalogSettings
) -> None:
    name = create(lake, **{"write.merge.mode": "copy-on-write"})
    for batch in BATCHES:
        outputs = [written(lake, lake.load_table(name), ["id"], batch)]
        merge(lake, name, outputs, spark, settings, ToMerge((1,)))
    assert feed(spark, name) == [
        [("INSERT", 1, "a"), ("INSERT", 2, "a")],
        [("UPDATE_AFTER", 1, "b"), ("UPDATE_BEFORE", 1, "a"), ("DELETE", 2, "a"), ("INSERT", 3, "a")],
        [("DELETE", 3, "a")],
    ]


def test_with_equality_deletes_iceberg_refuses_it(lake: SqlCatalog, spark: SparkSession) -> None:
    name = create(lake)
    commit(lake, name, [written(lake, lake.load_table(name), ["id"], BATCHES[0])])
    with pytest.raises(PySparkException, match=REFUSED):
        feed(spark, name)


def test_with_position_deletes_iceberg_refuses_it(
    lake: SqlCatalog, spark: SparkSession, settings: CatalogSettings
) -> None:
    name = create(lake, **{"write.merge.mode": "merge-on-read"})
    for batch in BATCHES[:2]:
        outputs = [written(lake, lake.load_table(name), ["id"], batch)]
        merge(lake, name, outputs, spark, settings, ToMerge((1,)))
    with pytest.raises(PySparkException, match=REFUSED):
        feed(spark, name)
