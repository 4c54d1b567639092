"""The course of a soak: everything started, faults one after the other, everything ended and counted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.workload import PARTITIONS, new_topic, write_pipeline
from calve.orchestration.local import broker
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import high_watermarks
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.e2e.faults.processes import ROOT, Launcher, Process
from tests.e2e.faults.spark_server import ConnectServer, serving
from tests.peers.peer import closing_spark
from tests.soak.report import Count, Healed, Trend
from tests.soak.watch import Healing, Samples
from tests.soak.work import RUN, RUN_S, TASKS, Worker, age_files

TABLE = "bench.events"
START_S = STOP_S = 300.0
MAINTENANCE_PAUSE_S = 5.0
ON_RUNS = 0.7
"""The part of kills that hits a run; the others hit a task of maintenance."""
SPARK = {
    # All of the heap is touched at once, so that what grows is something else.
    "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch",
    # Sessions and statements of killed clients go soon.
    "spark.connect.session.manager.defaultSessionTimeout": "3m",
    "spark.connect.execute.manager.detachedTimeout": "1m",
}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`kill_every_s` are the least and the most seconds from one kill to the next."""

    minutes: float
    per_second: int
    kill_every_s: tuple[float, float]
    chance: random.Random


@dataclass(frozen=True, slots=True)
class Found:
    """What a soak ends with; `ends` counts processes by what they did and their exit code."""

    healed: list[Healed]
    trends: list[Trend]
    count: Count
    ends: Counter[str]
    failures: list[str]


def soak(directory: Path, plan: Plan, say: Say) -> Found:
    """Everything it starts is gone when it returns."""
    with ExitStack() as opened:
        opened.callback(broker.stop, directory / "broker")
        started = broker.start(directory / "broker", support.steady_port(), timeout=START_S)
        server = opened.enter_context(serving(directory / "spark", SPARK))
        topic = new_topic(started.bootstrap)
        file = _pipeline(directory / "pipeline", started.bootstrap, topic, server)
        course = _Course(directory, plan, say, server, file, Launcher(directory / "stderr"))
        course.run_to_end()
        producer = opened.enter_context(_started("producer", started.bootstrap, topic, str(plan.per_second)))
        foreign = opened.enter_context(_started("foreign", *course.where))
        healed, trends, workers = course.play(producer, foreign)
        sent, other = int(_ended(producer)), json.loads(_ended(foreign))
        say(f"{sent:,} events sent, {other}")
        course.run_to_end()
        arrived = _records(started.bootstrap, topic)
        assert arrived == sent, f"{sent:,} sent, the topic has {arrived:,}"
        count = course.count(sent, other, proven=course.calve("verify", "--deep") == EXIT_DONE)
        ends = sum((worker.ends for worker in workers), Counter[str]())
        return Found(healed, trends, count, ends, [failure for worker in workers for failure in worker.failures])


@dataclass
class _Course:
    directory: Path
    plan: Plan
    say: Say
    server: ConnectServer
    file: Path
    launcher: Launcher

    @property
    def where(self) -> tuple[str, str, str, str]:
        """Server, folder, catalog and table, for those who know nothing of Calve."""
        return (self.server.address, str(self.file.parent), "lake", TABLE)

    def calve(self, command: str, *options: str) -> int:
        process = self.launcher.cold([command, str(self.file), *options])
        code = process.finish(RUN_S)
        if code != EXIT_DONE:
            self.say(f"{command}: {process.output_text}\n{process.errors}")
        return code

    def run_to_end(self) -> None:
        """A run that nobody disturbs and that does not linger."""
        assert self.calve("run", "--linger", "0") == EXIT_DONE

    def play(
        self, producer: subprocess.Popen[str], foreign: subprocess.Popen[str]
    ) -> tuple[list[Healed], list[Trend], list[Worker]]:
        """Faults until the time is over; what became of them, of the processes, and of the work."""
        runs = Worker(self._run, self.server.drop_daemons)
        maintenance = Worker(self._maintain, pause_s=MAINTENANCE_PAUSE_S)
        healing = Healing(self.file.parent, TABLE, lambda task: maintenance.done_at.get(task, 0.0))
        lasting = {"Spark Connect server": self.server.pid, "producer": producer.pid, "other writer": foreign.pid}
        samples = Samples({name: psutil.Process(pid) for name, pid in lasting.items()})
        for thread in (runs, maintenance, healing, samples):
            thread.start()
        self._faults(runs, maintenance, healing)
        healed = healing.stop(timeout_s=STOP_S)
        producer.send_signal(signal.SIGTERM)
        trends = samples.stop()
        maintenance.stop()
        runs.stop()
        return healed, trends, [runs, maintenance]

    def _faults(self, runs: Worker, maintenance: Worker, healing: Healing) -> None:
        chance, end = self.plan.chance, time.monotonic() + 60 * self.plan.minutes
        broker_at = end - 30 * self.plan.minutes
        while (wait := chance.uniform(*self.plan.kill_every_s)) < end - time.monotonic():
            time.sleep(wait)
            if time.monotonic() > broker_at:
                broker_at = end
                self._kill_the_broker()
                healing.note("the broker killed and started again", RUN)
                continue
            on_runs = chance.random() < ON_RUNS
            killed = (runs if on_runs else maintenance).kill(group=chance.random() < 0.5)
            if killed is not None:
                healing.note(f"`{'calve run' if on_runs else f'calve maintain … {killed}'}` killed", killed)
                self.say(f"killed: {killed}; so far {dict(runs.ends + maintenance.ends)}")
        time.sleep(max(0.0, end - time.monotonic()))

    def _kill_the_broker(self) -> None:
        found = broker.status(self.directory / "broker")
        assert found is not None
        process = psutil.Process(found.pid)
        process.kill()
        process.wait(STOP_S)
        broker.start(self.directory / "broker", timeout=START_S)
        self.say("the broker was killed and is there again")

    def _run(self, _number: int) -> tuple[str, Process]:
        return RUN, self.launcher.warm(["run", str(self.file)])

    def _maintain(self, number: int) -> tuple[str, Process]:
        task = TASKS[number % len(TASKS)]
        if task == "orphans":
            age_files(self.file.parent / "warehouse" / "bench")
        return task, self.launcher.cold(["maintain", str(self.file), task])

    def count(self, sent: int, other: dict[str, int], *, proven: bool) -> Count:
        """By Spark and Iceberg's Java library, which share no code with Calve."""
        with closing_spark(self.server.address) as spark:
            _, lake, catalog, table = self.where
            support.attach(spark, Path(lake), catalog)
            rows = {
                bool(row["ours"]): row
                for row in spark.sql(
                    f"SELECT _kafka IS NOT NULL AS ours, count(*) AS n, count(DISTINCT id) AS ids, min(id) AS least, "
                    f"max(id) AS most FROM {catalog}.{table} GROUP BY 1"
                ).collect()
            }
        ours, theirs = rows[True], rows.get(False)
        assert (ours["least"], ours["most"] < sent) == (0, True), ours
        foreign = (theirs["n"], theirs["ids"]) if theirs is not None else (0, 0)
        return Count(
            sent=sent,
            lost=sent - ours["ids"],
            twice=ours["n"] - ours["ids"],
            foreign_sent=other.get("rows", 0),
            foreign_lost=max(0, other.get("rows", 0) - foreign[1]),
            foreign_twice=foreign[0] - foreign[1],
            proven=proven,
        )


def _pipeline(directory: Path, bootstrap: str, topic: str, server: ConnectServer) -> Path:
    """The benchmark's pipeline, with runs that linger and maintenance that finds something to do every minute."""
    file = write_pipeline(directory, bootstrap, topic)
    connections = yaml.safe_load((directory / "connections.yaml").read_text())
    connections["spark"]["here"] = {"remote": server.address, "tasks": 2}
    (directory / "connections.yaml").write_text(yaml.safe_dump(connections, sort_keys=False))
    content = yaml.safe_load(file.read_text())
    content["batch"] = {**content.get("batch", {}), "every": "0s"}
    content["run"] = {"linger": "5s", "max_duration": "1m", "max_batches": 1_000_000}
    at = {"cron": "0 0 1 1 *"}  # by hand here
    content["maintenance"] = {
        "compact": {**at, "lag": "0s"},
        "manifests": {**at, "min_count": 20},
        "expire": {**at, "older_than": "1m"},
        "orphans": {**at, "older_than": "3d"},
        "trim": {"older_than": "1m"},
    }
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def _started(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.soak.{module}", *arguments]
    return _Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


class _Popen(subprocess.Popen[str]):
    """Killed, if it still runs, when its `with` ends."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)


def _ended(process: subprocess.Popen[str]) -> str:
    """What it prints once it was told to end."""
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=STOP_S)
    assert process.returncode == 0, process.args
    return printed


def _records(bootstrap: str, topic: str) -> int:
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    admin = clients.admin({"bootstrap.servers": bootstrap})
    return sum(high_watermarks(admin, partitions, timeout_s=STOP_S).values())
