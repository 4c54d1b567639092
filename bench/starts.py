"""What a start costs: `python -m bench.starts` runs `calve run` over 1,000 records, from exec to exit, in many ways.

A new pipeline each time, with its topics, tables and start positions to make, but in the row that says so. CPU-seconds
are those of all processes but the broker; a Spark that was there before counts with what it used meanwhile. Where the
time of the first row goes is measured in a run by itself (`--steps FILE`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.measure import ROOT, Meter, measured
from bench.workload import fill, write_pipeline
from orchestration import broker, spark_server
from sink_core.jars import spark_jars
from spark_jobs.session import JAVA_OPTIONS

DIRECTORY = ROOT / ".bench"
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
class Row:
    """One way to start: what takes its name, and Spark's part of connections.yaml; `again` runs a pipeline that has run
    before.
    """

    name: str
    what: str
    spark: Mapping[str, Any]
    again: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document; 1 if the first row's median misses the aim."""
    options = _options().parse_args(arguments)
    if options.steps:
        print(json.dumps(_steps(options.steps)))
        return 0
    started = broker.start(DIRECTORY / "broker")
    server = DIRECTORY / "spark"
    try:
        topic = fill(started.bootstrap, options.records, lambda line: print(line, file=sys.stderr))
        rows = [row for row in _rows() if row.name in (options.only or NAMES)]
        if any("remote" in row.spark for row in rows):
            # By a process of its own: what its client leaves in the environment would reach the runs.
            subprocess.run([CALVE, "spark", "start", "--dir", str(server)], stdout=sys.stderr, check=True)  # noqa: S603
            rows = [row if "remote" not in row.spark else _on(_running(server).remote, row) for row in rows]
        write = partial(_write, started.bootstrap, topic)
        found = {row.name: _median(row, write, server, options) for row in rows}
        found["steps"] = _median_steps(write, options.runs)
    finally:
        spark_server.stop(server)
        broker.stop(DIRECTORY / "broker")
    print(json.dumps({"records": options.records, "runs": options.runs, **found}, indent=2))
    return 0 if "cold" not in found or found["cold"]["wall_s"] < options.aim else 1


def _rows() -> list[Row]:
    here = {"master": "local[*]"}

    def with_conf(**conf: str) -> dict[str, Any]:
        return {**here, "conf": conf}

    return [
        Row("cold", "as it is", here),
        Row("again", "as it is, a pipeline that ran before", here, again=True),
        Row("archive", "without the class archive", with_conf(**WITHOUT_ARCHIVE)),
        Row("daemon", "with Spark's own Python daemon", with_conf(**{"spark.python.daemon.module": "pyspark.daemon"})),
        Row("jars", "with spark.jars", with_conf(**{"spark.driver.extraClassPath": "", "spark.jars": JARS})),
        Row("logging", "with Spark's own logging", with_conf(**{"spark.log.level": "INFO"})),
        Row("ui", "with Spark's UI", with_conf(**{"spark.ui.enabled": "true"})),
        Row("plain", "with none of these, and Java as it comes", with_conf(**PLAIN)),
        Row("connect", "on `calve spark start`", {"remote": ""}),
        Row("connect-again", "on it, a pipeline that ran before", {"remote": ""}, again=True),
    ]


NAMES = [row.name for row in _rows()]


def _on(remote: str, row: Row) -> Row:
    return Row(row.name, row.what, {"remote": remote}, again=row.again)


def _running(server: Path) -> spark_server.SparkServer:
    running = spark_server.status(server)
    assert running, f"no Spark server runs in {server}"
    return running


def _write(bootstrap: str, topic: str, directory: Path, spark: Mapping[str, Any]) -> Path:
    """A pipeline's file, which runs on `spark`."""
    file = write_pipeline(directory, bootstrap, topic)
    connections = file.with_name("connections.yaml")
    content = yaml.safe_load(connections.read_text())
    connections.write_text(yaml.safe_dump(content | {"spark": {"here": dict(spark)}}))
    return file


def _median(row: Row, write: Callable[[Path, Mapping[str, Any]], Path], server: Path, options: Any) -> dict[str, Any]:
    runs = [_run(row, write, server, options.records) for _ in range(options.runs)]
    found = {name: round(statistics.median(run[name] for run in runs), 1) for name in ("wall_s", "cpu_s")}
    print(row.name, found, file=sys.stderr, flush=True)
    return {"what": row.what, **found}


def _run(row: Row, write: Callable[[Path, Mapping[str, Any]], Path], server: Path, records: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as scratch:
        file = write(Path(scratch) / "pipeline", row.spark)
        command = [CALVE, "run", str(file), "--json"]
        if row.again:
            _first_batch(file)
        meter = Meter(of=_running(server).server.pid) if "remote" in row.spark else None
        run = measured(command, records)
        return {"wall_s": run.wall_s, "cpu_s": run.cpu_s + (meter.read(records).cpu_s if meter else 0.0)}


def _first_batch(file: Path) -> None:
    """A run that leaves half of the records for the next one; in this process, as no part of what is measured."""
    from sink_core.config.load import load
    from sink_core.session import Session
    from spark_jobs.run import Bounds, run_pipeline
    from tests.pipelines import InProcess

    content = file.read_text()
    file.write_text(content + "batch: {max_records: 500}\n")
    with Session.open(load(file)) as session:
        run_pipeline(session, InProcess(), bounds=Bounds(max_batches=1, max_duration_s=600.0, linger_s=0.0))
    file.write_text(content)


def _median_steps(write: Callable[[Path, Mapping[str, Any]], Path], runs: int) -> dict[str, float]:
    """Wall seconds of each step of a cold run, by the run with the median in all."""
    done: list[dict[str, float]] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=DIRECTORY) as scratch:
            file = write(Path(scratch) / "pipeline", {"master": "local[*]"})
            command = [sys.executable, "-m", "bench.starts", "--steps", str(file)]
            run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
            done.append(json.loads(run.stdout.splitlines()[-1]))
    return sorted(done, key=lambda steps: sum(steps.values()))[len(done) // 2]


class _Clock:
    """Wall seconds since the process began, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._doing, self._since = "Python's start", psutil.Process().create_time()

    def begins(self, step: str) -> None:
        now = time.time()
        self.seconds[self._doing] = round(self.seconds.get(self._doing, 0.0) + now - self._since, 2)
        self._doing, self._since = step, now


def _steps(file: str) -> dict[str, float]:
    """What `calve run FILE` does, with a clock."""
    clock = _Clock()
    clock.begins("imports")
    from sink_core.config.load import load
    from sink_core.session import Session
    from spark_jobs.run import run_pipeline
    from spark_jobs.runner import SparkRunner, Task

    class Timed(SparkRunner):
        @property
        def session(self) -> Any:
            if self._started is None:
                clock.begins("Spark's start")
                _ = super().session
                clock.begins("Spark's first job")
            return super().session

        def run(self, task: Task, n: int) -> list[bytes]:
            results = super().run(task, n)
            clock.begins("ledger and manifests")
            return results

    clock.begins("connecting")
    pipeline = load(Path(file))
    with Session.open(pipeline) as session, Timed(pipeline.spark) as runner:
        names = {"start": "pipeline and tables", "write": "tables loaded", "end": "Spark's end"}
        run_pipeline(session, runner, on_progress=lambda step: clock.begins(names.get(step.phase, step.phase)))
    clock.begins("exit")
    return clock.seconds


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description="What a start of `calve run` costs.")
    parser.add_argument("--records", type=int, default=1_000, metavar="N", help="events in the topic (1,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the medians count (3)")
    parser.add_argument("--aim", type=float, default=12.0, metavar="S", help="seconds for the first row (12)")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--steps", metavar="FILE", help="run the pipeline of FILE once, and say what took how long")
    return parser


if __name__ == "__main__":
    sys.exit(main())
