"""A Dagster deployment of a test's own: the shipped dagster.yaml, a code location of pipelines, real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import psutil
from dagster import DagsterInstance
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from calve.orchestration.dagster.common.checks import evaluation_of
from calve.orchestration.dagster.common.names import PIPELINE_TAG, STAGE_TAG
from calve.sink_core.detached import free_port
from tests.postgres import Postgres

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
T = TypeVar("T")

DEFINITIONS = """
from pathlib import Path

import dagster as dg

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.sink_core.config.load import load

FILES = Path(__file__).with_name("pipelines.txt").read_text().split()
defs = dg.Definitions.merge(*(build_pipeline_defs(load(Path(file))) for file in FILES))
"""

# The code server spawns a process for each run, which loads the location too: as long as the file of the failpoint is
# there, each takes it with it.
DYING = f"""
import multiprocessing, os
from contextlib import suppress
if multiprocessing.parent_process() is not None:
    with suppress(FileNotFoundError):
        os.environ["CALVE_FAILPOINT"] = open("failpoint").read()
{DEFINITIONS}
"""


@dataclass
class Stack:
    """One deployment below `directory`; `files` are the pipeline files, `instance` looks at its storage.

    `settings` are added to the shipped dagster.yaml. `secrets` are variables that only the code server has, and its
    runs.
    """

    directory: Path
    files: Sequence[Path]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    definitions: str = DEFINITIONS
    settings: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        shipped = (ROOT / "deploy" / "dagster.yaml").read_text()
        (self.home / "dagster.yaml").write_text(f"{shipped}\n{self.settings}")
        # Of two processes that both find no storage, and make it, one ends.
        with DagsterInstance.from_config(str(self.home)):
            pass
        (self.directory / "calve_test_defs.py").write_text(self.definitions)
        (self.directory / "pipelines.txt").write_text("\n".join(map(str, self.files)))
        (self.directory / "workspace.yaml").write_text(
            "load_from:\n  - python_module: "
            f"{{module_name: calve_test_defs, working_directory: {self.directory}, location_name: test}}\n"
        )

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @cached_property
    def instance(self) -> DagsterInstance:
        return DagsterInstance.from_config(str(self.home))

    def code_server(self, timeout_s: float = 120.0) -> None:
        """Start a code server that daemon and webserver share, where it was before if it was. Without it the daemon
        starts one anew every minute.
        """
        port = self.code_port
        arguments = ["-m", "calve_test_defs", "-d", str(self.directory), "-h", "127.0.0.1", "-p", str(port)]
        self.start("code-server", "dagster", "code-server", "start", *arguments, environment=self.secrets)
        (self.directory / "workspace.yaml").write_text(
            f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: test}}\n"
        )
        health = [str(BIN / "dagster"), "api", "grpc-health-check", "-p", str(port)]
        until(lambda: subprocess.run(health, capture_output=True).returncode == 0, timeout_s=timeout_s, why=self.logs)

    @cached_property
    def code_port(self) -> int:
        return free_port()

    def daemon(self) -> None:
        """Start the daemon; with a code server of its own unless `code_server` was called."""
        self.start("daemon", "dagster-daemon", "run", "-w", "workspace.yaml")

    def webserver(self) -> str:
        """Start the webserver; its address once it answers."""
        port = free_port()
        self.start("webserver", "dagster-webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port))
        until(lambda: answers(port), timeout_s=120, why=self.logs)
        return f"http://127.0.0.1:{port}"

    def start(self, name: str, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / program), *arguments],
                cwd=self.directory,
                stdout=log,
                stderr=log,
                env={**self.full_environment, **(environment or {})},
                start_new_session=True,
            )

    @property
    def full_environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "DAGSTER_HOME": str(self.home), "PYTHONPATH": str(ROOT)}

    def runs(
        self, pipeline: str, *, stage: str = "ingest", statuses: Iterable[dg.DagsterRunStatus] = ()
    ) -> list[dg.RunRecord]:
        """Of one pipeline, newest first."""
        found = dg.RunsFilter(tags={PIPELINE_TAG: pipeline, STAGE_TAG: stage}, statuses=list(statuses))
        return list(self.instance.get_run_records(found))

    def ticks(self, sensor: str, *, limit: int = 200) -> list[InstigatorTick]:
        """Newest first."""
        states = [s for s in self.instance.all_instigator_state() if s.instigator_name == sensor]
        return [t for s in states for t in self.instance.get_ticks(s.instigator_origin_id, s.selector_id, limit=limit)]

    def last_skip(self, sensor: str) -> str:
        ticks = [t for t in self.ticks(sensor, limit=5) if t.status == TickStatus.SKIPPED]
        return (ticks[0].skip_reason or "") if ticks else ""

    def red(self, *checks: tuple[dg.AssetKey, str]) -> bool:
        """Whether all of these asset checks are."""
        keys = [dg.AssetCheckKey(asset, name) for asset, name in checks]
        found = self.instance.event_log_storage.get_asset_check_summary_records(keys)
        last = [evaluation_of(found[key].last_completed_check_execution_record) for key in keys]
        return all(evaluation is not None and not evaluation.passed for evaluation in last)

    def kill(self, name: str) -> None:
        """A process dies, and what it has started with it."""
        started = self.processes.pop(name)
        for child in psutil.Process(started.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        started.kill()
        started.wait()

    def stop(self) -> None:
        """End every process of the deployment, the runs included."""
        family: list[psutil.Process] = []
        for started in self.processes.values():
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(started.pid)
                family += [parent, *parent.children(recursive=True)]
            with suppress(ProcessLookupError):
                started.send_signal(signal.SIGINT)
        gone, alive = psutil.wait_procs(family, timeout=15)
        del gone
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for started in self.processes.values():
            started.wait()

    def logs(self) -> str:
        """The ends of all logs, for messages."""
        files = sorted(self.directory.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def on_postgres(server: Postgres) -> str:
    """Settings of a stack that keeps its runs and events there."""
    return f"storage: {{postgres: {{postgres_url: '{server.url}'}}}}\n"


def answers(port: int) -> bool:
    """Whether a server of this machine does."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def stack(directory: Path, files: Sequence[Path], **options: Any) -> Generator[Stack]:
    """A deployment that is gone at the end."""
    made = Stack(directory, files, **options)
    try:
        yield made
    finally:
        made.stop()


def until(what: Callable[[], T], *, timeout_s: float, why: Callable[[], str] = lambda: "", poll_s: float = 0.25) -> T:
    """The first true answer of `what`; fails with `why` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := what():
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s\n{why()}"
        time.sleep(poll_s)
