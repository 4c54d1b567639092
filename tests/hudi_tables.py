"""Hudi tables as their readers see them: by hudi-rs, which shares no code with Hudi's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from calve.sink_core.hudi.files.place import Place, place_of
from calve.sink_core.hudi.files.timeline import extra_of, read_timeline
from calve.sink_core.hudi.java.jvm import client_jvm
from tests.pipelines import COLUMNS, Flow

NAMES = ("db.events", "db.hudi")


def both(directory: Path, bootstrap: str, topic: str, **table: Any) -> Flow:
    """One topic into an Iceberg table and a Hudi table, `NAMES`; `table` are settings of the second."""
    created: Mapping[str, Any] = {"auto_create": {"columns": COLUMNS}}
    tables = [{"name": NAMES[0], **created}, {"name": NAMES[1], "format": "hudi", **created, **table}]
    flow = Flow.create(directory, bootstrap, topic, tables=NAMES)
    return replace(flow, extra={"tables": tables, "hudi": {"warehouse": str(flow.files / "hudi")}})


def place(flow: Flow, table: str) -> Place:
    return place_of(warehouse(flow), table)


def warehouse(flow: Flow) -> Path:
    return Path(flow.extra["hudi"]["warehouse"])


def read(folder: Path, options: HudiReadOptions | None = None) -> pa.Table:
    """A snapshot of the table, or what the options say."""
    table = HudiTableBuilder.from_base_uri(str(folder)).build()
    return pa.Table.from_batches(table.read(options))


def rows(folder: Path) -> list[dict[str, Any]]:
    return read(folder).to_pylist()


def ids(folder: Path) -> list[int]:
    return sorted(row["id"] for row in rows(folder))


def completions(folder: Path) -> Counter[str]:
    """How often each instant of the table was completed."""
    return Counter(instant.requested for instant in read_timeline(Place(folder, folder)).commits)


def twice(place: Place, pipeline: str) -> int:
    """How many instants, and batches of a pipeline, the timeline has too many: each is to be there once."""
    commits = read_timeline(place).commits
    said = (extra_of(instant).get(f"calve.{pipeline}.batches", "") for instant in commits)
    batches = Counter(batch for each in said for batch in each.split(",") if batch)
    instants = Counter(instant.requested for instant in commits)
    return sum(times - 1 for times in (*instants.values(), *batches.values()))


def restore(folder: Path, instant: str, *, statistics: bool = True) -> None:
    """What an operator does with Hudi's own tools: a savepoint, and the table put back to it. By their defaults these
    begin with column `statistics`.
    """
    jvm = client_jvm()
    try:
        with jvm.calling("restoring") as java:
            hudi = java.org.apache.hudi
            storage = hudi.storage.hadoop.HadoopStorageConfiguration(java.org.apache.hadoop.conf.Configuration())
            config = hudi.config.HoodieWriteConfig.newBuilder().withPath(str(folder))
            properties = {
                "hoodie.embed.timeline.server": "false",
                "hoodie.write.auto.upgrade": "false",
                "hoodie.metadata.index.column.stats.enable": str(statistics).lower(),
            }
            config = config.withProperties(jvm.properties(properties)).build()
            client = hudi.client.HoodieJavaWriteClient(hudi.client.common.HoodieJavaEngineContext(storage), config)
            client.savepoint(instant, "tests", "before the mistake")
            client.restoreToSavepoint(instant)
            client.close()
    finally:
        jvm.close()
