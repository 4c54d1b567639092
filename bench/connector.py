"""The peer that ratios are of: iceberg-kafka-connect 1.12.0, from the same topic into a table with the same columns.

One worker with two tasks, a JSON converter without schemas, polls of 20,000 records and a commit every five seconds.
Kept out of its figure without a start are its first records, by which its JVM has compiled what it needs: it begins
once a quarter is in the table. What it had read beyond that by then costs it nothing.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from bench.measure import Measured
from bench.scenario import Bench
from bench.workload import COLUMNS
from sink_core.tables.type_text import schema_of
from tests import support
from tests.peers.connect import Connect

TABLE = "bench.events"
TASKS = 2
COMMIT_EVERY_MS = 5_000
HEAP_MB = 2_048
READS = {"consumer.max.poll.records": "20000", "consumer.fetch.max.bytes": str(128 * 2**20)}
LOOK_EVERY_S = 0.2
GIVE_UP_S = 900.0


def steady(bench: Bench) -> Measured:
    """From the first commit that makes a quarter of the events on, to the last event."""
    with worker(bench.bootstrap, bench.topic, bench.directory) as (connect, catalog):
        began = _until(catalog, connect, bench.records // 4)
        cpu_s, wall_s = connect.cpu_s, time.monotonic()
        _until(catalog, connect, bench.records)
        return Measured(bench.records - began, connect.cpu_s - cpu_s, time.monotonic() - wall_s)


def cold(bench: Bench) -> Measured:
    """From the worker's start to the last event in the table."""
    wall_s = time.monotonic()
    with worker(bench.bootstrap, bench.topic, bench.directory) as (connect, catalog):
        _until(catalog, connect, bench.records)
        return Measured(bench.records, connect.cpu_s, time.monotonic() - wall_s)


@contextmanager
def worker(
    bootstrap: str, topic: str, directory: Path, commit_every_ms: int = COMMIT_EVERY_MS
) -> Iterator[tuple[Connect, SqlCatalog]]:
    """A worker that has started, and the catalog with its table, below `directory`; it is stopped at the end."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        lake = Path(scratch) / "lake"
        lake.mkdir()
        catalog = SqlCatalog("bench", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=f"file://{lake}")
        catalog.create_namespace("bench")
        catalog.create_table(TABLE, schema_of(COLUMNS))
        control = support.create_topic(bootstrap, f"{name}-control")
        settings = {
            "name": name,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": str(TASKS),
            "topics": topic,
            "iceberg.tables": TABLE,
            "iceberg.control.topic": control,
            "iceberg.control.commit.interval-ms": str(commit_every_ms),
            "iceberg.catalog": "bench",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.uri": f"jdbc:sqlite:{lake / 'catalog.db'}",
            "iceberg.catalog.warehouse": f"file://{lake}",
        }
        connect = Connect(bootstrap, Path(scratch) / "worker", settings, worker=READS, heap_mb=HEAP_MB)
        connect.start()
        try:
            yield connect, catalog
        finally:
            connect.stop()


def _until(catalog: SqlCatalog, connect: Connect, records: int) -> int:
    """Wait until the table has that many; how many it has. Raises SystemExit if the worker fails."""
    deadline = time.monotonic() + GIVE_UP_S
    while (rows := _rows(catalog)) < records:
        if time.monotonic() > deadline or "FAILED" in connect.states():
            raise SystemExit(f"{rows:,} of {records:,} events are in the connector's table: {connect.errors()}")
        time.sleep(LOOK_EVERY_S)
    return rows


def _rows(catalog: SqlCatalog) -> int:
    head = catalog.load_table(TABLE).current_snapshot()
    return int(head.summary["total-records"] or 0) if head and head.summary else 0
