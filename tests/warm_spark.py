"""One warm Spark for all runs of the suite, shared by every worker.

Whoever needs it first starts it; the last process of the suite ends it. Each task on it is forked anew, so that no test
finds what another has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.locks import exclusive
from calve.spark_jobs import warm
from tests.support import is_worker, shared_directory


@dataclass(frozen=True)
class WarmSpark:
    """The Spark of `folder`, which starts when its settings are asked for."""

    folder: Path

    @cached_property
    def settings(self) -> dict[str, Any]:
        """A pipeline's `spark`."""
        settings = {"master": "local[2]", "driver_memory": "1GiB", "warm": str(self.folder)}
        with exclusive(self.folder.with_suffix(".lock")):
            warm.start(self.folder, SparkSettings.model_validate(settings))
        return settings


@pytest.fixture(scope="session")
def warm_spark(request: pytest.FixtureRequest) -> WarmSpark:
    """A Spark that is up already, for pipelines of tests that run `calve` as a process."""
    return WarmSpark(_folder(request.config))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whoever started the workers ends it, when they are done."""
    if not is_worker(session.config):
        warm.stop(_folder(session.config))


def _folder(config: pytest.Config) -> Path:
    return shared_directory(config) / "warm-spark"
