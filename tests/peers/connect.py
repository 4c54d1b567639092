"""Kafka Connect with iceberg-kafka-connect: one worker process, its files, its log and what its REST interface says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil
import pyspark

from calve.orchestration.local.broker_files import write_logging
from calve.sink_core.detached import HOST
from calve.sink_core.jars import JarSet, kafka_jars, resolve
from calve.sink_core.java import find_java, write_properties
from calve.spark_jobs.session import JAVA_OPTIONS
from tests import support

CONNECT = JarSet(
    "kafka-connect",
    roots=("org.apache.kafka:connect-runtime:4.3.1", "org.apache.kafka:connect-json:4.3.1"),
    extras=(),
)
"""Beside the broker's, of the same version, which have what both log with."""
CONNECTOR = JarSet(
    "iceberg-kafka-connect",
    # Its POM leaves the file formats to whoever assembles a distribution.
    roots=tuple(f"org.apache.iceberg:iceberg-{part}:1.12.0" for part in ("kafka-connect", "parquet", "orc")),
    extras=("org.xerial:sqlite-jdbc:3.54.1.0",),
)
MEMBERS = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500"}
"""What is left of a killed worker in a group is waited for; the default of 45 s only makes that longer."""
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    **{f"consumer.{key}": value for key, value in MEMBERS.items()},
    "offset.flush.interval.ms": "1000",
    # Plugins by their manifests, which all have: looking through every class takes most of a start.
    "plugin.discovery": "service_load",
}
START_S = 600.0
STOP_S = 60.0
_ERROR = re.compile(r"^\S+ ERROR (.*)$", re.MULTILINE)
_SHOWN_CHARACTERS = 120


@dataclass
class Connect:
    """A standalone worker with one connector; sink offsets are in Kafka, so that it keeps nothing of its own.

    `worker` are settings beside `WORKER`'s. `java_options` start it quickly unless others are given. `plugins` are
    converters that come beside the connector.
    """

    bootstrap: str
    directory: Path
    connector: Mapping[str, str]
    port: int = field(default_factory=support.steady_port)
    worker: Mapping[str, str] = field(default_factory=dict[str, str])
    heap_mb: int = 768
    java_options: tuple[str, ...] = tuple(JAVA_OPTIONS.split())
    plugins: tuple[JarSet, ...] = ()
    _process: subprocess.Popen[bytes] | None = None
    _read: int = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def cpu_s(self) -> float:
        """User and system time that the living worker has used."""
        assert self._process is not None
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    @property
    def log(self) -> Path:
        return self.directory / "connect.log"

    def start(self) -> None:
        """Start the worker and wait until the connector's tasks are there; nothing if it runs."""
        if self.running:
            return
        command = [
            str(find_java()),
            f"-Xmx{self.heap_mb}m",
            *self.java_options,
            f"-Dlog4j2.configurationFile={self._logging()}",
        ]
        command += ["-cp", os.pathsep.join(map(str, [*resolve(CONNECT), *kafka_jars()]))]
        # The connector finds the worker's file by the second word of the command.
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(self._worker()), str(self._connector())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self.states():
            assert self.running, self.log.read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-4000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def states(self) -> list[str]:
        """`RUNNING` or `FAILED` for each task; empty while there is none."""
        connection = HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", f"/connectors/{self.connector['name']}/status")
            found = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError):
            return []
        finally:
            connection.close()
        return [task["state"] for task in found.get("tasks", [])]

    def errors(self) -> list[str]:
        """What the log has at level ERROR since the last call, each message once."""
        text = self.log.read_text(errors="replace") if self.log.is_file() else ""
        fresh, self._read = text[self._read :], len(text)
        return list(dict.fromkeys(message[:_SHOWN_CHARACTERS] for message in _ERROR.findall(fresh)))

    def _logging(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        return write_logging(self.directory)

    def _worker(self) -> Path:
        plugins = self.directory / "plugins"
        hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
        of = {"iceberg": [*resolve(CONNECTOR), *hadoop], **{jars.name: resolve(jars) for jars in self.plugins}}
        for name, jars in of.items():
            (plugins / name).mkdir(parents=True, exist_ok=True)
            # Kafka's own come with the worker, in its version.
            for jar in (jar for jar in jars if not jar.name.startswith(("connect-", "kafka-clients-"))):
                with suppress(FileExistsError):
                    (plugins / name / jar.name).symlink_to(jar)
        settings = {
            "bootstrap.servers": self.bootstrap,
            "plugin.path": str(plugins),
            "offset.storage.file.filename": str(self.directory / "offsets"),
            "listeners": f"http://{HOST}:{self.port}",
            **WORKER,
            **self.worker,
        }
        return write_properties(self.directory / "worker.properties", settings)

    def _connector(self) -> Path:
        return write_properties(self.directory / "connector.properties", self.connector)
