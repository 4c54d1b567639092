"""ClickHouse and Spark as readers of tables with equality deletes."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chdb
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.row_histories.machine import Reader
from tests.row_histories.records import Row, in_order

COLUMNS = ("id", "country", "v", "n", "_is_deleted")


@contextmanager
def clickhouse() -> Generator[Reader]:
    """Of heads only. One connection for all: to connect takes longer than to read."""
    with pytest.MonkeyPatch.context() as patch:
        # It reads files below the working directory only.
        patch.chdir(Path("/"))
        connection = chdb.connect(":memory:")
        try:

            def read(table: Table, snapshot_ids: list[int]) -> list[list[Row]]:
                assert snapshot_ids == [table.metadata.current_snapshot_id]
                location = table.metadata.location.removeprefix("file://")
                found = connection.query(f"SELECT * FROM icebergLocal('{location}')", "JSONEachRow")
                return [in_order(_row(json.loads(line)) for line in str(found).splitlines())]

            yield read
        finally:
            connection.close()


def spark_reader(spark: SparkSession) -> Reader:
    """Of any snapshots, in one query."""

    def read(table: Table, snapshot_ids: list[int]) -> list[list[Row]]:
        name = ".".join(table.name())
        looks = (
            f"SELECT {at} AS at, {', '.join(COLUMNS)} FROM lake.{name} VERSION AS OF {snapshot_id}"
            for at, snapshot_id in enumerate(snapshot_ids)
        )
        found: list[list[Row]] = [[] for _ in snapshot_ids]
        for row in spark.sql(" UNION ALL ".join(looks)).coalesce(1).collect():
            found[row["at"]].append(_row(row.asDict()))
        return [in_order(rows) for rows in found]

    return read


def _row(given: Mapping[str, Any]) -> Row:
    # JSON of ClickHouse has large integers as text.
    n, v = given["n"], given["v"]
    return (int(given["id"]), given["country"], int(v), None if n is None else int(n), given["_is_deleted"])
