"""The same backlog on a Spark standalone cluster of one and of two workers with a core each.

`python -m bench.scale_out` starts master and workers, warms a session up with a small pipeline, and then has new
pipelines read the backlog. A worker and all that it starts are kept to one core of the machine, as in a container of
one core; broker, driver and master to none. Efficiency is t1 / (2 · t2), by wall time:

- with a core for each worker. Broker, driver and master are on the same machine: with as many workers as cores they
  take from the executors, which `busy_cores` shows (all processes that have a part, the broker included).
- with half a core for each worker, which they have in turns (`bench/turns.py`). Broker and driver then always have a
  core to themselves, as they would beside a cluster; to the workers it is one twice as fast.

The executors' CPU-seconds, those of one worker / those of two, say what adding a worker costs in work that was not
there before.

Beside them, on the last cluster, how long a batch is written that has hardly any records, in one task and in many:
what a task costs before it has read anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Aim, Figure
from bench.measure import Meter
from bench.part import Part, Place, Step, alone
from bench.progress import say
from bench.proof import prove
from bench.turns import half_the_time
from bench.workload import fill, write_pipeline
from calve.orchestration.local import broker
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import RunReport, run_pipeline
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.session import Started
from tests.standalone import SETTINGS, Cluster, standalone

WARM_UP_RECORDS = 200_000
MANY_TASKS = 16
FEW_RECORDS, BATCHES_OF_FEW = 8_000, 3
EFFICIENCY = 0.85


@dataclass(frozen=True, slots=True)
class Run:
    """One run over the backlog: seconds in all and of its batches' writing, and CPU-seconds by who used them."""

    wall_s: float
    write_s: float
    executors_cpu_s: float
    driver_cpu_s: float
    broker_cpu_s: float

    @property
    def busy_cores(self) -> float:
        return (self.executors_cpu_s + self.driver_cpu_s + self.broker_cpu_s) / self.wall_s


@dataclass(frozen=True, slots=True)
class OnWorkers:
    """Runs on whole cores, and on cores that the workers have half of the time; seconds of few records by tasks."""

    whole: Run
    half: Run
    few: dict[int, float]


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    topics = [fill(place.bootstrap, number) for number in (FEW_RECORDS, WARM_UP_RECORDS, options.records)]
    bench = Bench(place.kafka, place.scratch, *topics, records=options.records, runs=options.runs)
    yield Step("one worker and two", lambda: _figures(bench))


def _figures(bench: Bench) -> Iterator[Figure]:
    one = bench.cluster(1)
    yield _figure("one", "a run on one worker with a core", one.whole)
    yield _figure("one-half", "a run on one worker with half a core", one.half)
    two = bench.cluster(2)
    yield _figure("two", "the same on two with a core each", two.whole)
    yield _figure("two-half", "the same on two with half a core each", two.half)
    yield from _efficiency("", one.whole, two.whole)
    yield from _efficiency("-half", one.half, two.half)
    for tasks, seconds in two.few.items():
        yield Figure(f"few-{tasks}", f"written: a batch of few records in {tasks} tasks", round(seconds, 2), "s")


def _efficiency(name: str, one: Run, two: Run) -> Iterator[Figure]:
    of = ", with half a core each" if name else ""
    of_writing, of_cpu = _share(one.write_s, 2 * two.write_s), _share(one.executors_cpu_s, two.executors_cpu_s)
    more = {"of the batches' writing": of_writing, "of the executors' CPU-seconds": of_cpu}
    wall = _share(one.wall_s, 2 * two.wall_s)
    yield Figure(f"efficiency{name}", f"t1 / (2 · t2), by wall time{of}", wall, "", Aim(EFFICIENCY), more=more)


def _figure(name: str, what: str, run: Run) -> Figure:
    more = {
        "s writing": run.write_s,
        "CPU-s of executors": run.executors_cpu_s,
        "of the driver": run.driver_cpu_s,
        "of the broker": run.broker_cpu_s,
        "busy cores": run.busy_cores,
    }
    return Figure(name, what, round(run.wall_s, 2), "s", more={unit: round(value, 2) for unit, value in more.items()})


def _share(one: float, two: float) -> float:
    return round(one / two, 2)


@dataclass(frozen=True, slots=True)
class Bench:
    """What clusters have in common: the broker, a folder, topics of few events and to warm up with, and the backlog."""

    kafka: broker.Broker
    directory: Path
    few: str
    small: str
    backlog: str
    records: int
    runs: int

    def cluster(self, workers: int) -> OnWorkers:
        """The backlog read on as many workers; batches of few records on two of them."""
        with standalone(self.directory / f"of-{workers}", workers, memory="2g", pinned=True) as cluster:
            settings = SparkSettings(master=cluster.master, conf={**SETTINGS, "spark.executor.memory": "1g"})
            with SparkEngine(settings) as engine:
                self._run(engine, self._pipeline(f"warm-up-{workers}", self.small), WARM_UP_RECORDS)
                whole = self._median(engine, cluster, "whole")
                with half_the_time(cluster.worker_pids):
                    half = self._median(engine, cluster, "half")
                few = {tasks: self._few(engine, tasks) for tasks in (1, MANY_TASKS)} if workers == 2 else {}
        return OnWorkers(whole, half, few)

    def _median(self, engine: SparkEngine, cluster: Cluster, name: str) -> Run:
        """The run with the median wall time."""
        runs = [self._measured(engine, cluster, f"{name}-{number}") for number in range(self.runs)]
        return sorted(runs, key=lambda run: run.wall_s)[len(runs) // 2]

    def _measured(self, engine: SparkEngine, cluster: Cluster, name: str) -> Run:
        pipeline = self._pipeline(f"of-{len(cluster.worker_pids)}-{name}", self.backlog)
        everything, kafka = Meter(), Meter(of=self.kafka.pid)
        master, workers = Meter(of=cluster.master_pid), [Meter(of=pid) for pid in cluster.worker_pids]
        report = self._run(engine, pipeline, self.records)
        mine, executors = everything.read(self.records), sum(meter.read(self.records).cpu_s for meter in workers)
        run = Run(
            wall_s=mine.wall_s,
            write_s=sum(batch.seconds["write"] for batch in report.batches),
            executors_cpu_s=executors,
            driver_cpu_s=mine.cpu_s - executors - master.read(self.records).cpu_s,
            broker_cpu_s=kafka.read(self.records).cpu_s,
        )
        say(f"  {len(cluster.worker_pids)} workers: {run}")
        return run

    def _few(self, engine: SparkEngine, tasks: int) -> float:
        """Median seconds in which batches of `tasks` are written that have a few records each."""
        say(f"  batches of {tasks} tasks")
        more = f"batch: {{min_task_bytes: 1KiB, max_records: {FEW_RECORDS // BATCHES_OF_FEW}}}\n"
        of_tasks = SparkEngine(SparkSettings(master="given", tasks=tasks), begin=lambda: Started.given(engine.session))
        report = self._run(of_tasks, self._pipeline(f"few-{tasks}", self.few, more), FEW_RECORDS)
        return statistics.median(batch.seconds["write"] for batch in report.batches)

    def _run(self, engine: SparkEngine, pipeline: SinkPipeline, records: int) -> RunReport:
        with Session.open(pipeline, engine=engine) as session:
            report = run_pipeline(session)
        assert sum(batch.records for batch in report.batches) == records
        prove(pipeline)
        return report

    def _pipeline(self, name: str, topic: str, more: str = "") -> SinkPipeline:
        file = write_pipeline(self.directory / name, self.kafka.bootstrap, topic)
        file.write_text(file.read_text() + more)
        return load(file)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=2_000_000, metavar="N", help="events in the backlog (2,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each, the medians count (3)")


PART = Part(
    "scale-out",
    "One worker and two.",
    _options,
    _steps,
    smoke="--records 200000 --runs 1",
    keeps_topics=True,
)

if __name__ == "__main__":
    sys.exit(alone(PART))
