"""What a task of a sink is on Spark, apart from who hands it out: each worker imports the module that it is in."""

from __future__ import annotations

from collections.abc import Sequence

from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import TaskResult, run_task


def write(spec: IngestSpec, tasks: Sequence[Sequence[OffsetRange]], number: int) -> TaskResult:
    """The result of one of the tasks of a batch."""
    return run_task(spec, tasks[number], number)
