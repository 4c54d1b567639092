"""Lakes whose tables are read by ClickHouse, or by Spark, for all histories of a module."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.row_histories.machine import Lake
from tests.row_histories.readers import clickhouse, spark_reader

REWRITTEN = "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"


@pytest.fixture(scope="module")
def by_clickhouse(lake: SqlCatalog) -> Generator[Lake]:
    with clickhouse() as read:
        yield Lake(lake, read)


@pytest.fixture(scope="module")
def by_spark(lake: SqlCatalog, spark: SparkSession) -> Lake:
    def compact(name: str) -> None:
        spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', {REWRITTEN})").collect()

    return Lake(lake, spark_reader(spark), compact)
