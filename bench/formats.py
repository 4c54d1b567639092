"""Avro with a registry against JSON: `python -m bench.formats`.

The same events in two topics, once as JSON and once as Avro in Confluent's wire format, read by runs that take turns on
one Spark session that is up. What counts is the CPU time of this process and of Spark's; broker and registry don't.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import fastavro
import yaml
from confluent_kafka import Producer

from bench.inside import caught_up
from bench.measure import ROOT, Measured
from bench.workload import COLUMNS, PARTITIONS, events, new_topic, write_pipeline
from orchestration import broker
from sink_core.config.load import load
from spark_jobs.runner import SparkRunner
from tests.schema_registry import SchemaRegistry, framed

DIRECTORY = ROOT / ".bench"
DISTINCT = 100_000
WARM_UP = 100_000
AIM = 0.5
"""Of JSON's records per CPU-second."""

_TIMEOUT_S = 300.0
_AVRO = {"timestamptz": {"type": "long", "logicalType": "timestamp-micros"}}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": name, "type": _AVRO.get(kind, kind)} for name, kind in COLUMNS.items()],
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document; 1 if Avro gives less than half of JSON's records per CPU-second."""
    options = _options().parse_args(arguments)
    scratch = DIRECTORY / "formats"
    shutil.rmtree(scratch, ignore_errors=True)
    registry = SchemaRegistry(scratch / "registry")
    started = broker.start(DIRECTORY / "broker")
    try:
        registry.start()
        found = _measure(started, registry, scratch, options.records, options.runs)
    finally:
        registry.stop()
        broker.stop(DIRECTORY / "broker")
    print(json.dumps(found, indent=2))
    return 0 if found["ratio"] >= AIM else 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description="Avro with a registry against JSON.")
    parser.add_argument("--records", type=int, default=2_000_000, metavar="N", help="events of each format (2,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each, the medians count (3)")
    return parser


def _measure(on: broker.Broker, registry: SchemaRegistry, scratch: Path, records: int, runs: int) -> dict[str, Any]:
    bootstrap, servers = on.bootstrap, (on.pid, registry.pid)
    schema_id = registry.register("bench-value", SCHEMA)
    as_json = events(DISTINCT)
    values = {"json": as_json, "avro": [_in_avro(event, schema_id) for event in as_json]}
    topics = {name: (_fill(bootstrap, each, WARM_UP), _fill(bootstrap, each, records)) for name, each in values.items()}
    done: dict[str, list[Measured]] = {name: [] for name in values}
    with SparkRunner(load(_pipeline(scratch / "spark", bootstrap, "none", "json", "")).spark) as runner:
        for name, (warm_up, _) in topics.items():
            file = _pipeline(scratch / f"{name}-warm-up", bootstrap, warm_up, name, registry.url)
            caught_up(load(file), runner, WARM_UP)
        for number in range(runs):
            for name, (_, topic) in topics.items():
                file = _pipeline(scratch / f"{name}-{number}", bootstrap, topic, name, registry.url)
                done[name].append(caught_up(load(file), runner, records, without=servers))
                print(f"{name}: {done[name][-1].records_per_cpu_s:,.0f} records per CPU-second", file=sys.stderr)
    rates = {name: statistics.median(each.records_per_cpu_s for each in found) for name, found in done.items()}
    return {
        "records": records,
        "runs": runs,
        "bytes_per_record": {n: round(statistics.fmean(map(len, each))) for n, each in values.items()},
        "records_per_cpu_s": {name: round(rate) for name, rate in rates.items()},
        "ratio": round(rates["avro"] / rates["json"], 2),
    }


def _pipeline(directory: Path, bootstrap: str, topic: str, name: str, url: str) -> Path:
    """As `write_pipeline` makes it, with values of that format."""
    file = write_pipeline(directory, bootstrap, topic)
    if name == "avro":
        _amend(file, lambda found: found["source"].update(value={"type": "avro", "registry": "main"}))
        _amend(directory / "connections.yaml", lambda found: found.update(registry={"main": {"url": url}}))
    return file


def _amend(file: Path, change: Any) -> None:
    found = yaml.safe_load(file.read_text())
    change(found)
    file.write_text(yaml.safe_dump(found, sort_keys=False))


def _in_avro(event: bytes, schema_id: int) -> bytes:
    fields = json.loads(event)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, {**fields, "at": datetime.fromisoformat(fields["at"])})
    return framed(schema_id, out.getvalue())


_PARSED = fastavro.parse_schema(SCHEMA)


def _fill(bootstrap: str, values: Sequence[bytes], records: int) -> str:
    """A new topic with that many of the values, over and over."""
    topic = new_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50})
    for number, value in enumerate(islice(cycle(values), records)):
        while len(producer) > 50_000:
            producer.poll(0.1)
        producer.produce(topic, value, partition=number % PARTITIONS)
    if left := producer.flush(_TIMEOUT_S):
        raise SystemExit(f"{left} events were not acknowledged in {_TIMEOUT_S:.0f} s")
    return topic


if __name__ == "__main__":
    sys.exit(main())
