"""Batches of row changes, written as Spark's tasks do it: pieces of what each has read go to the task of their keys."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

from calve.sink_core.iceberg.changes import writer
from calve.sink_core.iceberg.changes.existing_rows import existing_rows_of, existing_rows_schema
from calve.sink_core.iceberg.changes.pieces import ChangePieces
from calve.sink_core.iceberg.write.outputs import output_of
from calve.sink_core.records.changes import rows
from calve.sink_core.tables.batch import TableOutput
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.pieces import Outbox, Piece, rows_of
from calve.sink_core.tables.row_changes import RowChanges
from calve.spark_jobs.existing_rows import existing_pieces
from tests.row_histories.records import Kind, Record

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "country", StringType(), required=False),
    NestedField(3, "v", IntegerType(), required=False),
    NestedField(4, "n", LongType(), required=False),
    NestedField(5, "_is_deleted", BooleanType(), required=False),
)
KEY, ORDER = (1,), 4
TOPICS = ("t",)
BUCKETS = 2

ExistingRows = Sequence[tuple[int, int]]
"""Key and order of the rows that a table has."""


def settings_of(kind: Kind) -> RowChanges:
    """As a pipeline file would say it."""
    if kind is Kind.ORDERED:
        return RowChanges(KEY, order=ORDER, order_by="n", soft=True)
    return RowChanges(KEY, soft=kind is Kind.SOFT)


def written(
    table: Table,
    name: str,
    kind: Kind,
    tasks: Sequence[Sequence[Record]],
    chance: random.Random,
    existing: ExistingRows,
) -> TableOutput:
    """The batch of what `tasks` read, whose pieces arrive in any order; held against `existing` if it is ordered."""
    changes = settings_of(kind)
    sent = [piece for records in tasks for piece in _sent(table, kind, records)]
    chance.shuffle(sent)
    held = _held(table, existing) if kind is Kind.ORDERED else []
    schema, files = rows.change_schema(table.schema()), []
    for bucket in range(BUCKETS):
        mine = [piece for piece in sent if piece.bucket == bucket]
        if not mine:
            continue
        into = writer.ChangeWriter(table.io, table.metadata, "calve-b", changes=changes, table=name, topics=TOPICS)
        for piece in mine:
            into.write(rows_of(piece.data, schema))
        for piece, of in held:
            if piece.bucket == bucket:
                into.hold_against(rows_of(piece.data, of))
        files += into.close()
    return output_of(str(uuid.uuid4()), name, table, files, sum(piece.rows for piece in sent))


def _sent(table: Table, kind: Kind, records: Sequence[Record]) -> list[Piece]:
    """What a task hands on."""
    changes = [(record, change) for record in records for change in record.changes]
    soft = kind is not Kind.HARD
    origin = pa.array(
        [{"topic": TOPICS[0], "partition": record.partition, "offset": record.offset} for record, _ in changes],
        pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]),
    )
    schema = rows.change_schema(table.schema())
    columns = {
        "id": [change.key for _, change in changes],
        "country": [change.country for _, change in changes],
        "v": [change.v for _, change in changes],
        "n": [change.n for _, change in changes],
        "_is_deleted": [change.deletes if soft else None for _, change in changes],
    }
    given = pa.RecordBatch.from_arrays(
        [pa.array(values, schema.field(column).type) for column, values in columns.items()], names=list(columns)
    )
    deletes = pa.array([change.deletes for _, change in changes])
    with Outbox(BUCKETS) as outbox:
        pieces = ChangePieces(table.schema(), KEY, outbox, 0, Budget())
        pieces.write(rows.changes_of(given, deletes, origin, TOPICS, schema))
        pieces.close()
        return list(outbox.pieces())


def _held(table: Table, existing: ExistingRows) -> list[tuple[Piece, pa.Schema]]:
    place = existing_rows_of(table.metadata, KEY, settings_of(Kind.ORDERED).held)
    if place is None:
        return []
    of = existing_rows_schema(place, table.schema())
    there = pa.RecordBatch.from_arrays(
        [pa.array([row[at] for row in existing], field.type) for at, field in enumerate(of)], schema=of
    )
    return [(piece, of) for piece in existing_pieces([there], place, table.schema(), TOPICS, 0, BUCKETS)]
