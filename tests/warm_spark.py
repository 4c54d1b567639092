"""One warm Spark for all runs of the suite: what `calve spark start` starts, shared by every worker.

Whoever needs it first starts it; the last process of the suite ends it. Each run has a session of its own on it, and a
session's Python daemon ends by itself once it is unused, so that no test can take a daemon from another's run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local import spark_server
from calve.sink_core.locks import exclusive
from tests.support import is_worker, shared_directory

ROOT = Path(__file__).parents[1]
CONF = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.python.daemon.module": "tests.spark_daemon"}
START_S = 300.0


@dataclass(frozen=True)
class WarmSpark:
    """The server of `directory`, which starts when its address is asked for."""

    directory: Path

    @cached_property
    def remote(self) -> str:
        """For `remote` of a pipeline's `spark`."""
        with exclusive(self.directory.with_suffix(".lock")):
            running = spark_server.status(self.directory)
            return running.remote if running is not None else self._started()

    @property
    def settings(self) -> dict[str, Any]:
        """A pipeline's `spark`."""
        return {"remote": self.remote}

    def _started(self) -> str:
        """By a process of its own: who has been a client of such a server can't have a classic Spark any more."""
        conf = [part for key, value in CONF.items() for part in ("--conf", f"{key}={value}")]
        command = [Path(sys.executable).with_name("calve"), "spark", "start", "--dir", self.directory, *conf, "--json"]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=START_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["remote"])


@pytest.fixture(scope="session")
def warm_spark(request: pytest.FixtureRequest) -> WarmSpark:
    """A Spark that is up already, for pipelines of tests that run `calve` as a process: `{"remote": ….remote}`."""
    return WarmSpark(_directory(request.config))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whoever started the workers ends the server, when they are done."""
    if not is_worker(session.config):
        spark_server.stop(_directory(session.config))


def _directory(config: pytest.Config) -> Path:
    return shared_directory(config) / "warm-spark"
