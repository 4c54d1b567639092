"""Scenarios that measure a part of what their process does.

`python -m bench.inside BOOTSTRAP TOPIC DIRECTORY PART=RECORDS …` prints a list of `Measured`, one for each part, as its
last line. Parts that need Spark have a session together.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.transforms import IdentityTransform

from bench.measure import Measured, Meter
from bench.proof import prove
from bench.registry import registry_of
from bench.shapes import FLAT, SHAPES, Shape
from bench.workload import COLUMNS, PARTITIONS, events, fill, write_pipeline
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.iceberg.create.tables import ensure_tables
from calve.sink_core.iceberg.files.sort_order import DISTRIBUTION
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from calve.spark_jobs.engine import SparkEngine
from tests.schema_registry import SchemaRegistry

BATCH = 10_000
DAYS = ("day(at)",)
_WARM_UP_RECORDS = 600_000
"""Enough for a task on each core, so that all Python workers are up and have loaded the kernels."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the parts of a process have in common, and a folder of each one's own."""

    bootstrap: str
    topic: str
    engine: SparkEngine
    directory: Path


@dataclass(frozen=True, slots=True)
class _Ingest:
    """A run on a session that is up and has run a small pipeline."""

    shape: Shape = FLAT
    partition_by: Sequence[str] = ()
    distribution: str | None = None
    keyed: bool = False

    def __call__(self, setting: Setting, records: int) -> Measured:
        bootstrap, directory, engine = setting.bootstrap, setting.directory, setting.engine
        small, topic = self.topics(setting, records)
        with registry_of(self.shape, directory / "registry") as registry:
            warm_up, pipeline = (
                load(_pipeline(directory / name, bootstrap, source, self.partition_by, self.shape, registry))
                for name, source in (("warm-up", small), ("measured", topic))
            )
            for each in (warm_up, pipeline):
                if self.distribution:
                    _sort(each, self.distribution)
            caught_up(warm_up, engine, _WARM_UP_RECORDS)
            return caught_up(pipeline, engine, records, without=[registry.pid] if registry else [])

    def topics(self, setting: Setting, records: int) -> tuple[str, str]:
        """The small one and the one that is measured, filled. Done before a session starts: while nothing is asked of
        them Python workers end, and what they have used would be missing in the end.
        """
        small, topic = (
            fill(setting.bootstrap, number, self.shape, keyed=self.keyed) for number in (_WARM_UP_RECORDS, records)
        )
        return small, topic


def _pipeline(
    directory: Path,
    bootstrap: str,
    topic: str,
    partition_by: Sequence[str],
    shape: Shape,
    registry: SchemaRegistry | None,
) -> Path:
    """As `write_pipeline` makes it; with a registry its values have the schema that this has."""
    file = write_pipeline(directory, bootstrap, topic, partition_by, shape)
    if registry:
        _amend(file, lambda found: found["source"].update(value={"type": shape.name, "registry": "main"}))
        _amend(directory / "connections.yaml", lambda found: found.update(registry={"main": {"url": registry.url}}))
    return file


def _amend(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    found = yaml.safe_load(file.read_text())
    change(found)
    file.write_text(yaml.safe_dump(found, sort_keys=False))


def caught_up(pipeline: SinkPipeline, engine: SparkEngine, records: int, without: Collection[int] = ()) -> Measured:
    """A run until there is nothing left of `records`, by this process and Spark's, those of `without` left out."""
    meter = Meter(without)
    with Session.open(pipeline, engine=engine) as session:
        report = run_pipeline(session)
    measured = meter.read(sum(batch.records for batch in report.batches))
    assert measured.records == records, measured
    prove(pipeline)
    return measured


def _sort(pipeline: SinkPipeline, distribution: str) -> None:
    """Create the pipeline's table with a sort order."""
    with Session.open(pipeline) as session:
        ensure_tables(session.catalog, pipeline, dict)
        table = session.catalog.load_table("bench.events")
        with table.transaction() as change:
            change.set_properties({DISTRIBUTION: distribution})
            change.update_sort_order().asc("user_id", transform=IdentityTransform()).commit()


def consume(setting: Setting, records: int) -> Measured:
    """What any consumer in Python pays: the messages and their values, nothing done with them."""
    from confluent_kafka import TopicPartition

    from calve.sink_core.kafka import clients

    meter, seen = Meter(), 0
    consumer = clients.reader({"bootstrap.servers": setting.bootstrap}, group="bench.consume")
    consumer.assign([TopicPartition(setting.topic, partition, 0) for partition in range(PARTITIONS)])
    while seen < records:
        values = [message.value() for message in consumer.consume(BATCH, 1.0) if message.error() is None]
        seen += len(values)
    consumer.close()
    return meter.read(seen)


def decode(_setting: Setting, records: int) -> Measured:
    """Batches of events to Arrow, typed as the table is."""
    decoder, values = JsonDecoder(schema_of(COLUMNS)), events(10 * BATCH)
    rounds, meter = max(1, records // len(values)), Meter()
    for _ in range(rounds):
        for start in range(0, len(values), BATCH):
            decoder.decode(values[start : start + BATCH])
    return meter.read(rounds * len(values))


PARTS: dict[str, Callable[[Setting, int], Measured]] = {
    **{name: _Ingest(shape) for name, shape in SHAPES.items()},
    "keyed": _Ingest(keyed=True),
    "partitioned": _Ingest(partition_by=DAYS),
    # Sorted within partitions, each of which is written by one task.
    "distributed": _Ingest(partition_by=DAYS, distribution="hash"),
    # Each file is a range of the table's order.
    "ranged": _Ingest(partition_by=DAYS, distribution="range"),
    "consume": consume,
    "decode": decode,
}


def main(bootstrap: str, topic: str, directory: str, *parts: str) -> None:
    engine = SparkEngine(SparkSettings(master="local[*]"))
    asked = [
        (PARTS[name], Setting(bootstrap, topic, engine, Path(directory) / name), int(records))
        for name, _, records in (part.partition("=") for part in parts)
    ]
    for measure, setting, records in asked:
        if isinstance(measure, _Ingest):
            measure.topics(setting, records)
    with engine:
        found = [measure(setting, records) for measure, setting, records in asked]
    print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
