"""The peer of Hudi tables: Hudi's own writer on Spark 3.5, from the same topic, by `bulk_insert`.

It is what Hudi Streamer does with a Kafka source, without that program's checkpoints; this one keeps none.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Measured, measured
from bench.scenario import Bench
from bench.workload import COLUMNS
from tests import hudi_spark

_CODE = """
from pyspark.sql.functions import col, from_json
bootstrap, topic, path, schema = arguments
raw = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
rows = raw.select(from_json(col("value").cast("string"), schema).alias("v"), "topic", "partition", "offset")
rows.select("v.*", "topic", "partition", "offset").write.format("hudi").options(**{
    "hoodie.table.name": "events",
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.datasource.write.recordkey.field": "topic,partition,offset",
    "hoodie.metadata.index.column.stats.enable": "false",
}).mode("append").save(path)
say(spark.read.format("hudi").load(path).count())
"""
_SPARK_S = {"timestamptz": "timestamp", "timestamp": "timestamp", "long": "bigint"}


def write(bench: Bench, folder: Path) -> Measured:
    """From the start of a session to the table's rows, which it counts."""
    schema = ", ".join(f"`{name}` {_SPARK_S.get(kind, kind)}" for name, kind in COLUMNS.items())
    with _environment():
        command = hudi_spark.script(_CODE, bench.bootstrap, bench.topic, str(folder), schema, kafka=True)
        return measured(command, bench.records)


@contextmanager
def _environment() -> Generator[None]:
    """That of Spark 3.5, for what is started within."""
    before = dict(os.environ)
    os.environ.update(hudi_spark.environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
