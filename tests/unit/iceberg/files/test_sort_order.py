"""Rows sorted and divided as the table's sort order says: against Python's own sort, by Iceberg's rules."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.sink_core.iceberg.files.sort_order import Order, distribution_of
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.tables.budget import Budget

ASC, DESC = SortDirection.ASC, SortDirection.DESC
IDENTITY = IdentityTransform()
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "s", StringType()),
    NestedField(3, "x", DoubleType()),
    NestedField(4, "tz", TimestamptzType()),
    NestedField(5, "dec", DecimalType(20, 2)),
    NestedField(6, "f", FixedType(4)),
    NestedField(7, "u", UUIDType()),
    NestedField(8, "yes", BooleanType()),
    NestedField(9, "b", BinaryType()),
    NestedField(10, "at", StructType(NestedField(11, "n", LongType()))),
    NestedField(12, "d", DateType()),
    NestedField(13, "t", TimeType()),
)
MOMENT = datetime(2024, 2, 28, 22, 30, tzinfo=UTC)


def rows(number: int = 300, seed: int = 7) -> list[dict[str, Any]]:
    random_ = random.Random(seed)

    def row(i: int) -> dict[str, Any]:
        moment = MOMENT + timedelta(hours=random_.randrange(500))
        made: dict[str, Any] = {
            "s": random_.choice(["", "a", "ab", "ä", "z", "\U0001f40b", "\uffff"]),
            "x": random_.choice([math.nan, math.inf, -math.inf, 0.5, -1.5, 3.0]),
            "tz": moment,
            "dec": Decimal(random_.randrange(-9, 9)) / 4,
            "f": random_.randbytes(4),
            "u": random_.randbytes(16),
            "yes": random_.random() < 0.5,
            "b": random_.randbytes(random_.randrange(3)),
            "at": None if random_.random() < 0.1 else {"n": random_.choice([None, 1, 2, 3])},
            "d": moment.date(),
            "t": moment.time(),
        }
        return {"id": i} | {k: None if random_.random() < 0.15 else v for k, v in made.items()}

    return [row(i) for i in range(number)]


def by(source: int, direction: SortDirection = ASC, nulls: NullOrder = FIRST, transform: Any = None) -> SortField:
    return SortField(
        source_id=source, transform=transform or IdentityTransform(), direction=direction, null_order=nulls
    )


def compare(one: Any, other: Any, field: SortField) -> int:
    """Of two transformed values; NaN is the greatest value."""
    if one is None or other is None:
        return ((one is None) - (other is None)) * (-1 if field.null_order is FIRST else 1)
    keys = [
        (isinstance(v, float) and math.isnan(v), 0.0 if isinstance(v, float) and math.isnan(v) else v)
        for v in (one, other)
    ]
    keys = [(nan, v.encode() if isinstance(v, str) else v) for nan, v in keys]
    return ((keys[0] > keys[1]) - (keys[0] < keys[1])) * (1 if field.direction is ASC else -1)


def table_of(given: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_batches([pa.RecordBatch.from_pylist(given, schema=arrow_schema(SCHEMA))])


def expected(given: list[dict[str, Any]], order: Order) -> list[int]:
    columns = order.keys(table_of(given)).to_pylist()
    values = {
        row["id"]: [keys[f"value{i}"] for i in range(len(order.fields))]
        for row, keys in zip(given, columns, strict=True)
    }

    def compared(one: dict[str, Any], other: dict[str, Any]) -> int:
        pairs = zip(values[one["id"]], values[other["id"]], order.fields, strict=True)
        return next((c for c in (compare(a, b, field) for a, b, field in pairs) if c), 0)

    return [row["id"] for row in sorted(given, key=cmp_to_key(compared))]


ORDERS = [
    *(
        (by(source, direction, nulls),)
        for source in (2, 3, 5, 8, 11)
        for direction in (ASC, DESC)
        for nulls in (FIRST, LAST)
    ),
    *((by(source),) for source in (4, 6, 7, 9, 12, 13)),
    (by(2, DESC, LAST), by(3, ASC, LAST), by(1, DESC)),
    (by(4, transform=DayTransform()), by(2, transform=TruncateTransform(1)), by(7, transform=BucketTransform(3))),
]


@pytest.mark.parametrize("fields", ORDERS, ids=lambda fields: "-".join(str(field) for field in fields))
def test_rows_are_sorted_and_divided_by_iceberg_s_order(fields: tuple[SortField, ...]) -> None:
    given, order = rows(), Order(fields, SCHEMA)
    wanted = expected(given, order)
    assert order.sort(table_of(given))["id"].to_pylist() == wanted
    boundaries = order.boundaries(order.keys(table_of(given[::3])), 4)
    assert len(boundaries) <= 3
    # Rows that come in two parts, as from two tasks, fall into the same ranges.
    ranges: dict[int, set[int]] = {}
    for half in (given[:100], given[100:]):
        for number, part in order.divide(table_of(half), boundaries):
            ids = part["id"].to_pylist()
            assert ids == [i for i in wanted if i in set(ids)]
            ranges.setdefault(number, set()).update(ids)
    assert sorted(i for ids in ranges.values() for i in ids) == [row["id"] for row in given]
    # Through all rows in order, the number of the range never falls.
    numbers = [next(number for number, ids in ranges.items() if i in ids) for i in wanted]
    assert numbers == sorted(numbers)


def test_ranges_are_of_about_equal_size_and_equal_keys_stay_together() -> None:
    order = Order((by(1),), SCHEMA)
    given = rows(1_000)
    sizes = [len(part) for _, part in order.divide(table_of(given), order.boundaries(order.keys(table_of(given)), 4))]
    assert sizes == [250] * 4
    same = [row | {"id": 5} for row in given]
    assert [len(part) for _, part in order.divide(table_of(same), order.boundaries(order.keys(table_of(same)), 4))] == [
        1_000
    ]
    empty = order.boundaries(order.keys(table_of([])), 4)
    assert [(number, len(part)) for number, part in order.divide(table_of(given), empty)] == [(0, 1_000)]


@pytest.fixture
def tables(catalog: SqlCatalog) -> Callable[..., Table]:
    catalog.create_namespace("ns")

    def create(*order: SortField, spec: Transform[Any, Any] | None = None, **properties: str) -> Table:
        partition = PartitionSpec(PartitionField(8, 1000, spec, "p")) if spec else PartitionSpec()
        name = f"ns.t{uuid.uuid4().hex}"
        return catalog.create_table(
            name, SCHEMA, partition_spec=partition, sort_order=SortOrder(*order), properties=properties
        )

    return create


@pytest.mark.parametrize("spec", [None, IdentityTransform()])
def test_each_file_is_sorted_as_a_whole_and_says_so(
    tables: Callable[..., Table], spec: Transform[Any, Any] | None
) -> None:
    small = {"write.parquet.row-group-size-bytes": "4000", "write.target-file-size-bytes": "60000"}
    table = tables(by(2, DESC, LAST), by(1, DESC), spec=spec, **small)
    writer = TableWriter(table.io, table.metadata, "calve-b-0", budget=Budget(200_000))
    given = rows(6_000)
    for start in range(0, len(given), 500):
        writer.write(table_of(given[start : start + 500]).to_batches()[0])
    files = writer.close()
    assert {file.sort_order_id for file in files} == {1}
    assert max(len(file.split_offsets) for file in files) > 3
    order, found = Order.within_files(table.metadata), []
    assert order is not None
    for file in files:
        path = file.path.removeprefix("file://")
        ids = pq.read_table(path, columns=["id"])["id"].to_pylist()
        # As another engine sorts them.
        sql = f"select id from '{path}' order by s desc nulls last, id desc"
        assert ids == [row[0] for row in duckdb.sql(sql).fetchall()]
        assert spec is None or len(set(pq.read_table(path, columns=["yes"])["yes"].to_pylist())) == 1
        found += ids
    assert sorted(found) == list(range(6_000))
    assert len(files) < 40


def test_files_of_a_table_without_an_order_say_nothing(tables: Callable[..., Table]) -> None:
    table = tables()
    writer = TableWriter(table.io, table.metadata, "calve-b-0")
    writer.write(table_of(rows(10)).to_batches()[0])
    assert [file.sort_order_id for file in writer.close()] == [None]
    # By a column that nothing is left of.
    assert Order.within_files(tables(by(2, transform=VoidTransform())).metadata) is None


@pytest.mark.parametrize(
    ("mode", "partitioned", "is_sorted", "found"),
    [
        (None, True, True, "none"),
        ("none", True, True, "none"),
        ("hash", True, False, "hash"),
        ("HASH", True, True, "hash"),
        ("hash", False, True, "none"),
        ("range", True, False, "range"),
        ("range", False, True, "range"),
        ("range", False, False, "none"),
    ],
)
def test_the_distribution_a_table_asks_for(
    tables: Callable[..., Table], mode: str | None, partitioned: bool, is_sorted: bool, found: str
) -> None:
    properties = {"write.distribution-mode": mode} if mode else {}
    table = tables(*([by(1)] if is_sorted else []), spec=IdentityTransform() if partitioned else None, **properties)
    assert distribution_of(table.metadata) == found
