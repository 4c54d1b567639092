"""A run on a warm Spark: its registration there, and what its tasks find in their processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calve.sink_core.detached import Detached, process_of
from calve.sink_core.timing import Deadline
from calve.spark_jobs import warm

POLL_S = 0.05
ENDING_S = 5.0
"""So long a Spark that is ending may take, once a call to it has failed."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A run's place on a warm Spark: `tag` is on each of its jobs."""

    spark: warm.WarmSpark
    tag: str

    @classmethod
    def to(cls, spark: warm.WarmSpark) -> Attached:
        """Register this process, so that the keeper cancels what it leaves."""
        warm.touch(spark.folder)
        tag = own_tag()
        (warm.runs_in(spark.folder) / tag).touch()
        return cls(spark, tag)

    def leave(self) -> None:
        """Take the registration back."""
        (warm.runs_in(self.spark.folder) / self.tag).unlink(missing_ok=True)
        warm.touch(self.spark.folder)

    def is_lost(self) -> bool:
        """Whether the Spark has ended; one that is ending is waited for."""
        deadline = Deadline.after(ENDING_S)
        while self.spark.is_alive() and warm.state_file(self.spark.folder).is_file():
            if deadline.passed:
                return False
            time.sleep(POLL_S)
        return True


def own_tag() -> str:
    """The tag of this process's jobs."""
    process = process_of(os.getpid())
    return f"calve-{process.pid}-{process.created:.2f}"


def is_gone(tag: str) -> bool:
    """Whether the run of a tag has ended, orderly or not."""
    _, pid, created = tag.split("-")
    return Detached(int(pid), float(created), 0).process() is None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a task finds in the process of its run: the working directory, the module path and the environment."""

    folder: str
    path: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def here(cls) -> Surroundings:
        return cls(str(Path.cwd()), tuple(sys.path), dict(os.environ))

    def enter(self) -> None:
        """Make this process, which has no other task, like that of the run."""
        os.chdir(self.folder)
        sys.path[:] = [*dict.fromkeys([*self.path, *sys.path])]
        for name in os.environ.keys() - self.environment.keys():
            if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON")):
                del os.environ[name]
        os.environ.update(self.environment)
