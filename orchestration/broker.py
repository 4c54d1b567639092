"""The embedded Kafka: a real one-node KRaft broker, for trying things out, for tests and for small installations.

Everything of a broker is in one directory: `data/` (topics), `server.properties`, `broker.log` and `broker.json`, which
says which process serves it and on which port. The process is detached: it outlives whoever started it, until `stop`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from orchestration import broker_files
from orchestration.java import find_java
from sink_core.errors import ConfigError, Unreachable
from sink_core.jars import kafka_jars
from sink_core.locks import exclusive

HOST = "127.0.0.1"
_POLL_SECONDS = 0.1
# The clock behind a process's start time moves with corrections of the system clock.
_CREATE_TIME_TOLERANCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's process and address. `created` is the process's start in seconds since the epoch."""

    directory: Path
    pid: int
    created: float
    port: int

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
            running = _launch(directory, _choose_port(directory, port), properties or {}, heap_mb)
        elif port not in (0, running.port):
            raise ConfigError(
                f"the broker in {directory} already runs on port {running.port}, asked for {port}",
                hint=f"stop it first, or leave out the port: `calve broker stop --dir {directory}`",
            )
        _wait_until_it_answers(running, timeout)
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
        _end(broker, timeout)
    return True


def status(directory: Path) -> Broker | None:
    """The broker of `directory` if its process runs (it may not answer yet), else None."""
    broker = _recorded(directory.absolute())
    return broker if broker is not None and _process(broker) is not None else None


def free_port() -> int:
    """A TCP port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _choose_port(directory: Path, asked: int) -> int:
    recorded = _recorded(directory)
    port = asked or (recorded.port if recorded else 0)
    if port == 0:
        return free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} for the broker in {directory} is taken: {error.strerror}",
                hint="end what listens there, or choose another with `calve broker start --port`",
            ) from error
    return port


def _launch(directory: Path, port: int, properties: Mapping[str, str], heap_mb: int) -> Broker:
    java = [str(find_java()), "-cp", os.pathsep.join(map(str, kafka_jars()))]
    java += [f"-Dlog4j2.configurationFile={broker_files.write_logging(directory)}"]
    settings = broker_files.settings(directory, HOST, port, free_port(), properties)
    _format(directory, java, settings)
    server = broker_files.write_properties(directory / "server.properties", settings)
    command = [*java, f"-Xms{heap_mb // 4}m", f"-Xmx{heap_mb}m", "-Djava.awt.headless=true", "kafka.Kafka", str(server)]
    pid = _spawn(command, directory / "broker.log")
    broker = Broker(directory, pid, psutil.Process(pid).create_time(), port)
    _record(broker)
    return broker


def _format(directory: Path, java: list[str], settings: Mapping[str, str]) -> None:
    data = Path(settings["log.dirs"])
    if data.exists():
        return
    # Formatted beside its place and renamed, so that a killed start leaves no half-formatted storage.
    fresh = broker_files.fresh_folder(directory / "data.new")
    config = broker_files.write_properties(directory / "format.properties", {**settings, "log.dirs": str(fresh)})
    tool = ["kafka.tools.StorageTool", "format", "-t", broker_files.new_cluster_id(), "-c", str(config)]
    done = subprocess.run([*java, *tool], capture_output=True, text=True, check=False)  # noqa: S603 (own arguments)
    config.unlink()
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise ConfigError(
            f"the broker's storage in {directory} could not be formatted: {reason}",
            hint="correct the server property it names",
        )
    fresh.rename(data)


def _spawn(command: list[str], log: Path) -> int:
    # Not subprocess.Popen: its object must be waited for, and this process is to outlive us.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = [(os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
    silent = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    return os.posix_spawn(command[0], command, os.environ, file_actions=[*silent, *output], setsid=True)


def _wait_until_it_answers(broker: Broker, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not _answers(broker):
        if _process(broker) is None:
            raise Unreachable(
                f"the broker in {broker.directory} ended while starting:\n{broker_files.tail(broker.directory)}",
                hint=f"see {broker.directory / 'broker.log'}",
            )
        if time.monotonic() > deadline:
            raise Unreachable(
                f"the broker at {broker.bootstrap} has not answered for {timeout:g} s:\n"
                f"{broker_files.tail(broker.directory)}",
                hint=f"see {broker.directory / 'broker.log'}; `calve broker stop --dir {broker.directory}` ends it",
            )
        time.sleep(_POLL_SECONDS)


def _answers(broker: Broker) -> bool:
    try:
        # librdkafka complains on stderr about refused connections, so it is asked only when something listens.
        socket.create_connection((HOST, broker.port), timeout=1).close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 5000})
        answer = admin.describe_cluster(request_timeout=5).result()
    except (OSError, KafkaException):
        return False
    return answer.cluster_id == broker_files.cluster_id(broker.directory)


def _end(broker: Broker, timeout: float) -> None:
    process = _process(broker)
    if process is None:
        return
    process.terminate()
    try:
        process.wait(timeout)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


def _process(broker: Broker) -> psutil.Process | None:
    try:
        process = psutil.Process(broker.pid)
        same = abs(process.create_time() - broker.created) < _CREATE_TIME_TOLERANCE_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def _record(broker: Broker) -> None:
    state = {**asdict(broker), "bootstrap": broker.bootstrap}
    del state["directory"]
    scratch = broker.directory / "broker.json.new"
    scratch.write_text(json.dumps(state) + "\n")
    scratch.rename(broker.directory / "broker.json")


def _recorded(directory: Path) -> Broker | None:
    try:
        state = json.loads((directory / "broker.json").read_text())
    except FileNotFoundError:
        return None
    return Broker(directory, state["pid"], state["created"], state["port"])
