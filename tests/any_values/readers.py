"""Spark and ClickHouse as readers of tables of any values."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import chdb
import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.any_values.kinds import Leaf, ListOf, MapOf, StructOf, Type

Row = dict[str, Any]


def by_spark(spark: SparkSession, name: str, columns: Mapping[str, Type]) -> list[Row]:
    """The rows of a table, in no order."""
    return _rows(spark.table(name).toArrow(), columns)


def by_clickhouse(table: Table, columns: Mapping[str, Type]) -> list[Row]:
    """The same; needs `/` as the working directory. Where there is no list, map or struct it shows an empty one, as
    `as_clickhouse_has` says: it knows no null of these."""
    location = table.metadata.location.removeprefix("file://")
    # Not all that it takes for text is text.
    query = f"SELECT * FROM icebergLocal('{location}') SETTINGS output_format_arrow_string_as_string = 0"
    return _rows(pa.ipc.open_file(chdb.query(query, "Arrow").bytes()).read_all(), columns)


def as_clickhouse_has(kind: Type, value: Any) -> Any:
    if isinstance(kind, ListOf):
        return [as_clickhouse_has(kind.item, item) for item in value or ()]
    if isinstance(kind, MapOf):
        return {key: as_clickhouse_has(kind.item, item) for key, item in (value or {}).items()}
    if isinstance(kind, StructOf):
        return {name: as_clickhouse_has(of, (value or {}).get(name)) for name, of in kind.fields.items()}
    return value


def _rows(found: pa.Table, columns: Mapping[str, Type]) -> list[Row]:
    kind = StructOf(columns)
    return [
        {**row, **_read(kind, {name: row[name] for name in columns})}
        for row in found.to_pylist(maps_as_pydicts="strict")
    ]


def _read(kind: Type, value: Any) -> Any:
    """A value as `kinds` has it."""
    if value is None:
        return None
    if isinstance(kind, ListOf):
        return [_read(kind.item, item) for item in value]
    if isinstance(kind, MapOf):
        return {_text(key): _read(kind.item, item) for key, item in value.items()}
    if isinstance(kind, StructOf):
        return {name: _read(of, value[name]) for name, of in kind.fields.items()}
    return _leaf(kind, value)


def _leaf(kind: Leaf, value: Any) -> Any:
    if kind.text == "string":
        return _text(value)
    if kind.text == "uuid":
        return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))
    if kind.text == "timestamp":
        # ClickHouse gives the session's zone, UTC, to those without one.
        return value.replace(tzinfo=None)
    if kind.text.startswith("decimal"):
        return Decimal(value)
    return value


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
