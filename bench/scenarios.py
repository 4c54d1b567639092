"""The rows of the table. A scenario gets a filled topic and gives what one run of it took."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import connector
from bench.measure import ROOT, Measured, measured
from bench.proof import prove
from bench.scenario import Bench, Row, Scenario
from bench.workload import fill, write_pipeline
from calve.sink_core.config.load import load


def ingest_cold(bench: Bench) -> Sequence[Measured]:
    """`calve run` from its start to its end, over five times the events."""
    records = 5 * bench.records
    with tempfile.TemporaryDirectory(dir=bench.directory) as scratch:
        file = write_pipeline(Path(scratch) / "pipeline", bench.bootstrap, fill(bench.bootstrap, records))
        calve = Path(sys.executable).parent / "calve"
        run = measured([str(calve), "run", str(file), "--json"], records)
        prove(load(file))
        return [run]


def _inside(**shares: float) -> Callable[[Bench], Sequence[Measured]]:
    """Parts of `bench.inside`; of each the share of the events."""

    def run(bench: Bench) -> Sequence[Measured]:
        return _by_itself(bench, "inside", *(f"{part}={int(bench.records * share)}" for part, share in shares.items()))

    return run


def streaming(bench: Bench) -> Sequence[Measured]:
    """Spark Structured Streaming over half of the events, its session warm."""
    records = bench.records // 2
    return _by_itself(replace(bench, topic=fill(bench.bootstrap, records)), "streaming", str(records))


def _by_itself(bench: Bench, module: str, *arguments: str) -> Sequence[Measured]:
    """What a module of `bench` that measures itself prints as its last line, in a process of its own."""
    scratch = Path(tempfile.mkdtemp(dir=bench.directory))
    command = [sys.executable, "-m", f"bench.{module}", bench.bootstrap, bench.topic, str(scratch), *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    finally:
        shutil.rmtree(scratch)
    return [Measured(**each) for each in json.loads(done.stdout.splitlines()[-1])]


SCENARIOS = (
    Scenario(
        (
            Row("small", "JSON of 59 bytes with 4 fields", "json"),
            Row("large", "JSON of 1 kB with 10 fields", "json"),
            Row("nested", "JSON of 1.4 kB with 100 fields in 10 structs", "json"),
            Row("keyed", "JSON of 270 bytes with a key and a header of 16 bytes", "json"),
            Row("partitioned", "JSON of 270 bytes into twelve partitions", "json"),
            Row("distributed", "the same, sorted and hash-distributed", "json"),
            Row("ranged", "the same, sorted and range-distributed", "json"),
            Row("json", "JSON of 270 bytes, Spark is up", "connector", 9.0),
            Row("avro", "Avro of 147 bytes, Spark is up", "connector-avro", 9.0),
            Row(
                "protobuf",
                "Protobuf of 162 bytes; the connector lacks a converter",
                "connector-avro",
                6.0,
            ),
            Row("consume", "the floor: librdkafka's consume and value() alone", "json"),
            Row("decode", "JSON → Arrow alone, in batches of 10,000", "json"),
        ),
        # Together, since ten starts of Spark, three times each, would be a fifth of the time that all rows take. Those
        # with an aim come when the JVM has compiled what it needs, as the connector's has when it is measured.
        _inside(
            small=0.5,
            large=0.25,
            nested=0.1,
            keyed=0.25,
            partitioned=0.25,
            distributed=0.25,
            ranged=0.25,
            flat=2.5,
            avro=2.5,
            protobuf=2.5,
            consume=0.5,
            decode=0.5,
        ),
    ),
    Scenario(
        # Beside what the connector makes of any number of events at most, for its own start takes too long.
        (Row("json-cold", "five times the connector's events, `calve run` with Spark's start", "connector", 5.0),),
        ingest_cold,
    ),
    Scenario(
        (
            Row("connector", "json by iceberg-kafka-connect 1.12.0, warm"),
            Row("connector-cold", "the same by iceberg-kafka-connect 1.12.0 with its start"),
        ),
        connector.of_json,
    ),
    Scenario((Row("connector-avro", "avro by iceberg-kafka-connect 1.12.0, warm"),), connector.of_avro),
    Scenario((Row("streaming", "json by Spark Structured Streaming 4.1.3, warm", "connector"),), streaming),
)
