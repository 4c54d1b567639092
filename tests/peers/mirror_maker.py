"""MirrorMaker 2 with exactly-once: one process of its own, which copies topics from one broker to another."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.mirror_maker import MIRROR_MAKER
from calve.orchestration.local.broker_files import write_logging
from calve.sink_core.jars import kafka_jars, resolve
from calve.sink_core.java import find_java, write_properties
from calve.spark_jobs.session import JAVA_OPTIONS

ONE_BROKER = (
    "replication",
    "offset-syncs.topic.replication",
    "checkpoints.topic.replication",
    "heartbeats.topic.replication",
    "offset.storage.replication",
    "status.storage.replication",
    "config.storage.replication",
)
STOP_S = 60.0


@dataclass
class MirrorMaker:
    """Copies `topics` of one broker to another, where they are called `CLUSTER.TOPIC`, by `tasks` tasks."""

    source: str
    target: str
    directory: Path
    topics: Sequence[str]
    cluster: str
    tasks: int = 2
    _process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        return self.directory / "mirror-maker.log"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        flow = f"{self.cluster}->us"
        settings = {
            "clusters": f"{self.cluster}, us",
            f"{self.cluster}.bootstrap.servers": self.source,
            "us.bootstrap.servers": self.target,
            f"{flow}.enabled": "true",
            f"{flow}.topics": ", ".join(self.topics),
            "us.exactly.once.source.support": "enabled",
            f"{flow}.source.consumer.isolation.level": "read_committed",
            "tasks.max": str(self.tasks),
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "offset.flush.interval.ms": "1000",
            **{f"{name}.factor": "1" for name in ONE_BROKER},
        }
        file = write_properties(self.directory / "mm2.properties", settings)
        command = [str(find_java()), "-Xmx512m", *JAVA_OPTIONS.split()]
        command += [f"-Dlog4j2.configurationFile={write_logging(self.directory)}", "-cp", class_path()]
        command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def class_path() -> str:
    return os.pathsep.join(map(str, [*resolve(MIRROR_MAKER), *kafka_jars()]))
