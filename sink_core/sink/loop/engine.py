"""Where the tasks of a sink run: on Spark, or in this process while the work is small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from calve.sink_core.iceberg.commit.merge import MergeWork
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import TaskResult, run_task
from calve.sink_core.tasks import InProcessTasks, Tasks, TasksBySize, WrittenBy

Slices = Sequence[OffsetRange]


class Engine(Tasks, Protocol):
    """What runs the tasks of a sink."""

    def write(self, spec: IngestSpec, tasks: Sequence[Slices]) -> list[TaskResult]:
        """Results of `run_task` for each of the tasks, and of those that the rows of distributed tables went to.

        Raises what they raise, and RetriableError if rows that were sent did not arrive once.
        """
        ...

    @property
    def merge(self) -> Callable[[MergeWork], None] | None:
        """Merges changes into a branch of their table, in one snapshot or none; None where that can't be done."""
        ...

    def writer(self, spec: IngestSpec, tasks: Sequence[Slices]) -> WrittenBy:
        """The engine that wrote these tasks."""
        ...


@dataclass(frozen=True, slots=True)
class InProcess(InProcessTasks):
    """Tasks one after the other, where the caller is."""

    def write(self, spec: IngestSpec, tasks: Sequence[Slices]) -> list[TaskResult]:
        if spec.is_distributed:
            # All rows of a table that is spread by key or order come to one task, as through a shuffle to one bucket.
            tasks = joined(tasks)
        return self.run(lambda number: run_task(spec, tasks[number], number), len(tasks), records=0)

    @property
    def merge(self) -> None:
        return None

    def writer(self, spec: IngestSpec, tasks: Sequence[Slices]) -> WrittenBy:  # noqa: ARG002 - as all
        return self.written_by(len(tasks), records=0)


@dataclass(frozen=True, slots=True)
class BySize(TasksBySize):
    """`small` for work of fewer records than `spark_from`, `spark` for the rest.

    Spark also does what only it can: merges, and changes that are held against the rows of their table.
    """

    spark: Engine
    spark_from: int
    small: Engine = InProcess()

    def write(self, spec: IngestSpec, tasks: Sequence[Slices]) -> list[TaskResult]:
        return self._writes(spec, tasks).write(spec, tasks)

    @property
    def merge(self) -> Callable[[MergeWork], None] | None:
        return self.spark.merge

    def writer(self, spec: IngestSpec, tasks: Sequence[Slices]) -> WrittenBy:
        return self._writes(spec, tasks).writer(spec, tasks)

    def _writes(self, spec: IngestSpec, tasks: Sequence[Slices]) -> Engine:
        records = sum(part.span for slices in tasks for part in slices)
        return self.small if records < self.spark_from and not spec.looks_at_tables else self.spark


def joined(tasks: Sequence[Slices]) -> list[list[OffsetRange]]:
    """One task for all slices, in one piece where a partition was cut, and one for each that does not adjoin: a task
    reads a partition once.
    """
    first: dict[TopicPartition, OffsetRange] = {}
    apart: list[list[OffsetRange]] = []
    for part in (part for slices in tasks for part in slices):
        before = first.get(part.at)
        if before is None:
            first[part.at] = part
        elif before.end == part.start:
            first[part.at] = OffsetRange(part.topic, part.partition, before.start, part.end)
        else:
            apart.append([part])
    return [list(first.values()), *apart]
