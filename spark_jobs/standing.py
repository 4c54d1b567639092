"""The rows that a table has, on their way to the tasks that hold ordered changes against them: key and order only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from sink_core.changes.rows import buckets_of
from sink_core.changes.standing import Standing, standing_schema
from sink_core.config.effective import CatalogSettings
from sink_core.maintenance.predicate import quoted
from spark_jobs.catalog import attach
from spark_jobs.pieces import Piece, pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def standing_rows(session: SparkSession, catalog: CatalogSettings, table: str, standing: Standing) -> DataFrame:
    """Key and order of the rows that have an order, as they stand in the snapshot, deletes applied."""
    attach(session, catalog)
    columns = [quoted(name) for name in standing.columns]
    source = f"{quoted(f'{catalog.name}.{table}')} VERSION AS OF {standing.snapshot_id}"
    return session.sql(f"SELECT {', '.join(columns)} FROM {source} WHERE {columns[-1]} IS NOT NULL")  # noqa: S608


def standing_pieces(
    batches: Iterable[pa.RecordBatch], standing: Standing, schema: Schema, number: int, buckets: int
) -> Iterator[Piece]:
    """Such rows of the table with that number as pieces, each for the task that gets the changes of its keys."""
    wanted = standing_schema(standing, schema)
    columns = Schema(*(schema.find_field(field_id) for field_id in standing.key))
    for batch in batches:
        arrays = [column.cast(of.type) for column, of in zip(batch.columns, wanted, strict=True)]
        rows = pa.Table.from_arrays(arrays, schema=wanted)
        found = buckets_of(rows, standing.key, columns, buckets)
        for bucket in np.unique(found).tolist():
            yield from pieces(bucket, number, rows.filter(pa.array(found == bucket)))
