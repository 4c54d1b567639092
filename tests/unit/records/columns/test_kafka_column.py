"""Where a row comes from, as a column."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calve.sink_core.codes import Code
from calve.sink_core.records.columns.arrow import arrow_schema, conform
from calve.sink_core.records.columns.kafka_column import (
    has_kafka_column,
    kafka_array,
    kafka_field,
    without_kafka_column,
)
from tests.codes import raises

VALUE = NestedField(1, "a", LongType())


def test_each_row_names_topic_partition_offset_and_time() -> None:
    array = kafka_array(
        ["x", "y"],
        np.array([1, 0]),
        np.array([3, 4], np.int32),
        np.array([10, 2**40]),
        np.array([1_717_149_600_123, -1]),
    )
    moment = datetime(2024, 5, 31, 10, 0, 0, 123000, tzinfo=UTC)
    assert conform([array], arrow_schema(Schema(kafka_field(7)))).to_pylist() == [
        {"_kafka": {"topic": "y", "partition": 3, "offset": 10, "timestamp": moment}},
        {"_kafka": {"topic": "x", "partition": 4, "offset": 2**40, "timestamp": None}},
    ]


def test_the_column_is_told_apart_from_what_the_value_holds() -> None:
    schema = Schema(VALUE, kafka_field(2))
    assert has_kafka_column(schema, table="t")
    assert without_kafka_column(schema).column_names == ["a"]
    assert not has_kafka_column(Schema(VALUE), table="t")


@pytest.mark.parametrize("kind", [StringType(), StructType(NestedField(3, "topic", StringType()))])
def test_a_column_of_that_name_and_another_type_is_refused(kind: StringType | StructType) -> None:
    with raises(Code.FOREIGN_COLUMNS, "t", "_kafka"):
        has_kafka_column(Schema(VALUE, NestedField(2, "_kafka", kind)), table="t")
