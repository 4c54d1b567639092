"""A mirror's run and its floor, measured in a process that has started.

`python -m bench.mirror_inside FILE` copies what is pending and prints its `Measured`; with `--consume BOOTSTRAP TOPIC
RECORDS` in place of the file it only reads.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.measure import Measured, Meter
from bench.workload import PARTITIONS
from calve.sink_core.config.load import load_as
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import run_mirror

BATCH = 10_000
TIMEOUT_S = 30.0


def copy(file: Path) -> Measured:
    """One run, its first contact with both clusters included."""
    meter = Meter()
    with MirrorPlane(load_as(MirrorPipeline, file)) as plane:
        report = run_mirror(plane)
    return meter.read(report.records)


def consume(bootstrap: str, topic: str, records: int) -> Measured:
    """librdkafka's `consume` alone."""
    conf = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    meter, consumer = Meter(), Consumer({**conf, "fetch.message.max.bytes": 4 * 2**20})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read = 0
    while read < records:
        read += len(consumer.consume(min(BATCH, records - read), TIMEOUT_S))
    measured = meter.read(read)
    consumer.close()
    return measured


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    found = consume(rest[0], rest[1], int(rest[2])) if first == "--consume" else copy(Path(first))
    print(json.dumps(asdict(found)))
