"""`calve spark start`: a Spark that is up already, for runs on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from calve.orchestration.local import spark_server
from calve.orchestration.local.broker import Broker
from calve.sink_core.detached import HOST, free_port
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_STOPPED, EXIT_UNREACHABLE, ConfigError
from tests.pipelines import COLUMNS, Flow
from tests.support import TopicFactory

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
CONF = ["--conf", "spark.master=local[2]", "--conf", "spark.driver.memory=1g"]


@dataclass(frozen=True)
class Shell:
    """Commands as a user types them who has set a token."""

    directory: Path

    def __call__(self, *command: str, exit_code: int = 0, with_token: bool = True) -> Any:
        """What `calve … --json` says."""
        calve = str(Path(sys.executable).with_name("calve"))
        environment = {**os.environ, TOKEN: "of the tests"}
        if not with_token:
            del environment[TOKEN]
        done = subprocess.run(
            [calve, *command, "--json"], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == exit_code, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def spark(self, *command: str, exit_code: int = 0) -> Any:
        verb, *rest = command
        return self("spark", verb, "--dir", str(self.directory), *rest, exit_code=exit_code)


@pytest.fixture(scope="module")
def calve(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("spark") / "größer")


@pytest.fixture(scope="module")
def server(calve: Shell) -> Generator[dict[str, Any]]:
    """As `calve spark start --json` says it."""
    try:
        yield calve.spark("start", *CONF)
    finally:
        spark_server.stop(calve.directory)


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, server: dict[str, Any]) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), spark={"remote": server["remote"]})


def test_runs_share_it_and_merge_on_it(calve: Shell, server: dict[str, Any], flow: Flow) -> None:
    rows = {"name": "db.events", "mode": "upsert", "key": ["id"], "write_mode": "merge"}
    flow = flow.but(extra={"tables": [rows | {"auto_create": {"columns": COLUMNS}}]})
    for first in (0, 500):
        flow.produce(range(first, first + 1000))
        assert calve("run", str(flow.pipeline.path))["ended"] == "caught up"
    assert flow.ids() == list(range(1500))
    assert any("calve.spark_jobs.session_daemon" in command for command in _commands_under(server["pid"]))


def _commands_under(pid: int) -> Generator[list[str]]:
    """Of the children that still run: Spark's daemon may have one that has just ended."""
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            yield child.cmdline()


GIVEN = """
import sys
from calve.sink_core.config.connections import SparkSettings
from calve.spark_jobs.session import start
from calve.spark_jobs.tasks import SparkTasks

given = start(SparkSettings(remote=sys.argv[1]))
tasks = SparkTasks(SparkSettings(master="spark://elsewhere:7077"), session=lambda: given.session)
print(tasks.run(str, 3), tasks.parallelism())
given.stop()
"""


def test_a_session_that_is_given_need_not_be_what_settings_say(server: dict[str, Any]) -> None:
    command = [sys.executable, "-c", GIVEN, server["remote"]]
    environment = {**os.environ, TOKEN: "of the tests"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "['0', '1', '2'] 2\n", done.stderr


def test_a_run_without_the_token_is_refused(calve: Shell, flow: Flow) -> None:
    flow = flow.but(extra={"batch": {"spark_from_records": 1}})
    flow.produce(range(1))
    error = calve("run", str(flow.pipeline.path), with_token=False, exit_code=EXIT_UNREACHABLE)
    assert error["message"].startswith("Spark Connect at ")


def test_a_second_start_finds_the_first(calve: Shell, server: dict[str, Any]) -> None:
    assert calve.spark("status") == calve.spark("start", *CONF) == server
    other = calve.spark("start", "--port", str(free_port()), exit_code=EXIT_BAD_INPUT)
    assert f"already runs on port {server['port']}" in other["message"]
    other = calve.spark("start", "--conf", "spark.master=local[1]", exit_code=EXIT_BAD_INPUT)
    assert other["message"].endswith("already runs with other settings than asked for: spark.master")
    assert f"calve spark stop --dir {calve.directory}" in other["hint"]


def test_only_its_owner_can_read_its_settings(calve: Shell, server: dict[str, Any]) -> None:
    for name in ("spark.properties", "spark.log"):
        assert stat.S_IMODE((calve.directory / name).stat().st_mode) == 0o600
    assert "of the tests" not in " ".join(psutil.Process(server["pid"]).cmdline())


def test_a_killed_one_is_started_again_and_stopped(calve: Shell, server: dict[str, Any]) -> None:
    process = psutil.Process(server["pid"])
    family = process.children(recursive=True)
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process, *family], timeout=30)
    assert calve.spark("status", exit_code=EXIT_STOPPED) == {"running": False}
    again = calve.spark("start", *CONF)
    assert (again["remote"], again["pid"] != server["pid"]) == (server["remote"], True)
    family = [psutil.Process(again["pid"]), *psutil.Process(again["pid"]).children(recursive=True)]
    assert calve.spark("stop") == {"stopped": True}
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert calve.spark("stop") == {"stopped": False}


def test_a_recycled_pid_is_not_taken_for_the_server(tmp_path: Path) -> None:
    (tmp_path / "spark.json").write_text(json.dumps({"pid": os.getpid(), "created": 1.0, "port": 15002}))
    assert spark_server.status(tmp_path) is None
    assert not spark_server.stop(tmp_path)
    assert not spark_server.stop(tmp_path / "nowhere")


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} for the Spark server in .* is taken"):
            spark_server.start(tmp_path, port)


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    calve = Shell(tmp_path)
    error = calve.spark("start", "--conf", "spark.master=nowhere", exit_code=EXIT_UNREACHABLE)
    assert "ended while starting" in error["message"]
    assert "Master must either be" in error["message"]
    error = calve.spark("start", "--conf", "spark.master", exit_code=EXIT_BAD_INPUT)
    assert error["message"] == "--conf spark.master: not KEY=VALUE"
