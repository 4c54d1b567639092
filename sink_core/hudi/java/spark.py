"""What Calve asks of Hudi on Spark 3.5: to bring row changes into a table. Effects only.

The session lives in a JVM that Calve drives as it does that of Hudi's Java client, without any Python of Spark's. It
has that client too: all commits to a table with row changes are completed by the process that holds its lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calve.sink_core.hudi.changes.settings import BY_COMMIT, MERGE_MODE, RECORD_KEY
from calve.sink_core.hudi.files.place import PARTITION_FIELDS
from calve.sink_core.hudi.java.client import WRITES, HudiClient, carrying, table_type_of
from calve.sink_core.hudi.java.fetched import client_jars, spark_jars
from calve.sink_core.hudi.java.jvm import Check, HudiRefused, Jvm

HEAP = "spark.driver.memory"
_SESSION = {
    "spark.master": f"local[{os.cpu_count() or 1}]",
    "spark.app.name": "calve row changes",
    # Hudi refuses without.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Else Hudi's Avro writer fails at lists with nulls.
    "spark.hadoop.parquet.avro.write-old-list-structure": "false",
}
_UPDATES = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
_ADDED_OPENS = ("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")


@dataclass(frozen=True, slots=True)
class Upsert:
    """Row changes to be brought in: staged files with the columns of `schema` (Avro), what the commit says of itself
    besides, and of that what later commits of any writer are to repeat.
    """

    paths: Sequence[Path]
    schema: str
    extra: Mapping[str, str]
    carried: Sequence[str]


class SparkClient(HudiClient):
    """Hudi's client, and its writer on Spark. `hadoop` as for `HudiClient`, `settings` are those of the session."""

    def __init__(self, hadoop: Mapping[str, str], settings: Mapping[str, str]) -> None:
        heap = settings.get(HEAP)
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _ADDED_OPENS]
        options = [*opened, *([f"-Xmx{heap}"] if heap else ())]
        super().__init__(Jvm("hudi-spark", _jars, lambda: options), hadoop)
        self._settings = {**_SESSION, **{f"spark.hadoop.{key}": value for key, value in hadoop.items()}, **settings}

    def upsert(self, folder: Path, properties: Mapping[str, str], changes: Upsert, check: Callable[[], None]) -> None:
        """Bring changes into a table, in a commit under an instant of Hudi's. `check` is called under Hudi's lock,
        last of all: what it raises is raised, and nothing is completed. Raises HudiRefused. The lock file must be held.
        """
        checked = Check(check, changes.extra)
        with self.jvm.calling(f"bringing row changes into {folder}") as java:
            scala, hudi = java.scala, java.org.apache.hudi
            schema = hudi.common.schema.HoodieSchema.parse(changes.schema)
            columns = hudi.HoodieSchemaConversionUtils.convertHoodieSchemaToStructType(schema)
            paths = self._array(java.java.lang.String, [str(path) for path in changes.paths])
            # Columns that were added since the changes were written are null in them.
            session = self._session
            rows = session.read().schema(columns).parquet(paths)
            nothing, writer = scala.Option.empty(), hudi.HoodieSparkSqlWriter
            before = scala.Option.apply(checked)
            params = writer.StreamingWriteParams(nothing, nothing, nothing, before)
            mode = java.org.apache.spark.sql.SaveMode.Append
            options = self._scala_map(_writing(folder, properties, changes.carried))
            others = (getattr(writer, f"write$default${number}")() for number in (6, 7))
            try:
                written = writer.write(session.sqlContext(), mode, options, rows, scala.Option.apply(params), *others)
            except Exception:
                if checked.raised is not None:
                    raise checked.raised from None
                raise
            if not written.productElement(0):
                raise HudiRefused(f"{folder}: Hudi could not write all changes, and has completed nothing")

    @property
    def _session(self) -> Any:
        """That of the JVM, started with it."""
        builder = self.jvm.java.org.apache.spark.sql.SparkSession.builder()
        for key, value in self._settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def _scala_map(self, values: Mapping[str, str]) -> Any:
        scala = self.jvm.java.scala
        wrapped = scala.collection.JavaConverters.mapAsScalaMapConverter(self.jvm.map(values)).asScala()
        return wrapped.toMap(getattr(scala.Predef, "$conforms")())

    def _array(self, kind: Any, values: Sequence[str]) -> Any:
        made = self.jvm.array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made


def _writing(folder: Path, properties: Mapping[str, str], carried: Sequence[str]) -> dict[str, str]:
    key = properties[RECORD_KEY].split(",")
    partitions = [name for name in properties.get(PARTITION_FIELDS, "").split(",") if name]
    # Where the key says the partition a row never moves to another one.
    kind = "SIMPLE" if set(partitions) <= set(key) else "GLOBAL_SIMPLE"
    return {
        **WRITES,
        **carrying(carried),
        "path": str(folder),
        "hoodie.table.name": properties["hoodie.table.name"],
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": table_type_of(properties).upper(),
        "hoodie.datasource.write.recordkey.field": ",".join(key),
        "hoodie.datasource.write.partitionpath.field": ",".join(partitions),
        "hoodie.datasource.write.hive_style_partitioning": str(bool(partitions)).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(bool(partitions)).lower(),
        "hoodie.record.merge.mode": properties.get(MERGE_MODE, BY_COMMIT),
        "hoodie.write.table.version": properties["hoodie.table.version"],
        "hoodie.index.type": kind,
        "hoodie.compact.inline": "false",
        # A clustering that was planned and then killed gives way to changes of its rows.
        "hoodie.clustering.updates.strategy": _UPDATES,
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true",
    }


def _jars() -> list[Path]:
    return [*spark_jars(), *client_jars()]
