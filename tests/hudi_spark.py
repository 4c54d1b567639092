"""Hudi on Spark 3.5, as other readers and writers of its tables have it: by its Python, in the pinned environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calve.sink_core.hudi.java.fetched import client_jars, fetch_spark
from calve.sink_core.jars import JarSet, resolve

KAFKA = JarSet(
    "spark-kafka",
    extras=(
        "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.12:3.5.7",
        "org.apache.kafka:kafka-clients:3.4.1",
        "org.apache.commons:commons-pool2:2.11.1",
    ),
)
"""For Spark to read topics; not every registry has them of Spark's own version."""


def environment() -> dict[str, str]:
    """The variables under which this Python has that Spark."""
    return {**os.environ, "PYTHONPATH": str(fetch_spark(print).folder), "PYSPARK_PYTHON": sys.executable}


def script(code: str, *arguments: str, kafka: bool = False) -> list[str]:
    """The command that runs Python code which has `spark`, `arguments` and `say`, for a value as its last line."""
    jars = [*(path for path in client_jars() if "bundle" in path.name), *(resolve(KAFKA) if kafka else ())]
    head = _HEAD.format(jars=",".join(map(str, jars)))
    return [sys.executable, "-c", f"{head}\n{code}", *arguments]


def ask(code: str, *arguments: str) -> Any:
    """What the code says."""
    done = subprocess.run(script(code, *arguments), env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def ids(folder: Path) -> list[int]:
    """Of a table whose rows have an `id`, by a snapshot query of a fresh session."""
    return ask(_SNAPSHOT, str(folder))


def rows(*folders: Path) -> list[list[dict[str, Any]]]:
    """Of each of the tables, by snapshot queries of a fresh session."""
    return ask(_ROWS, *map(str, folders))


def incremental_ids(folder: Path, instants: Sequence[str]) -> list[int]:
    """Of a table, by incremental queries from before the first of its completions on, one up to the next."""
    return ask(_INCREMENTAL, str(folder), *instants)


_ROWS = """
reads = (spark.read.format("hudi").load(folder).drop("_kafka") for folder in arguments)
say([[row.asDict(recursive=True) for row in read.collect()] for read in reads])
"""
_SNAPSHOT = 'say(sorted(r.id for r in spark.read.format("hudi").load(arguments[0]).select("id").collect()))'

_HEAD = """
import json, sys
from pyspark.sql import SparkSession
arguments = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.jars", "{jars}")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
def say(value): print(json.dumps(value))
"""

_INCREMENTAL = """
found = []
bounds = ["000", *arguments[1:]]
for begin, end in zip(bounds, bounds[1:]):
    read = spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
    read = read.option("hoodie.datasource.read.begin.instanttime", begin)
    read = read.option("hoodie.datasource.read.end.instanttime", end)
    # Without the second column Hudi 1.2 reads nothing, of tables that its own writer has made too.
    found += [r.id for r in read.load(arguments[0]).select("id", "_hoodie_commit_time").collect()]
say(sorted(found))
"""
