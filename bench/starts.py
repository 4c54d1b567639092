"""What a start costs: `python -m bench.starts` runs `calve run` over 1,000 records, from exec to exit, in many ways.

From how many records on Spark is worth its start, `--only process --only cold --records 1000 50000 …` says.

A new pipeline each time, with its topics, tables and start positions to make, but in the row that says so. CPU-seconds
are those of all processes but the broker; a Spark that was there before counts with what it used meanwhile. With
`--steps` it also says where the time of the first row goes, measured in runs by themselves (`bench.start_steps`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.figure import Aim, Figure
from bench.measure import ROOT, Meter, measured
from bench.part import Part, Place, Step, alone
from bench.proof import prove
from bench.workload import fill, write_pipeline
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.load import load
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.jars import spark_jars
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from calve.spark_jobs import warm
from calve.spark_jobs.session import JAVA_OPTIONS

WARM = "here"
"""In the place of the folder of a warm Spark."""

CALVE = str(Path(sys.executable).with_name("calve"))
JARS = ",".join(map(str, spark_jars()))
WITHOUT_ARCHIVE = {"spark.driver.extraJavaOptions": JAVA_OPTIONS}
PLAIN = {
    "spark.driver.extraJavaOptions": "-Dcalve=plain",
    "spark.driver.extraClassPath": "",
    "spark.jars": JARS,
    "spark.log.level": "WARN",
    "spark.python.daemon.module": "pyspark.daemon",
    "spark.ui.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start: what takes its name, and Spark's part of connections.yaml; `again` runs a pipeline that has run
    before, `own_process` one that has no Spark do its work.
    """

    name: str
    what: str
    spark: Mapping[str, Any]
    again: bool = False
    own_process: bool = False


def _ways() -> list[Way]:
    here = {"master": "local[*]", "warm": "never"}

    def with_conf(**conf: str) -> dict[str, Any]:
        return {**here, "conf": conf}

    return [
        Way("process", "in the run's own process, without Spark", here, own_process=True),
        Way("process-again", "in it, a pipeline that ran before", here, again=True, own_process=True),
        Way("cold", "with Spark, as it is", here),
        Way("again", "with Spark, a pipeline that ran before", here, again=True),
        Way("archive", "without the class archive", with_conf(**WITHOUT_ARCHIVE)),
        Way("daemon", "with Spark's own Python daemon", with_conf(**{"spark.python.daemon.module": "pyspark.daemon"})),
        Way("jars", "with spark.jars", with_conf(**{"spark.driver.extraClassPath": "", "spark.jars": JARS})),
        Way("logging", "with Spark's own logging", with_conf(**{"spark.log.level": "INFO"})),
        Way("ui", "with Spark's UI", with_conf(**{"spark.ui.enabled": "true"})),
        Way("plain", "with none of these, and Java as it comes", with_conf(**PLAIN)),
        Way("warm", "on a warm Spark", {**here, "warm": WARM}),
        Way("warm-again", "on it, a pipeline that ran before", {**here, "warm": WARM}, again=True),
    ]


WAYS = _ways()
NAMES = [way.name for way in WAYS]
USUAL = ("process", "cold", "warm")
"""Those that `make bench` has."""
RECORDS = 1_000
AIMS_S = {"process": 2.0, "cold": 6.0, "warm": 2.0}
"""Of the usual 1,000 records."""


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    server = _Server(place.scratch / "spark")
    try:
        for records in options.records:
            here = _Here(place, fill(place.bootstrap, records), server, records)
            for way in WAYS:
                if way.name in (options.ways or USUAL):
                    yield Step(here.row(way), partial(_median, way, here, options.runs))
            if options.steps:
                yield Step("steps", partial(_median_steps, here, options.runs))
    finally:
        server.stop()


@dataclass(frozen=True, slots=True)
class _Server:
    """A warm Spark, started with the first use."""

    folder: Path

    def running(self) -> warm.WarmSpark:
        return warm.start(self.folder, SparkSettings(master="local[*]", warm=str(self.folder)))

    def stop(self) -> None:
        warm.stop(self.folder)


@dataclass(frozen=True, slots=True)
class _Here:
    """What runs have in common."""

    place: Place
    topic: str
    server: _Server
    records: int

    def row(self, way: Way) -> str:
        """The name of its figure."""
        return way.name if self.records == RECORDS else f"{way.name} {self.records}"

    def pipeline(self, scratch: str, spark: Mapping[str, Any], *, own_process: bool = False) -> Path:
        """A pipeline's file, which runs on `spark`, or in the run's own process."""
        file = write_pipeline(Path(scratch) / "pipeline", self.place.bootstrap, self.topic)
        from_records = sys.maxsize if own_process else 0
        file.write_text(f"{file.read_text()}batch: {{spark_from_records: {from_records}}}\n")
        connections = file.with_name("connections.yaml")
        content = yaml.safe_load(connections.read_text())
        connections.write_text(yaml.safe_dump(content | {"spark": {"here": dict(spark)}}))
        return file


def _median(way: Way, here: _Here, runs: int) -> Iterator[Figure]:
    if way.spark["warm"] == WARM:
        way = replace(way, spark={**way.spark, "warm": str(here.server.running().folder)})
    done = [_run(way, here) for _ in range(runs)]
    wall_s, cpu_s = (round(statistics.median(figures), 1) for figures in zip(*done, strict=True))
    aim = Aim(AIMS_S[way.name], at_most=True) if way.name in AIMS_S and here.records == RECORDS else None
    yield Figure(here.row(way), f"{here.records:,} records, {way.what}", wall_s, "s", aim, more={"CPU-s": cpu_s})


def _run(way: Way, here: _Here) -> tuple[float, float]:
    """Wall and CPU-seconds."""
    with tempfile.TemporaryDirectory(dir=here.place.scratch) as scratch:
        file = here.pipeline(scratch, way.spark, own_process=way.own_process)
        if way.again:
            _first_batch(file)
        meter = Meter(of=here.server.running().process.pid) if way.spark["warm"] != "never" else None
        run = measured([CALVE, "run", str(file), "--json"], here.records)
        cpu_s = run.cpu_s + (meter.read(here.records).cpu_s if meter else 0.0)
        prove(load(file))
        return run.wall_s, cpu_s


def _median_steps(here: _Here, runs: int) -> Iterator[Figure]:
    """Wall seconds of each step of a cold run, by the run with the median in all."""
    done: list[dict[str, float]] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=here.place.scratch) as scratch:
            command = [sys.executable, "-m", "bench.start_steps", str(here.pipeline(scratch, {"master": "local[*]"}))]
            run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
            done.append(json.loads(run.stdout.splitlines()[-1]))
    median = sorted(done, key=lambda steps: sum(steps.values()))[len(done) // 2]
    for step, seconds in median.items():
        yield Figure(f"step {step}", "of a cold run", seconds, "s")


def _first_batch(file: Path) -> None:
    """A run that leaves half of the records for the next one; in this process, as no part of what is measured."""
    content = file.read_text()
    file.write_text(content.replace("batch: {", f"batch: {{max_records: {RECORDS // 2}, "))
    with Session.open(load(file)) as session:
        run_pipeline(session, bounds=Bounds(max_batches=1, max_duration_s=600.0, linger_s=0.0))
    file.write_text(content)


def _options(parser: argparse.ArgumentParser) -> None:
    shown = f"events in the topic ({RECORDS:,}); several for a row each"
    parser.add_argument("--records", type=int, nargs="+", default=[RECORDS], metavar="N", help=shown)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the medians count (3)")
    shown = f"one of {', '.join(NAMES)} ({', '.join(USUAL)})"
    parser.add_argument("--only", dest="ways", action="append", choices=NAMES, metavar="NAME", help=shown)
    parser.add_argument("--steps", action="store_true", help="what takes how long of a cold run, too")


PART = Part("starts", "What a start of `calve run` costs.", _options, _steps, smoke="--only cold --runs 1")

if __name__ == "__main__":
    sys.exit(alone(PART))
