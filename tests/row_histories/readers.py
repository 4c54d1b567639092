"""ClickHouse and Spark as readers of tables with equality deletes."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chdb
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.row_histories.machine import Reader
from tests.row_histories.records import Row, in_order

COLUMNS = "id, country, v, n, _is_deleted"


@contextmanager
def clickhouse() -> Generator[Reader]:
    """One connection for all: to connect takes longer than to read."""
    with pytest.MonkeyPatch.context() as patch:
        # It reads files below the working directory only.
        patch.chdir(Path("/"))
        connection = chdb.connect(":memory:")
        try:

            def read(table: Table, snapshot_ids: Sequence[int]) -> list[list[Row]]:
                files = f"icebergLocal('{table.metadata.location.removeprefix('file://')}')"
                return _by_look(
                    snapshot_ids,
                    lambda snapshot_id: f"(SELECT * FROM {files} SETTINGS iceberg_snapshot_id = {snapshot_id})",
                    lambda query: map(json.loads, str(connection.query(query, "JSONEachRow")).splitlines()),
                )

            yield read
        finally:
            connection.close()


def spark_reader(spark: SparkSession) -> Reader:
    def read(table: Table, snapshot_ids: Sequence[int]) -> list[list[Row]]:
        name = ".".join(table.name())
        return _by_look(
            snapshot_ids,
            lambda snapshot_id: f"lake.{name} VERSION AS OF {snapshot_id}",
            lambda query: (row.asDict() for row in spark.sql(query).coalesce(1).collect()),
        )

    return read


def _by_look(
    snapshot_ids: Sequence[int], of: Callable[[int], str], ask: Callable[[str], Iterable[Mapping[str, Any]]]
) -> list[list[Row]]:
    """All of a table's snapshots in one query, `of` being what to read one from."""
    looks = (f"SELECT {at} AS at, {COLUMNS} FROM {of(snapshot_id)}" for at, snapshot_id in enumerate(snapshot_ids))
    found: list[list[Row]] = [[] for _ in snapshot_ids]
    for row in ask(" UNION ALL ".join(looks)):
        found[int(row["at"])].append(_row(row))
    return [in_order(rows) for rows in found]


def _row(given: Mapping[str, Any]) -> Row:
    # JSON of ClickHouse has large integers as text.
    n, v = given["n"], given["v"]
    return (int(given["id"]), given["country"], int(v), None if n is None else int(n), given["_is_deleted"])
