"""Servers that outlive whoever started them, each known by a file that says which process it is and on which port."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.timing import Deadline

HOST = "127.0.0.1"
# The clock behind a process's start time moves with corrections of the system clock.
_CREATE_TIME_TOLERANCE_SECONDS = 2.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Detached:
    """A server's process and port. `created` is the process's start in seconds since the epoch: a pid is used again."""

    pid: int
    created: float
    port: int

    def process(self) -> psutil.Process | None:
        """The process if it still runs."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _CREATE_TIME_TOLERANCE_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def listens(self) -> bool:
        """Whether something accepts connections at its port."""
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            return probe.connect_ex((HOST, self.port)) == 0

    def wait_until(self, answers: Callable[[], bool], timeout: float, *, server: str, log: Path, stop: str) -> None:
        """Wait up to `timeout` seconds for its first answer.

        `server`, its log and the command `stop` are for Unreachable, raised if it ends instead, or the time is up.
        """
        deadline = Deadline.after(timeout)
        while not answers():
            if self.process() is None:
                raise Unreachable(
                    f"{server} ended while starting:\n{tail(log)}", hint=f"see {log}", code=Code.NOT_STARTED
                )
            if deadline.passed:
                raise Unreachable(
                    f"{server}, at port {self.port}, has not answered for {timeout:g} s:\n{tail(log)}",
                    hint=f"see {log}; `{stop}` ends it",
                    code=Code.NOT_STARTED,
                )
            time.sleep(_POLL_S)

    def end(self, timeout: float) -> None:
        """Ask it with SIGTERM to end and, after `timeout` seconds, kill it."""
        process = self.process()
        if process is None:
            return
        # It may end by itself meanwhile.
        with suppress(psutil.NoSuchProcess):
            process.terminate()
            try:
                process.wait(timeout)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait()

    def record(self, path: Path, **more: str) -> None:
        """Write it to `path`, with what others may want to read there."""
        scratch = path.with_name(f"{path.name}.new")
        scratch.write_text(json.dumps({"pid": self.pid, "created": self.created, "port": self.port, **more}) + "\n")
        scratch.rename(path)

    @classmethod
    def recorded(cls, path: Path) -> Detached | None:
        """What `record` wrote last; its process may be gone."""
        try:
            state = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(state["pid"], state["created"], state["port"])


def process_of(pid: int, port: int = 0) -> Detached:
    """A process that lives."""
    return Detached(pid, psutil.Process(pid).create_time(), port)


def launch(command: list[str], port: int, log: Path, environment: Mapping[str, str] = os.environ) -> Detached:
    """Start a server in a session of its own, its output added to `log`."""
    # Not subprocess.Popen: its object must be waited for, and this process is to outlive us.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = [(os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
    silent = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    # What our starter left open for us, such as the lock of `flock`, would be held for as long as the server runs.
    closed = [(os.POSIX_SPAWN_CLOSE, number) for number in _inherited()]
    pid = os.posix_spawn(command[0], command, environment, file_actions=[*closed, *silent, *output], setsid=True)
    return process_of(pid, port)


def _inherited() -> list[int]:
    """Open files that a new process would get, the standard ones left out."""
    found: list[int] = []
    for number in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        # That of the listing is closed by now.
        with suppress(OSError):
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found


def choose_port(asked: int, before: Detached | None, server: str, start: str) -> int:
    """`asked`, or the one it had before, or a free one. `server` and the command `start` are for ConfigError, raised if
    it is taken.
    """
    port = asked or (before.port if before else 0)
    if port == 0:
        return free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} for {server} is taken: {error.strerror}",
                hint=f"end what listens there, or choose another with `{start} --port`",
                code=Code.PORT_TAKEN,
            ) from error
    return port


def free_port() -> int:
    """A TCP port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a server's log, indented."""
    text = log.read_text(errors="replace").splitlines()[-lines:] if log.is_file() else []
    return "\n".join(f"    {line}" for line in text) or "    (its log is empty)"
