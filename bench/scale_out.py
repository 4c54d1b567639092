"""The same backlog on a Spark standalone cluster of one and of two workers with a core each.

`python -m bench.scale_out` starts master and workers, warms a session up with a small pipeline, and then has new
pipelines read the backlog. Two kinds of efficiency come of it:

- by wall time, t1 / (2 · t2): what a user of these machines sees. Broker, driver, master and workers are on the same
  machine: with as many workers as cores they take from the executors, which `busy_cores` shows (all processes that
  have a part, the broker included).
- by the executors' CPU-seconds, those of one worker / those of two: what adding a worker costs in work that was not
  there before. It is what would be left where broker and driver have machines of their own.

Beside them, on the last cluster, what a batch costs that has hardly any records, in one task and in many: what
does not get faster with more workers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from bench.measure import ROOT, Meter
from bench.workload import fill, write_pipeline
from orchestration import broker
from sink_core.config.connections import SparkSettings
from sink_core.config.effective import Pipeline
from sink_core.config.load import load
from sink_core.session import Session
from spark_jobs.run import RunReport, run_pipeline
from spark_jobs.runner import SparkRunner, Task
from tests.standalone import SETTINGS, Cluster, standalone

DIRECTORY = ROOT / ".bench"
SCRATCH = DIRECTORY / "scale-out"
WARM_UP_RECORDS = 200_000
MANY_TASKS = 64


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


class Counting(SparkRunner):
    """Adds up what tasks send back."""

    tasks = 0
    result_bytes = 0

    def run(self, task: Task, n: int) -> list[bytes]:
        results = super().run(task, n)
        self.tasks += n
        self.result_bytes += sum(map(len, results))
        return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document; 1 if that by wall time misses the aim."""
    options = _options().parse_args(arguments)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    started = broker.start(DIRECTORY / "broker")
    try:
        topics = [
            fill(started.bootstrap, n, lambda line: print(line, file=sys.stderr))
            for n in (WARM_UP_RECORDS, options.records)
        ]
        bench = Bench(started, *topics, records=options.records, runs=options.runs)
        one, _ = bench.cluster(1)
        two, fixed = bench.cluster(2)
    finally:
        broker.stop(DIRECTORY / "broker")
    wall, cpu = one["wall_s"] / (2 * two["wall_s"]), one["executors_cpu_s"] / two["executors_cpu_s"]
    found = {
        "records": options.records,
        "runs": options.runs,
        "cores": psutil.cpu_count(),
        "one_worker": one,
        "two_workers": two,
        "efficiency_by_wall_time": round(wall, 2),
        "efficiency_by_wall_time_of_writing": round(one["write_s"] / (2 * two["write_s"]), 2),
        "efficiency_by_cpu_of_executors": round(cpu, 2),
        "batch_of_few_records": fixed,
    }
    print(json.dumps(found, indent=2))
    return 0 if wall >= options.aim else 1


@dataclass(frozen=True, slots=True)
class Bench:
    """What clusters have in common: the broker, a small topic and the backlog."""

    kafka: broker.Broker
    small: str
    backlog: str
    records: int
    runs: int

    def cluster(self, workers: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Medians of runs over the backlog, and what small batches cost."""
        with standalone(SCRATCH / f"of-{workers}", workers, memory="2g") as cluster:
            settings = SparkSettings(master=cluster.master, conf={**SETTINGS, "spark.executor.memory": "1g"})
            with Counting(settings) as runner:
                self._run(runner, self._pipeline(f"warm-up-{workers}", self.small), WARM_UP_RECORDS)
                runs = [self._measured(runner, cluster, number) for number in range(self.runs)]
                fixed = {f"{n}_tasks": self._small(runner, n) for n in (1, MANY_TASKS)} if workers == 2 else {}
        names = ("wall_s", "write_s", "executors_cpu_s", "driver_cpu_s", "broker_cpu_s", "busy_cores")
        return {name: round(statistics.median(getattr(run, name) for run in runs), 2) for name in names}, fixed

    def _measured(self, runner: Counting, cluster: Cluster, number: int) -> Run:
        pipeline = self._pipeline(f"of-{len(cluster.worker_pids)}-{number}", self.backlog)
        everything, kafka = Meter(), Meter(of=self.kafka.pid)
        master, workers = Meter(of=cluster.master_pid), [Meter(of=pid) for pid in cluster.worker_pids]
        report = self._run(runner, pipeline, self.records)
        mine, executors = everything.read(self.records), sum(meter.read(self.records).cpu_s for meter in workers)
        run = Run(
            wall_s=mine.wall_s,
            write_s=sum(batch.seconds["write"] for batch in report.batches),
            executors_cpu_s=executors,
            driver_cpu_s=mine.cpu_s - executors - master.read(self.records).cpu_s,
            broker_cpu_s=kafka.read(self.records).cpu_s,
        )
        print(len(cluster.worker_pids), "workers:", run, file=sys.stderr, flush=True)
        return run

    def _small(self, runner: Counting, tasks: int) -> dict[str, float]:
        """Seconds of the steps of a batch of `tasks`, the second of its pipeline, and what each task sends back."""
        more = f"batch: {{min_task_bytes: 1KiB, max_records: {WARM_UP_RECORDS // 2}}}\n"
        pipeline = self._pipeline(f"small-{tasks}", self.small, more)
        of_tasks = Counting(SparkSettings(master="given", tasks=tasks), session=lambda: runner.session)
        report = self._run(of_tasks, pipeline, WARM_UP_RECORDS)
        return {**report.batches[-1].seconds, "result_bytes_per_task": round(of_tasks.result_bytes / of_tasks.tasks)}

    def _run(self, runner: SparkRunner, pipeline: Pipeline, records: int) -> RunReport:
        with Session.open(pipeline) as session:
            report = run_pipeline(session, runner)
        assert sum(batch.records for batch in report.batches) == records
        return report

    def _pipeline(self, name: str, topic: str, more: str = "") -> Pipeline:
        file = write_pipeline(SCRATCH / name, self.kafka.bootstrap, topic)
        file.write_text(file.read_text() + more)
        return load(file)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.scale_out", description="One worker and two.")
    parser.add_argument("--records", type=int, default=4_000_000, metavar="N", help="events in the backlog (4,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each, the medians count (3)")
    parser.add_argument("--aim", type=float, default=0.85, metavar="E", help="efficiency (0.85)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
