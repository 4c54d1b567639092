"""Where tasks run, whatever they do: on Spark, or in this process while the work is small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol, TypeVar

from calve.sink_core.errors import RetriableError

T = TypeVar("T")
Task = Callable[[int], T]
"""Gets the number of the task. It and what it refers to must be picklable, and its result too."""

SPARK, IN_PROCESS = "spark", "in-process"


class WorkerDied(RetriableError):
    """A process that runs tasks ended in the middle of one."""


@dataclass(frozen=True, slots=True)
class Job:
    """The name of work: the pipeline's group, the batch, and a line for people, which Spark's UI shows."""

    pipeline: str
    batch_id: str
    description: str

    @property
    def group(self) -> str:
        """Spark's job group."""
        return f"{self.pipeline} {self.batch_id}"


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """The engine of a batch, `spark` or `in-process`, and the number of its tasks.

    Of Spark also the application's id, the master and the address of its UI, each "" where it is not known: Spark
    Connect says none of them.
    """

    engine: str
    tasks: int
    application_id: str = ""
    master: str = ""
    ui: str = ""

    @property
    def place(self) -> str:
        """`in-process`, or `spark local-1 on local[*]`."""
        return f"{self.engine} {self.application_id} on {self.master}" if self.application_id else self.engine

    def __str__(self) -> str:
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        return f"{self.place}, {tasks}" + (f", {self.ui}" if self.ui else "")

    def to_map(self) -> dict[str, str]:
        """For an event: what is known, as text."""
        return {name: str(value) for name, value in asdict(self).items() if value != ""}

    @classmethod
    def from_map(cls, known: Mapping[str, str]) -> WrittenBy | None:
        """As an event has it; None for an event of an earlier version, which says nothing."""
        if not known:
            return None
        texts = {name: known.get(name, "") for name in ("engine", "application_id", "master", "ui")}
        return cls(tasks=int(known["tasks"]), **texts)


@dataclass(frozen=True, slots=True)
class Size:
    """Records and bytes that a task has moved."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.records + other.records, self.bytes + other.bytes)


class Tasks(Protocol):
    """Runs tasks. `records` is the size of the work, by which it may choose where."""

    def parallelism(self, records: int) -> int:
        """Tasks that run at the same time for work of that size."""
        ...

    def run(self, task: Task[T], n: int, *, records: int, job: Job | None = None) -> list[T]:
        """`[task(0), …, task(n - 1)]`. Raises the CalveError that a task raised, that of the lowest number."""
        ...

    def written_by(self, n: int, *, records: int) -> WrittenBy:
        """The engine that ran `n` tasks for work of that size."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether no work has to wait for a start."""
        ...

    def begin_start(self, records: int) -> bool:
        """Start in the background what work of that size needs; True if the first task may have to wait for it."""
        ...


@dataclass(frozen=True, slots=True)
class InProcessTasks:
    """Tasks one after the other, where the caller is."""

    tasks: int = 1

    def parallelism(self, records: int) -> int:  # noqa: ARG002 - as all
        return self.tasks

    def run(self, task: Task[T], n: int, *, records: int, job: Job | None = None) -> list[T]:  # noqa: ARG002 - as all
        return [task(number) for number in range(n)]

    def written_by(self, n: int, *, records: int) -> WrittenBy:  # noqa: ARG002 - as all
        return WrittenBy(IN_PROCESS, n)

    @property
    def is_up(self) -> bool:
        return True

    def begin_start(self, records: int) -> bool:  # noqa: ARG002 - as all
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

    def run(self, task: Task[T], n: int, *, records: int, job: Job | None = None) -> list[T]:
        return self._of(records).run(task, n, records=records, job=job)

    def written_by(self, n: int, *, records: int) -> WrittenBy:
        return self._of(records).written_by(n, records=records)

    @property
    def is_up(self) -> bool:
        return self.spark.is_up

    def begin_start(self, records: int) -> bool:
        return self._of(records).begin_start(records)

    def _of(self, records: int) -> Tasks:
        return self.small if records < self.spark_from else self.spark
