"""Row changes of batches that wait, merged into a branch of their table by Iceberg's `MERGE INTO`. No rows pass through
the driver.

The files of the batches are read by tasks of ours, as they were written: no snapshot names them, so no expiry deletes
them, and Spark needs no access to the storage but what Iceberg's catalog has.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from calve.sink_core.iceberg.catalog.metadata import schema_in
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.merge import MergeWork
from calve.sink_core.iceberg.files.projection import reader_by_ids
from calve.sink_core.iceberg.maintenance.predicate import quoted
from calve.spark_jobs.catalog import attach
from calve.spark_jobs.kept import Kept
from calve.spark_jobs.procedures import as_ours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BATCH, GONE = "calve:batch", "calve:gone"
"""Columns beside the table's: the place of a change's batch among those merged, and whether its row goes."""


def merge_into(spark: SparkSession, work: MergeWork) -> None:
    """Merge the changes into their branch. Raises as `as_ours` does."""
    with as_ours(f"merging changes into {work.table}"):
        _merge(spark, work)


def _merge(spark: SparkSession, given: MergeWork) -> None:
    from pyspark.sql.types import StructType

    by, schema = given.by, schema_in(given.metadata)
    attach(spark, given.catalog)
    target = quoted(f"{given.catalog.name}.{given.table}")
    columns = spark.table(target).schema.toNullable()
    key = [schema.find_field(field_id).name for field_id in by.key]
    order = None if by.order is None else quoted(schema.find_column_name(by.order) or "")
    kept = Kept.of(schema, by) if by.keeps_old else None
    rows = _read(spark, given, tuple(f.field_id for f in schema.fields), columns, keys=False)
    if order is None:
        keys = _read(spark, given, by.key, StructType([columns[name] for name in key]), keys=True)
        source = (
            _last_by_key(rows, keys, key) if kept is None else kept.folded(_said(rows, keys, key), key, BATCH, GONE)
        )
    else:
        source = _newest_by_key(rows, key, order)
    view = f"calve_changes_{uuid.uuid4().hex}"
    source.createOrReplaceTempView(view)
    same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key)
    newer = f" AND (t.{order} IS NULL OR s.{order} >= t.{order})" if order else ""
    update, insert = "SET *", "*"
    if kept is not None:
        update, insert = f"SET {kept.updates(columns.names)}", kept.inserts(columns.names)
    try:
        spark.sql(
            f"MERGE INTO {target}.{quoted(f'branch_{given.branch}')} t USING {view} s ON {same} "
            f"WHEN MATCHED AND s.`{GONE}` THEN DELETE "
            f"WHEN MATCHED{newer} THEN UPDATE {update} "
            f"WHEN NOT MATCHED AND NOT s.`{GONE}` THEN INSERT {insert}"
        ).collect()
    finally:
        spark.catalog.dropTempView(view)


def _read(spark: SparkSession, given: MergeWork, ids: Sequence[int], columns: StructType, *, keys: bool) -> DataFrame:
    """What the files of rows, or of keys, hold of the columns with these ids; and the place of its batch."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import IntegerType, StructField, StructType

    files = tuple(number for number, staged in enumerate(given.files) if staged.keys == keys)
    tasks = spark.range(0, len(files), 1, max(1, len(files)))
    wanted = StructType([*columns.fields, StructField(BATCH, IntegerType())])
    return tasks.mapInArrow(partial(_rows, given, files, ids, to_arrow_schema(columns)), wanted)


def _last_by_key(rows: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """For each key what the last batch says that has it: its row, or that it goes."""
    from pyspark.sql import functions as f

    return _said(rows, keys.groupBy(*map(quoted, key)).agg(f.max(quoted(BATCH)).alias(BATCH)), key)


def _said(rows: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """For each key and batch what that says of it: its row, or that it goes."""
    from pyspark.sql import functions as f

    found = keys.join(rows.withColumn(GONE, f.lit(False)), on=[*key, BATCH], how="left")
    return found.withColumn(GONE, f.coalesce(f.col(quoted(GONE)), f.lit(True)))


def _newest_by_key(rows: DataFrame, key: Sequence[str], order: str) -> DataFrame:
    """For each key the row with the largest order, of equal ones that of the last batch. None goes."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest_first = Window.partitionBy(*map(quoted, key)).orderBy(f.desc(order), f.desc(quoted(BATCH)))
    ranked = rows.withColumn("calve:rank", f.row_number().over(newest_first))
    return ranked.where("`calve:rank` = 1").withColumn(GONE, f.lit(False))


def _rows(
    given: MergeWork, files: Sequence[int], ids: Sequence[int], columns: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with unreachable_as_ours(f"reading changes of {given.table}"):
        read = reader_by_ids(given.catalog, given.table, given.metadata, ids)
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            staged = given.files[files[number]]
            for rows in read(staged.file):
                arrays = [column.cast(wanted.type) for column, wanted in zip(rows.columns, columns, strict=True)]
                places = pa.array([staged.batch] * len(rows), pa.int32())
                yield pa.RecordBatch.from_arrays([*arrays, places], names=[*columns.names, BATCH])
