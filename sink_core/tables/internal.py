"""The two tables Calve feeds for itself: the ledger and the dead letters. Field ids are provisional."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from sink_core.batch import BatchPlan, PartitionCounts
from sink_core.tables.arrow import arrow_schema

Headers = Sequence[tuple[str, bytes | None]]


LOST, UNROUTED, LEFT_OUT = "lost", "unrouted", "left_out"
"""The ledger's columns that older ledgers lack; they then count as 0."""


def _schema(columns: dict[str, IcebergType], *, optional: frozenset[str]) -> Schema:
    fields = (
        NestedField(i, name, kind, required=name not in optional) for i, (name, kind) in enumerate(columns.items(), 1)
    )
    return Schema(*fields)


LEDGER_SCHEMA = _schema(
    {
        "batch_id": StringType(),
        "predecessor": StringType(),
        "planned_at": TimestamptzType(),
        "topic": StringType(),
        "topic_id": StringType(),
        "partition": IntegerType(),
        "start_offset": LongType(),
        "end_offset": LongType(),
        "records": LongType(),
        "gaps": LongType(),
        "tombstones": LongType(),
        "filtered": LongType(),
        "dead_lettered": LongType(),
        "value_bytes": LongType(),
        "max_timestamp": TimestamptzType(),
        "timestamp_type": IntegerType(),
        "written": MapType(101, StringType(), 102, LongType(), value_required=True),
        LOST: LongType(),
        UNROUTED: LongType(),
        LEFT_OUT: MapType(103, StringType(), 104, LongType(), value_required=True),
    },
    optional=frozenset({"max_timestamp", LOST, UNROUTED, LEFT_OUT}),
)
"""One row per batch and partition whose position moved; `PartitionCounts` says what the columns mean."""

_HEADER = StructType(
    NestedField(102, "key", StringType(), required=True), NestedField(103, "value", BinaryType(), required=False)
)
DEAD_LETTER_SCHEMA = _schema(
    {
        "batch_id": StringType(),
        "error": StringType(),
        "stage": StringType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestamptzType(),
        "key": BinaryType(),
        "value": BinaryType(),
        "headers": ListType(101, _HEADER, element_required=True),
    },
    optional=frozenset({"timestamp", "key", "value", "headers"}),
)
"""One row per record that could not be stored, with all of the record. `stage` is `decode`, `fit` or `transform`."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be stored. `timestamp_ms` is -1 if it has none."""

    error: str
    stage: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


def ledger_rows(plan: BatchPlan, counts: Sequence[PartitionCounts]) -> pa.RecordBatch:
    """A row for each of `counts`, in the schema of the ledger."""
    rows = [
        {
            "batch_id": plan.batch_id,
            "predecessor": plan.predecessor,
            "planned_at": plan.broker_time_ms * 1000,
            "topic": c.topic,
            "topic_id": plan.topic_ids[c.topic],
            "partition": c.partition,
            "start_offset": c.start,
            "end_offset": c.end,
            "records": c.records,
            "gaps": c.gaps,
            "tombstones": c.tombstones,
            "filtered": c.filtered,
            "dead_lettered": c.dead_lettered,
            "value_bytes": c.value_bytes,
            "max_timestamp": _micros(c.max_timestamp_ms),
            "timestamp_type": c.timestamp_type,
            "written": list(c.written.items()),
            LOST: c.lost,
            UNROUTED: c.unrouted,
            LEFT_OUT: list(c.left_out.items()),
        }
        for c in counts
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(LEDGER_SCHEMA))


def dead_letter_rows(batch_id: str, letters: Sequence[DeadLetter]) -> pa.RecordBatch:
    """A row for each of `letters`, in the schema of the dead letters."""
    rows = [
        {
            "batch_id": batch_id,
            "error": letter.error,
            "stage": letter.stage,
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": _micros(letter.timestamp_ms),
            "key": letter.key,
            "value": letter.value,
            "headers": [{"key": key, "value": value} for key, value in letter.headers or ()],
        }
        for letter in letters
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(DEAD_LETTER_SCHEMA))


def _micros(milliseconds: int) -> int | None:
    return milliseconds * 1000 if milliseconds >= 0 else None
