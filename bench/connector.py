"""The peer that ratios are of: iceberg-kafka-connect 1.12.0, from the same topic into a table with the same columns.

One worker with two tasks, a JSON converter without schemas, polls of 20,000 records and a commit every five seconds.
Kept out of its figure without a start are its first records, by which its JVM has compiled what it needs: it begins
once a quarter is in the table. What it had read beyond that by then costs it nothing.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from bench.measure import Measured
from bench.registry import registry_of
from bench.scenario import Bench
from bench.shapes import AVRO
from bench.workload import COLUMNS, fill
from calve.sink_core.jars import JarSet, resolve
from calve.sink_core.records.columns.type_text import schema_of
from tests import support
from tests.peers.connect import CONNECT, CONNECTOR, Connect

TABLE = "bench.events"
TASKS = 2
COMMIT_EVERY_MS = 5_000
HEAP_MB = 2_048
JAVA_OPTIONS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""What Kafka's own scripts start a worker with."""
READS = {"consumer.max.poll.records": "20000", "consumer.fetch.max.bytes": str(128 * 2**20)}
AVRO_JARS = JarSet("apicurio-converter", roots=("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",))
AVRO_CLASS = "io.apicurio.registry.utils.converter.AvroConverter"
AVRO_CONVERTER = {
    "apicurio.registry.headers.enabled": "false",
    "apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
    "apicurio.registry.use-id": "contentId",
}
"""Confluent's own is not in Maven Central; this one reads the same wire format. It has no like for Protobuf: of
Apicurio's `utils-converter` 2.6.13 and 3.0.9 are for Avro and JSON, AWS's is for its own registry."""
LOOK_EVERY_S = 0.2
GIVE_UP_S = 900.0


def fetch() -> None:
    """Its jars, which a machine gets once: no part of a start."""
    for jars in (CONNECT, CONNECTOR, AVRO_JARS):
        resolve(jars)


def of_json(bench: Bench) -> Sequence[Measured]:
    """From the first commit that makes a quarter of the events on to the last event; and from the worker's start."""
    return _both(bench, bench.topic, bench.records, READS)


def of_avro(bench: Bench) -> Sequence[Measured]:
    """The first of these."""
    topic = fill(bench.bootstrap, bench.records, AVRO)
    with tempfile.TemporaryDirectory(dir=bench.directory) as scratch, registry_of(AVRO, Path(scratch)) as registry:
        assert registry is not None
        converter = {f"value.converter.{key}": value for key, value in AVRO_CONVERTER.items()}
        address = {"value.converter.apicurio.registry.url": registry.url.partition("/apis/")[0] + "/apis/registry/v2"}
        # The converter's jar says nothing of what is in it.
        found = {"plugin.discovery": "hybrid_warn", "value.converter": AVRO_CLASS}
        reads = {**READS, **found, **converter, **address}
        return _both(bench, topic, bench.records, reads)[:1]


def _both(bench: Bench, topic: str, records: int, reads: Mapping[str, str]) -> Sequence[Measured]:
    fetch()
    start_s = time.monotonic()
    with worker(bench.bootstrap, topic, bench.directory, reads=reads) as (connect, catalog):
        began = _until(catalog, connect, records // 4)
        cpu_s, wall_s = connect.cpu_s, time.monotonic()
        _until(catalog, connect, records)
        now_s, used_s = time.monotonic(), connect.cpu_s
        return Measured(records - began, used_s - cpu_s, now_s - wall_s), Measured(records, used_s, now_s - start_s)


@contextmanager
def worker(
    bootstrap: str,
    topic: str,
    directory: Path,
    commit_every_ms: int = COMMIT_EVERY_MS,
    reads: Mapping[str, str] = READS,
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
        connect = Connect(
            bootstrap,
            Path(scratch) / "worker",
            settings,
            worker=reads,
            heap_mb=HEAP_MB,
            java_options=JAVA_OPTIONS,
            plugins=(AVRO_JARS,) if "value.converter" in reads else (),
        )
        connect.start()
        try:
            yield connect, catalog
        finally:
            connect.stop()


def _until(catalog: SqlCatalog, connect: Connect, records: int) -> int:
    """Wait until the table has that many; how many it has. Raises SystemExit if the worker fails."""
    deadline = time.monotonic() + GIVE_UP_S
    while (found := rows(catalog)) < records:
        if time.monotonic() > deadline or "FAILED" in connect.states():
            raise SystemExit(f"{found:,} of {records:,} events are in the connector's table: {connect.errors()}")
        time.sleep(LOOK_EVERY_S)
    return found


def rows(catalog: SqlCatalog, table: str = TABLE) -> int:
    """What the table's head says it has."""
    head = catalog.load_table(table).current_snapshot()
    return int(head.summary["total-records"] or 0) if head and head.summary else 0
