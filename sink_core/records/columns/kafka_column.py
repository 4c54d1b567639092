"""The struct column `_kafka`: where a row comes from. Replay, refill and `verify --deep` read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.records.columns.type_text import type_text

KAFKA_COLUMN = "_kafka"
KAFKA_TIME = f"{KAFKA_COLUMN}.timestamp"
"""Under this name records without a time that a reader could show are counted."""

_PARTS = (
    ("topic", StringType(), pa.large_string()),
    ("partition", IntegerType(), pa.int32()),
    ("offset", LongType(), pa.int64()),
    ("timestamp", TimestamptzType(), pa.timestamp("us", "UTC")),
)

_DOCS = {
    "topic": "Source topic.",
    "partition": "Source partition.",
    "offset": "Source offset.",
    "timestamp": "The record's timestamp; null without one, or without one of the years 1 to 9999.",
}

_HEADERS = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))

RAW_KEY = pa.large_binary()
"""What a key is that nobody has looked into."""


def kafka_type(key: pa.DataType) -> pa.DataType:
    """What `_kafka` is in a transform's SQL: as in tables, and the record's key, of this type, and headers."""
    return pa.struct([*((name, kind) for name, _, kind in _PARTS), ("key", key), ("headers", _HEADERS)])


def kafka_field(first_id: int) -> NestedField:
    """The column for a new table, its own field id being `first_id` and those of its parts the next four."""
    parts = [
        NestedField(first_id + i, name, kind, required=False, doc=_DOCS[name])
        for i, (name, kind, _) in enumerate(_PARTS, 1)
    ]
    doc = "Where the row comes from; replay, refill and the deep proof read it."
    return NestedField(first_id, KAFKA_COLUMN, StructType(*parts), required=False, doc=doc)


def has_kafka_column(schema: Schema, *, table: str) -> bool:
    """Whether the table has the column. Raises TableUnusable if its `_kafka` is something else."""
    field = next((field for field in schema.fields if field.name == KAFKA_COLUMN), None)
    if field is None:
        return False
    wanted = {name: kind for name, kind, _ in _PARTS}
    found = {f.name: f.field_type for f in field.field_type.fields} if isinstance(field.field_type, StructType) else {}
    if list(found.items()) != list(wanted.items()):
        raise TableUnusable(
            f"{table}: column {KAFKA_COLUMN} is {type_text(field.field_type)}, Calve's is "
            f"{type_text(kafka_field(1).field_type)}",
            hint=f"rename the column, and add one named {KAFKA_COLUMN} of that type if you want it",
            code=Code.FOREIGN_COLUMNS,
        )
    return True


def without_kafka_column(schema: Schema) -> Schema:
    """The schema of what is decoded from the value."""
    return Schema(*(field for field in schema.fields if field.name != KAFKA_COLUMN))


def kafka_array(
    topics: Sequence[str],
    topic_index: npt.NDArray[Any],
    partitions: npt.NDArray[Any],
    offsets: npt.NDArray[np.int64],
    timestamps_ms: npt.NDArray[np.int64],
) -> pa.Array:
    """The column for n records, from arrays of length n; `topic_index` points into `topics`.

    A negative timestamp means that the record has none, and becomes null.
    """
    names = pa.array(topics, pa.large_string())
    names = pa.repeat(names[0], len(offsets)) if len(set(topics)) == 1 else names.take(pa.array(topic_index))
    micros = pa.array(timestamps_ms * 1000, pa.int64(), mask=timestamps_ms < 0)
    arrays = [names, pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64()), micros.view(_PARTS[3][2])]
    return pa.StructArray.from_arrays(arrays, names=[name for name, _, _ in _PARTS])


def kafka_with_more(
    origin: pa.Array, keys: pa.Array, headers: Sequence[Sequence[tuple[str, bytes | None]] | None]
) -> pa.Array:
    """`origin`, of `kafka_array`, as `kafka_type`; one key and the headers of one record for each row."""
    structs = [None if of is None else [{"key": key, "value": value} for key, value in of] for of in headers]
    more = [keys, pa.array(structs, _HEADERS)]
    return pa.StructArray.from_arrays([*origin.flatten(), *more], fields=list(kafka_type(keys.type)))
