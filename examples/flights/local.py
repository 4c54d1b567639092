"""What demo.py and dev.py share: the folder they work in, its broker, its Dagster instance, and how processes end."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import psutil
from dagster import DagsterInstance
from rich.console import Console

from calve.orchestration.dagster.common.runs import IN_PROGRESS
from calve.orchestration.local import broker
from calve.sink_core.errors import ConfigError, Unreachable

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PIPELINE = Path("orchestration/defs/flights/defs.yaml")

RUNS_END_WITHIN_S = 6.0
PROCESSES_END_WITHIN_S = 6.0
BROKER_ENDS_WITHIN_S = 6.0
"""Together below 20 s."""

ASKED = threading.Event()
"""A signal to end came. An exception alone may get lost, in a finalizer for one."""


def folder() -> Path:
    """Where everything is kept: CALVE_DEMO_DIR, else `.demo` in the clone."""
    return Path(os.environ.get("CALVE_DEMO_DIR") or ROOT / ".demo").absolute()


def say(console: Console, sentence: str) -> None:
    """What a demo itself has to say."""
    console.print(f"[bold green]demo[/bold green] {sentence}", soft_wrap=True)


def how_to_go_on(console: Console, pipeline: Path, brokers: Iterable[Path], variables: Iterable[str]) -> None:
    """Say how to look around in what is left: by which brokers, with these variables of the environment."""
    say(console, "the data stays; to look around with `calve`:")
    for directory in brokers:
        console.print(f"  .venv/bin/calve broker start --dir {directory}", soft_wrap=True)
    for variable in variables:
        console.print(f"  export {variable}={os.environ[variable]}", soft_wrap=True)
    console.print(f"  .venv/bin/calve status {pipeline}")


def show_command(console: Console, words: Sequence[str], **environment: str) -> None:
    """Print a command as somebody would give it."""
    said = "".join(f"{name}={value} " for name, value in environment.items())
    console.print(f"\n[bold]$ {said}{shlex.join(words)}[/bold]", soft_wrap=True)


def calve(console: Console, *words: str, **environment: str) -> int:
    """Print a command of `calve`, give it as a user would, and return its exit code."""
    show_command(console, ["calve", *words], **environment)
    command = [str(BIN / "calve"), *words]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode  # noqa: S603


@contextmanager
def warm_spark(console: Console, pipeline: Path) -> Generator[None]:
    """A Spark that is up for all runs in this `with`, as a deployment has one; gone afterwards. Raises Unreachable."""
    if code := calve(console, "spark", "start", str(pipeline)):
        raise Unreachable(f"Spark does not start: exit code {code}")
    try:
        yield
    finally:
        calve(console, "spark", "stop", str(pipeline))


class Interrupted(SystemExit):
    """SIGINT, SIGTERM or SIGHUP came. Its code is 128 and the signal's number."""


def interruptible() -> None:
    """Make the first of these signals raise Interrupted, so that everything is cleaned up; later ones do nothing.

    The clean-up ends by itself in seconds; cut short, it would leave processes behind.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    # Ignored below `nohup`.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupted)


def _interrupted(number: int, _frame: object) -> None:
    if not ASKED.is_set():
        ASKED.set()
        raise Interrupted(128 + number)


@contextmanager
def alone(directory: Path) -> Generator[None]:
    """Hold the folder for this process. Raises ConfigError if another demo has it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"`make demo` or `make dev` is at work in {directory}", hint="end it, or set another CALVE_DEMO_DIR"
            ) from None
        yield


@contextmanager
def running_broker(directory: Path) -> Generator[str]:
    """The broker's address, also in the environment. It is stopped afterwards unless it ran before.

    Raises ConfigError and Unreachable as `broker.start` does.
    """
    found = broker.status(directory)
    try:
        bootstrap = broker.start(directory, heap_mb=512).bootstrap
        os.environ |= {"CALVE_DEMO_DIR": str(directory.parent), "CALVE_DEMO_BOOTSTRAP": bootstrap}
        yield bootstrap
    finally:
        if not found:
            broker.stop(directory, timeout=BROKER_ENDS_WITHIN_S)


@contextmanager
def opened_instance(home: Path) -> Generator[DagsterInstance]:
    """The Dagster instance of `home` with the shipped dagster.yaml, also for child processes. No run outlives it."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "deploy" / "dagster.yaml", home)
    os.environ["DAGSTER_HOME"] = str(home)
    with DagsterInstance.get() as instance:
        try:
            yield instance
        finally:
            close_runs(instance)


def ask_runs_to_end(instance: DagsterInstance) -> None:
    """What they have not published is read again by the next run."""
    for run in runs_under_way(instance):
        if run.status != dg.DagsterRunStatus.CANCELING:
            # It may end meanwhile, and its code server may be gone.
            with suppress(dg.DagsterError):
                instance.run_coordinator.cancel_run(run.run_id)


def stop_runs(instance: DagsterInstance) -> None:
    """Ask all runs to end, also such as begin meanwhile, and wait a little for them."""
    deadline = time.monotonic() + RUNS_END_WITHIN_S
    while runs_under_way(instance) and time.monotonic() < deadline:
        ask_runs_to_end(instance)
        time.sleep(0.1)


def close_runs(instance: DagsterInstance) -> None:
    """Mark runs as canceled whose processes are gone, and free their slots in the pools."""
    for run in runs_under_way(instance):
        instance.report_run_canceled(run)
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def runs_under_way(instance: DagsterInstance) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS)))


def family(pid: int) -> list[psutil.Process]:
    """A process of ours and all that come from it."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def end(processes: Iterable[psutil.Process]) -> None:
    """Wait a little for processes that were told to end, then kill those that are left."""
    left = psutil.wait_procs(list(processes), timeout=PROCESSES_END_WITHIN_S)[1]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=1)
