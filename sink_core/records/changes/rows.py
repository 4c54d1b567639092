"""Changes as Arrow rows: a table's columns, and three more that say what a change does and where it comes from."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from calve.sink_core.offsets import TopicPartition
from calve.sink_core.records.columns.arrow import arrow_schema

DELETES, SOURCE, OFFSET = -3, -2, -1
"""Places of the further columns: whether the row of the key goes, of which source partition, at which offset."""

NO_ORDER = "missing or null, and by it changes are in order"

_FURTHER = (("calve:deletes", pa.bool_()), ("calve:source", pa.int64()), ("calve:offset", pa.int64()))
_PARTITION_BITS = 32


def change_schema(schema: Schema) -> pa.Schema:
    """Of changes of a table; what is required may be null in a row that deletes."""
    columns = [field.with_nullable(True) for field in arrow_schema(schema)]
    return pa.schema([*columns, *(pa.field(name, kind) for name, kind in _FURTHER)])


def places_of(key: Sequence[int], schema: Schema) -> list[int]:
    """Places of the key's columns (by field id) among the columns of a table."""
    ids = [field.field_id for field in schema.fields]
    return [ids.index(field_id) for field_id in key]


def changes_of(
    rows: pa.RecordBatch, deletes: pa.Array, origin: pa.Array, topics: Sequence[str], schema: pa.Schema
) -> pa.RecordBatch:
    """Changes by `schema`, of `change_schema`. `rows` has columns by name, of which others are null; `origin` is their
    `_kafka` column, and its topics are among `topics`.
    """
    topic, partition, offset, *_ = origin.flatten()
    source = sources_of(topic, partition, topics)
    known = dict(zip(rows.schema.names, rows.columns, strict=True))
    fields = [schema.field(at) for at in range(len(schema) - len(_FURTHER))]
    columns = [known[f.name] if f.name in known else pa.nulls(len(rows), f.type) for f in fields]
    return pa.RecordBatch.from_arrays([*columns, deletes, source, offset], schema=schema)


def sources_of(topic: pa.Array, partition: pa.Array, topics: Sequence[str]) -> pa.Array:
    """The column of sources for these, of which none is null and each topic among `topics`."""
    number = pc.index_in(topic, value_set=pa.array(topics, topic.type)).to_numpy().astype(np.int64)
    return pa.array((number << _PARTITION_BITS) | partition.to_numpy().astype(np.int64))


def source_of(number: int, topics: Sequence[str]) -> TopicPartition:
    """The source partition that a number in the column of sources stands for."""
    return TopicPartition(topics[number >> _PARTITION_BITS], number & (2**_PARTITION_BITS - 1))
