"""Scenarios that measure a part of what their process does.

`python -m bench.inside PART BOOTSTRAP TOPIC RECORDS DIRECTORY` prints a `Measured` as its last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.measure import Measured, Meter
from bench.workload import COLUMNS, PARTITIONS, events, fill, write_pipeline
from sink_core.config.load import load
from sink_core.decode.json import JsonDecoder
from sink_core.session import Session
from sink_core.tables.type_text import schema_of
from spark_jobs.run import run_pipeline
from spark_jobs.runner import SparkRunner

BATCH = 10_000
_WARM_UP_RECORDS = 200_000
"""Enough for a task on each core, so that all Python workers are up."""


def ingest(bootstrap: str, topic: str, records: int, directory: Path) -> Measured:
    """A run on a session that is up and has run a small pipeline."""
    small = fill(bootstrap, _WARM_UP_RECORDS, lambda _: None)
    warm_up = load(write_pipeline(directory / "warm-up", bootstrap, small))
    pipeline = load(write_pipeline(directory / "measured", bootstrap, topic))
    with SparkRunner(pipeline.spark) as runner:
        with Session.open(warm_up) as session:
            run_pipeline(session, runner)
        meter = Meter()
        with Session.open(pipeline) as session:
            report = run_pipeline(session, runner)
        measured = meter.read(sum(batch.records for batch in report.batches))
    assert measured.records == records, measured
    return measured


def consume(bootstrap: str, topic: str, records: int, _directory: Path) -> Measured:
    """What any consumer in Python pays: the messages and their values, nothing done with them."""
    from confluent_kafka import TopicPartition

    from sink_core.kafka import clients

    meter, seen = Meter(), 0
    consumer = clients.reader({"bootstrap.servers": bootstrap}, group="bench.consume")
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    while seen < records:
        values = [message.value() for message in consumer.consume(BATCH, 1.0) if message.error() is None]
        seen += len(values)
    consumer.close()
    return meter.read(seen)


def decode(_bootstrap: str, _topic: str, records: int, _directory: Path) -> Measured:
    """Batches of events to Arrow, typed as the table is."""
    decoder, values = JsonDecoder(schema_of(COLUMNS)), events(10 * BATCH)
    rounds, meter = max(1, records // len(values)), Meter()
    for _ in range(rounds):
        for start in range(0, len(values), BATCH):
            decoder.decode(values[start : start + BATCH])
    return meter.read(rounds * len(values))


PARTS: dict[str, Callable[[str, str, int, Path], Measured]] = {"ingest": ingest, "consume": consume, "decode": decode}

if __name__ == "__main__":
    part, bootstrap, topic, records, directory = sys.argv[1:]
    print(json.dumps(asdict(PARTS[part](bootstrap, topic, int(records), Path(directory)))))
