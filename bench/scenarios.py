"""The rows of the table. A scenario gets a filled topic and gives what one run of it took."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.measure import ROOT, Measured, measured
from bench.workload import write_pipeline


@dataclass(frozen=True, slots=True)
class Bench:
    """What scenarios have in common: the broker's address, the topic and its number of events, a scratch folder."""

    bootstrap: str
    topic: str
    records: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row. `aim` in records per CPU-second, if there is one."""

    name: str
    what: str
    run: Callable[[Bench], Measured]
    aim: int | None = None


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
    Scenario("ingest", "Kafka → Iceberg, without Spark's start", _inside("ingest"), aim=250_000),
    Scenario("ingest-cold", "Kafka → Iceberg, `calve run` with Spark's start", ingest_cold, aim=150_000),
    Scenario("partitioned", "the first row's into twelve partitions", _inside("partitioned")),
    Scenario("distributed", "the same, sorted and hash-distributed", _inside("distributed")),
    Scenario("ranged", "the same, sorted and range-distributed", _inside("ranged")),
    Scenario("consume", "the floor: librdkafka's consume and value() alone", _inside("consume")),
    Scenario("decode", "JSON → Arrow alone, in batches of 10,000", _inside("decode")),
)
