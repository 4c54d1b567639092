"""The rows that a table has, on their way to the tasks that hold changes against them: key and order or source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.changes.existing_rows import existing_rows_schema
from calve.sink_core.iceberg.files.partition import buckets_of
from calve.sink_core.iceberg.maintenance.predicate import quoted
from calve.sink_core.records.changes.rows import sources_of
from calve.sink_core.records.columns.type_text import spark_type_text
from calve.sink_core.tables.pieces import Bounds, Piece, pieces
from calve.sink_core.tables.row_changes import ExistingRows
from calve.spark_jobs.catalog import attach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def existing_rows(
    session: SparkSession,
    catalog: CatalogSettings,
    table: str,
    existing: ExistingRows,
    schema: Schema,
    topics: Sequence[str],
    bounds: Bounds | None,
) -> DataFrame:
    """Key, and order or topic and partition, of the rows that have these, as they stand in the snapshot, deletes
    applied: of those whose first key column lies within `bounds`, if given, and that came from `topics`. Files that
    have none within the bounds are not read.
    """
    attach(session, catalog)
    names = [quoted(name) for name in existing.columns]
    kinds = [schema.find_type(field_id) for field_id in existing.key]
    # Spark hands them on as text.
    keys = [
        f"unhex(replace({name}, '-', ''))" if isinstance(kind, UUIDType) else name
        for name, kind in zip(names, kinds, strict=False)
    ]
    held = names[len(kinds) :]
    wanted, given = [f"{held[-1]} IS NOT NULL"], dict[str, str]()
    if existing.by_source:
        given |= {f"topic{at}": topic for at, topic in enumerate(topics)}
        wanted.append(f"{held[0]} IN ({', '.join(f':topic{at}' for at in range(len(topics)))})")
    if bounds is not None:
        given |= {"least": str(bounds[0]), "greatest": str(bounds[1])}
        low, high = (f"CAST(:{name} AS {spark_type_text(kinds[0])})" for name in ("least", "greatest"))
        wanted.append(f"{names[0]} BETWEEN {low} AND {high}")
    columns = ", ".join(f"{name} AS c{at}" for at, name in enumerate([*keys, *held]))
    source = f"{quoted(f'{catalog.name}.{table}')} VERSION AS OF {existing.snapshot_id}"
    return session.sql(f"SELECT {columns} FROM {source} WHERE {' AND '.join(wanted)}", args=given)  # noqa: S608


def existing_pieces(
    batches: Iterable[pa.RecordBatch],
    existing: ExistingRows,
    schema: Schema,
    topics: Sequence[str],
    number: int,
    buckets: int,
) -> Iterator[Piece]:
    """Such rows of the table with that number as pieces, each for the task that gets the changes of its keys."""
    wanted = existing_rows_schema(existing, schema)
    columns = Schema(*(schema.find_field(field_id) for field_id in existing.key))
    for batch in batches:
        given = batch.columns
        if existing.by_source:
            given = [*given[:-2], sources_of(given[-2], given[-1], topics)]
        arrays = [column.cast(of.type) for column, of in zip(given, wanted, strict=True)]
        rows = pa.Table.from_arrays(arrays, schema=wanted)
        found = buckets_of(rows, existing.key, columns, buckets)
        for bucket in np.unique(found).tolist():
            yield from pieces(bucket, number, rows.filter(pa.array(found == bucket)))
