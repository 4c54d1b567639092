"""Lakes whose tables are read by ClickHouse, by Spark, or by both, for all histories of a module."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.row_histories.machine import Lake, Reader
from tests.row_histories.readers import clickhouse, spark_reader

REWRITTEN = "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"


@pytest.fixture(scope="module")
def clickhouse_reader() -> Generator[Reader]:
    with clickhouse() as read:
        yield read


@pytest.fixture
def by_clickhouse(lake: SqlCatalog, clickhouse_reader: Reader) -> Lake:
    return Lake(lake, {"ClickHouse": clickhouse_reader})


@pytest.fixture
def by_both(lake: SqlCatalog, clickhouse_reader: Reader, spark: SparkSession) -> Lake:
    return Lake(lake, {"ClickHouse": clickhouse_reader, "Spark": spark_reader(spark)})


@pytest.fixture
def by_spark(lake: SqlCatalog, spark: SparkSession) -> Lake:
    def compact(name: str) -> None:
        spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', {REWRITTEN})").collect()

    return Lake(lake, {"Spark": spark_reader(spark)}, compact)
