"""A warm Spark for runs on this machine: a Spark Connect server that outlives whoever started it, until `stop`.

Everything of a server is in one directory: `spark.properties`, `spark.log`, Spark's scratch files in `local/`, and
`spark.json`, which says which process it is and on which port. It accepts connections of this machine only.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from calve.orchestration.local.broker_files import property_lines, write_properties
from calve.orchestration.local.detached import HOST, Detached, choose_port, launch
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.error_codes.machine import RUNS_OTHERWISE
from calve.sink_core.errors import ConfigError
from calve.sink_core.java import find_java
from calve.sink_core.locks import exclusive
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.session import defaults

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True, slots=True)
class SparkServer:
    """A server's process and address."""

    directory: Path
    server: Detached

    @property
    def remote(self) -> str:
        """For `remote` in connections.yaml. To a host of another name Spark's client sends tokens by TLS only."""
        return f"sc://localhost:{self.server.port}"


def start(
    directory: Path, port: int = 0, *, conf: Mapping[str, str] | None = None, timeout: float = 120.0
) -> SparkServer:
    """The running server of `directory`: the one that is there, else a new one, once it has run a task.

    `port` 0 means the port it had before, or a free one the first time. `conf` are Spark's settings on top of ours,
    which a running server must have been started with. `timeout` in seconds. For a process without a Spark of its own,
    which can't have one after this. Raises ConfigError (no Java, port taken, another port or other settings than the
    running one's) and Unreachable (it died or did not answer; with the end of its log).
    """
    directory = directory.absolute()
    with exclusive(directory / ".lock"):
        running = status(directory)
        if running is None:
            before = Detached.recorded(_state(directory))
            port = choose_port(port, before, f"the Spark server in {directory}", "calve spark start")
            running = _launch(directory, port, conf or {})
        else:
            _check_same(running, port, conf or {})
        running.server.wait_until(
            running.server.listens,
            timeout,
            server=f"the Spark server in {directory}",
            log=_log(directory),
            stop=f"calve spark stop --dir {directory}",
        )
        # Until its first task a server has loaded few of the classes that each run needs.
        with SparkEngine(SparkSettings(remote=running.remote)) as engine:
            engine.run(_nothing, 1)
    return running


def stop(directory: Path, *, timeout: float = 30.0) -> bool:
    """End the server of `directory`, with the runs on it, and wait until it is gone; whether there was one.

    It is asked with SIGTERM and, after `timeout` seconds, killed.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        return False
    with exclusive(directory / ".lock"):
        running = status(directory)
        if running is None:
            return False
        running.server.end(timeout)
        shutil.rmtree(directory / "local", ignore_errors=True)
    return True


def status(directory: Path) -> SparkServer | None:
    """The server of `directory` if its process runs (it may not answer yet), else None."""
    directory = directory.absolute()
    server = Detached.recorded(_state(directory))
    return SparkServer(directory, server) if server is not None and server.process() is not None else None


def _check_same(running: SparkServer, port: int, conf: Mapping[str, str]) -> None:
    """That the running server is the one asked for."""
    directory = running.directory
    hint = f"stop it first, or leave that out: `calve spark stop --dir {directory}`"
    if port not in (0, running.server.port):
        raise ConfigError(
            f"the Spark server in {directory} already runs on port {running.server.port}, asked for {port}",
            hint=hint,
            code=RUNS_OTHERWISE,
        )
    has = set(_settings_file(directory).read_text("ascii").splitlines())
    others = [line.partition("=")[0] for line in property_lines(conf) if line not in has]
    if others:
        raise ConfigError(
            f"the Spark server in {directory} already runs with other settings than asked for: {', '.join(others)}",
            hint=hint,
            code=RUNS_OTHERWISE,
        )


def _launch(directory: Path, port: int, conf: Mapping[str, str]) -> SparkServer:
    # Those that a killed server left.
    scratch = directory / "local"
    shutil.rmtree(scratch, ignore_errors=True)
    settings = {
        **defaults(conf.get("spark.master", "local[*]"), None, str(scratch)),
        "spark.app.name": "calve spark server",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        # Each session has a daemon of its own here, which nobody ends.
        "spark.python.daemon.module": "calve.spark_jobs.session_daemon",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **conf,
    }
    file = write_properties(_settings_file(directory), settings)
    home = _spark_home()
    submit = [str(home / "bin" / "spark-submit"), "--properties-file", str(file), "--class", SERVER_CLASS]
    java = find_java()
    environment = {
        **os.environ,
        # Another Spark's home, or its settings, would be taken for ours.
        "SPARK_HOME": str(home),
        "JAVA_HOME": os.environ.get("JAVA_HOME") or str(java.resolve().parents[1]),
        "PYSPARK_PYTHON": sys.executable,
    }
    running = SparkServer(directory, launch([*submit, "spark-internal"], port, _log(directory), environment))
    running.server.record(_state(directory), remote=running.remote)
    return running


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _nothing(_number: int) -> bytes:
    return b""


def _state(directory: Path) -> Path:
    return directory / "spark.json"


def _settings_file(directory: Path) -> Path:
    return directory / "spark.properties"


def _log(directory: Path) -> Path:
    return directory / "spark.log"
