"""Files are left out of a proof only if their metrics say that they have none of the rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from calve.sink_core.iceberg.commit.replace import live_files
from calve.sink_core.iceberg.verify.wanted import may_have
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tables.format.proven import RowsOfRuns, RowsSince, Wanted

COLUMNS = {"topic": StringType(), "partition": IntegerType(), "offset": LongType(), "at": TimestamptzType()}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A file of offsets 0 and 1, at 10 ms and 20 ms."""
    catalog.create_namespace("db")
    schema = Schema(*(NestedField(i, name, kind) for i, (name, kind) in enumerate(COLUMNS.items(), 1)))
    table = catalog.create_table("db.t", schema)
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in (10, 20)]
    values = {
        "topic": pa.array(["t", "t"], pa.string()),
        "partition": pa.array([0, 0], pa.int32()),
        "offset": pa.array([0, 1], pa.int64()),
        "at": pa.array(times, pa.timestamp("us", "UTC")),
    }
    table.append(pa.table(values))
    return table


@pytest.mark.parametrize(
    ("wanted", "may"),
    [
        (RowsSince("at", 20), True),
        (RowsSince("at", 21), False),
        (RowsOfRuns({TopicPartition("t", 0): ((1, 9),)}, None), True),
        (RowsOfRuns({TopicPartition("t", 0): ((2, 9),)}, None), False),
        (RowsOfRuns({TopicPartition("t", 1): ((0, 9),)}, None), False),
    ],
)
def test_metrics_tell(table: Table, wanted: Wanted, may: bool) -> None:
    (file,) = live_files(table)
    assert may_have(table.schema(), wanted)(file) is may


def test_a_file_without_metrics_may_have_any_row(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.metadata.metrics.default": "none"})
    table.overwrite(table.scan().to_arrow())
    (file,) = live_files(table)
    assert may_have(table.schema(), RowsSince("at", 21))(file)
