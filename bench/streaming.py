"""Another peer, as people make it at home: Spark Structured Streaming, from the same topic into a table with the same
columns.

`python -m bench.streaming BOOTSTRAP TOPIC DIRECTORY RECORDS` starts a session, has it read a quarter as many events, by
which its JVM has compiled what it needs, and then the topic: all there is in one batch (`availableNow`), JSON by
`from_json`. It prints a list with what that took as its last line.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog.sql import SqlCatalog

from bench.connector import rows
from bench.measure import Meter
from bench.workload import COLUMNS, fill
from calve.sink_core.detached import HOST
from calve.sink_core.jars import JarSet, resolve, spark_jars
from calve.sink_core.records.columns.type_text import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA_SOURCE = JarSet(
    "spark-kafka-source",
    # By name: of 4.1.3 the token provider is not in Maven Central, without which none of the others resolves.
    extras=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.1",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
)
CATALOG = "bench"
MEMORY = "2g"
"""As much as the connector's worker has."""


def main(bootstrap: str, topic: str, directory: str, records: str) -> None:
    number, scratch = int(records), Path(directory)
    spark = _session(scratch)
    try:
        _stream(spark, bootstrap, fill(bootstrap, number // 4), number // 4, scratch / "warm-up")
        meter = Meter()
        _stream(spark, bootstrap, topic, number, scratch / "measured")
        print(json.dumps([asdict(meter.read(number))]))
    finally:
        spark.stop()


def _session(scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    catalog = f"spark.sql.catalog.{CATALOG}"
    settings = {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [*spark_jars(), *resolve(KAFKA_SOURCE)])),
        "spark.driver.memory": MEMORY,
        "spark.driver.host": HOST,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{scratch / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{scratch / 'lake'}",
    }
    return SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def _stream(spark: SparkSession, bootstrap: str, topic: str, records: int, scratch: Path) -> None:
    """All of the topic into a new table. Raises SystemExit if not every event is there then."""
    from pyspark.sql.functions import col, from_json

    lake = scratch.parent
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=f"file://{lake / 'lake'}")
    catalog.create_namespace_if_not_exists("bench")
    name = f"bench.{scratch.name.replace('-', '_')}"
    catalog.create_table(name, schema_of(COLUMNS))
    columns = spark.table(f"{CATALOG}.{name}").schema
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    values = spark.readStream.format("kafka").options(**source).load().select(col("value").cast("string"))
    events = values.select(from_json(col("value"), columns).alias("event")).select("event.*")
    written = events.writeStream.option("checkpointLocation", str(scratch)).trigger(availableNow=True)
    written.toTable(f"{CATALOG}.{name}").awaitTermination()
    if (found := rows(catalog, name)) != records:
        raise SystemExit(f"{found:,} of {records:,} events are in the table of Structured Streaming")


if __name__ == "__main__":
    main(*sys.argv[1:])
