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

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.tables.batch import BatchPlan

Headers = Sequence[tuple[str, bytes | None]]


LOST, UNROUTED, LEFT_OUT = "lost", "unrouted", "left_out"
"""The ledger's columns that older ledgers lack; they then count as 0."""


def _schema(columns: dict[str, tuple[IcebergType, str]], *, optional: frozenset[str]) -> Schema:
    return Schema(
        *(
            NestedField(i, name, kind, required=name not in optional, doc=doc)
            for i, (name, (kind, doc)) in enumerate(columns.items(), 1)
        )
    )


LEDGER_SCHEMA = _schema(
    {
        "batch_id": (StringType(), "The batch, or the range job, that the offsets were read by."),
        "predecessor": (StringType(), "The batch whose positions this one began at; empty for the first."),
        "planned_at": (TimestamptzType(), "When the batch was planned, by the broker's clock."),
        "topic": (StringType(), "Source topic."),
        "topic_id": (StringType(), "The topic's UUID: one that was created again has another."),
        "partition": (IntegerType(), "Source partition."),
        "start_offset": (LongType(), "First offset of the range."),
        "end_offset": (LongType(), "The offset after the range: the next to be read."),
        "records": (
            LongType(),
            "Records that the broker delivered; records + gaps + lost = end_offset - start_offset.",
        ),
        "gaps": (LongType(), "Offsets without a record: control records, aborted transactions, compaction."),
        "tombstones": (LongType(), "Records without a value, which no table stores as a row."),
        "filtered": (LongType(), "Records that the SQL of every table that takes them leaves out."),
        "dead_lettered": (LongType(), "Records that could not be stored and are dead letters."),
        "value_bytes": (LongType(), "Bytes of keys and values as delivered."),
        "max_timestamp": (TimestamptzType(), "Latest timestamp of a record; null without records."),
        "timestamp_type": (IntegerType(), "The topic's: 1 CreateTime, 2 LogAppendTime, 0 not available."),
        "written": (MapType(101, StringType(), 102, LongType(), value_required=True), "Rows by table."),
        LOST: (LongType(), "Offsets that the answer to a finding passed over unread."),
        UNROUTED: (LongType(), "Records that no table takes by its rule."),
        LEFT_OUT: (
            MapType(103, StringType(), 104, LongType(), value_required=True),
            "Records by table that its rule or SQL left out.",
        ),
    },
    optional=frozenset({"max_timestamp", LOST, UNROUTED, LEFT_OUT}),
)
"""One row per batch and partition whose position moved; `PartitionCounts` says what the columns mean."""

_HEADER = StructType(
    NestedField(102, "key", StringType(), required=True), NestedField(103, "value", BinaryType(), required=False)
)
DEAD_LETTER_SCHEMA = _schema(
    {
        "batch_id": (StringType(), "The batch, or the replay, that set the record aside."),
        "error": (StringType(), "Why it could not be stored; the field first."),
        "stage": (StringType(), "Where it failed: decode, fit or transform."),
        "topic": (StringType(), "Source topic."),
        "partition": (IntegerType(), "Source partition."),
        "offset": (LongType(), "Source offset."),
        "timestamp": (TimestamptzType(), "The record's timestamp; null if it has none."),
        "key": (BinaryType(), "The record's key as delivered."),
        "value": (BinaryType(), "The record's value as delivered."),
        "headers": (ListType(101, _HEADER, element_required=True), "The record's headers as delivered."),
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
