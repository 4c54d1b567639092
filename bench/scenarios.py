"""The rows of the table. A scenario gets a filled topic and gives what one run of it took."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import connector
from bench.measure import ROOT, Measured, measured
from bench.scenario import Bench, Scenario
from bench.workload import write_pipeline


def ingest_cold(bench: Bench) -> Measured:
    """`calve run` from its start to its end."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as scratch:
        file = write_pipeline(Path(scratch) / "pipeline", bench.bootstrap, bench.topic)
        calve = Path(sys.executable).parent / "calve"
        return measured([str(calve), "run", str(file), "--json"], bench.records)


def _inside(part: str) -> Callable[[Bench], Measured]:
    """A part of `bench.inside`, which measures itself, in a process of its own."""

    def run(bench: Bench) -> Measured:
        scratch = Path(tempfile.mkdtemp(dir=bench.directory))
        command = [sys.executable, "-m", "bench.inside", part]
        command += [bench.bootstrap, bench.topic, str(bench.records), str(scratch)]
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        finally:
            shutil.rmtree(scratch)
        return Measured(**json.loads(done.stdout.splitlines()[-1]))

    return run


SCENARIOS = (
    Scenario("ingest", "Kafka → Iceberg, without Spark's start", _inside("ingest"), aim=250_000, peer="connector"),
    Scenario(
        "ingest-cold",
        "Kafka → Iceberg, `calve run` with Spark's start",
        ingest_cold,
        aim=150_000,
        peer="connector-cold",
    ),
    Scenario("connector", "iceberg-kafka-connect 1.12.0, warm", connector.steady),
    Scenario("connector-cold", "iceberg-kafka-connect 1.12.0 with its start", connector.cold),
    Scenario("partitioned", "the first row's into twelve partitions", _inside("partitioned")),
    Scenario("distributed", "the same, sorted and hash-distributed", _inside("distributed")),
    Scenario("ranged", "the same, sorted and range-distributed", _inside("ranged")),
    Scenario("consume", "the floor: librdkafka's consume and value() alone", _inside("consume")),
    Scenario("decode", "JSON → Arrow alone, in batches of 10,000", _inside("decode")),
)
