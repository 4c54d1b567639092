"""Another writer of the same table, which knows nothing of Calve.

`python -m tests.soak.foreign SERVER LAKE CATALOG TABLE` appends rows by Spark, without `_kafka` and with ids below 0,
and now and then compacts the table. SIGTERM ends it after the statement in progress; it prints what it has done.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests import support
from tests.peers.peer import closing_spark

EVERY_S = 10.0
ROWS = 100
COMPACT_EVERY = 6
"""Turns from one compaction to the next."""


def main(server: str, lake: str, catalog: str, table: str) -> None:
    ended, done, turn = threading.Event(), Counter[str](), 0
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.wait(EVERY_S):
        turn += 1
        try:
            # A session for each turn: one that idles for long is closed by the server.
            with closing_spark(server) as spark:
                support.attach(spark, Path(lake), catalog)
                if turn % COMPACT_EVERY == 0:
                    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{table}')").collect()
                    done["compactions"] += 1
                else:
                    _append(spark, f"{catalog}.{table}", -turn * ROWS)
                    done["rows"] += ROWS
        except PySparkException as error:
            # It lost its race against the other writers; whether rows landed after all is counted in the end.
            done["conflicts"] += 1
            print(f"other writer: {str(error).partition(chr(10))[0][:200]}", file=sys.stderr, flush=True)
    print(json.dumps(done), flush=True)


def _append(spark: SparkSession, table: str, first: int) -> None:
    """`ROWS` rows with ids from `first` on, all other columns null."""
    ids = spark.range(first, first + ROWS)
    spark.table(table).limit(0).unionByName(ids, allowMissingColumns=True).writeTo(table).append()


if __name__ == "__main__":
    main(*sys.argv[1:])
