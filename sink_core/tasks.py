"""Where tasks run, whatever they do: on Spark, or in this process while the work is small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")
Task = Callable[[int], T]
"""Gets the number of the task. It and what it refers to must be picklable, and its result too."""


class Tasks(Protocol):
    """What runs tasks. `records` is the size of the work, by which it may choose where."""

    def parallelism(self, records: int) -> int:
        """Tasks that run at the same time for work of that size."""
        ...

    def run(self, task: Task[T], n: int, *, records: int) -> list[T]:
        """`[task(0), …, task(n - 1)]`. Raises the CalveError that a task raised, that of the lowest number."""
        ...

    def needs_start(self, records: int) -> bool:
        """Whether work of that size waits some seconds until what runs it has started."""
        ...


@dataclass(frozen=True, slots=True)
class InProcessTasks:
    """Tasks one after the other, where the caller is."""

    tasks: int = 1

    def parallelism(self, records: int) -> int:  # noqa: ARG002 - as all
        return self.tasks

    def run(self, task: Task[T], n: int, *, records: int) -> list[T]:  # noqa: ARG002 - as all
        return [task(number) for number in range(n)]

    def needs_start(self, records: int) -> bool:  # noqa: ARG002 - as all
        return False


@dataclass(frozen=True, slots=True)
class TasksBySize:
    """`small` for work of fewer records than `spark_from`, `spark` for the rest."""

    spark: Tasks
    spark_from: int
    small: Tasks = InProcessTasks()

    def parallelism(self, records: int) -> int:
        # A cluster has to be started to be asked.
        return self._of(records).parallelism(records)

    def run(self, task: Task[T], n: int, *, records: int) -> list[T]:
        return self._of(records).run(task, n, records=records)

    def needs_start(self, records: int) -> bool:
        return self._of(records).needs_start(records)

    def _of(self, records: int) -> Tasks:
        return self.small if records < self.spark_from else self.spark
