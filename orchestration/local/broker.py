"""The embedded Kafka: a real one-node KRaft broker, for trying things out, for tests and for small installations.

Everything of a broker is in one directory: `data/` (topics), `server.properties`, `broker.log` and `broker.json`, which
says which process serves it and on which port. The process is detached: it outlives whoever started it, until `stop`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from calve.orchestration.local import broker_files
from calve.sink_core.codes import Code
from calve.sink_core.detached import HOST, Detached, choose_port, free_port, launch
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.jars import kafka_jars
from calve.sink_core.java import find_java, write_properties
from calve.sink_core.kafka.failures import answered
from calve.sink_core.locks import exclusive


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's process and address."""

    directory: Path
    server: Detached

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def bootstrap(self) -> str:
        """`host:port` of the plaintext listener, for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"


def start(
    directory: Path,
    port: int = 0,
    *,
    properties: Mapping[str, str] | None = None,
    heap_mb: int = 1024,
    timeout: float = 60.0,
) -> Broker:
    """The running broker of `directory`: the one that is there, else a new one, once it answers.

    `port` 0 means the port it had before, or a free one the first time. `properties` are server properties on top of
    ours, for this start; its `listeners` are added to the plaintext one, which always stays. `timeout` in seconds.
    Raises ConfigError (no Java, port taken) and Unreachable (it died or did not answer; with the end of its log).
    """
    directory = directory.absolute()
    with exclusive(directory / ".lock"):
        running = status(directory)
        if running is None:
            port = choose_port(port, _recorded(directory), f"the broker in {directory}", "calve broker start")
            running = _launch(directory, port, properties or {}, heap_mb)
        elif port not in (0, running.port):
            raise ConfigError(
                f"the broker in {directory} already runs on port {running.port}, asked for {port}",
                hint=f"stop it first, or leave out the port: `calve broker stop --dir {directory}`",
                code=Code.RUNS_OTHERWISE,
            )
        running.server.wait_until(
            lambda: _answers(running),
            timeout,
            server=f"the broker in {directory}",
            log=_log(directory),
            stop=f"calve broker stop --dir {directory}",
        )
    return running


def stop(directory: Path, *, timeout: float = 30.0) -> bool:
    """End the broker of `directory` and wait until its process is gone; whether there was one.

    It is asked with SIGTERM and, after `timeout` seconds, killed: nothing acknowledged is lost either way.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        return False
    with exclusive(directory / ".lock"):
        broker = status(directory)
        if broker is None:
            return False
        broker.server.end(timeout)
    return True


def status(directory: Path) -> Broker | None:
    """The broker of `directory` if its process runs (it may not answer yet), else None."""
    directory = directory.absolute()
    server = _recorded(directory)
    return Broker(directory, server) if server is not None and server.process() is not None else None


def _launch(directory: Path, port: int, properties: Mapping[str, str], heap_mb: int) -> Broker:
    java = [str(find_java()), "-cp", os.pathsep.join(map(str, kafka_jars()))]
    java += [f"-Dlog4j2.configurationFile={broker_files.write_logging(directory)}"]
    settings = broker_files.settings(directory, HOST, port, free_port(), properties)
    _format(directory, java, settings)
    server = write_properties(directory / "server.properties", settings)
    command = [*java, f"-Xms{heap_mb // 4}m", f"-Xmx{heap_mb}m", "-Djava.awt.headless=true", "kafka.Kafka", str(server)]
    broker = Broker(directory, launch(command, port, _log(directory)))
    broker.server.record(_state(directory), bootstrap=broker.bootstrap)
    return broker


def _format(directory: Path, java: list[str], settings: Mapping[str, str]) -> None:
    data = Path(settings["log.dirs"])
    if data.exists():
        return
    # Formatted beside its place and renamed, so that a killed start leaves no half-formatted storage.
    fresh = broker_files.fresh_folder(directory / "data.new")
    config = write_properties(directory / "format.properties", {**settings, "log.dirs": str(fresh)})
    tool = ["kafka.tools.StorageTool", "format", "-t", broker_files.new_cluster_id(), "-c", str(config)]
    done = subprocess.run([*java, *tool], capture_output=True, text=True, check=False)  # noqa: S603 (own arguments)
    config.unlink()
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise ConfigError(
            f"the broker's storage in {directory} could not be formatted: {reason}",
            hint="correct the server property it names",
            code=Code.BROKER_STORAGE,
        )
    fresh.rename(data)


def _answers(broker: Broker) -> bool:
    # librdkafka complains on stderr about refused connections, so it is asked only when something listens.
    if not broker.server.listens():
        return False
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 5000})
    try:
        answer = answered(admin.describe_cluster(request_timeout=5), "connecting to the broker", 5.0)
    except CalveError:
        return False
    return answer.cluster_id == broker_files.cluster_id(broker.directory)


def _recorded(directory: Path) -> Detached | None:
    return Detached.recorded(_state(directory))


def _state(directory: Path) -> Path:
    return directory / "broker.json"


def _log(directory: Path) -> Path:
    return directory / "broker.log"
