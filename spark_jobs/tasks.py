"""Tasks on a Spark session, classic (`local[*]`, standalone, YARN, Kubernetes) or Connect."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.error_codes.machine import SPARK_LOST
from calve.sink_core.errors import CalveError, ProtocolError
from calve.sink_core.tasks import Task
from calve.spark_jobs.session import Started, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Outcome = tuple[int, bool, bytes]
"""The number of a task, whether it failed, and its result or error, pickled."""

_RESULT = "task long, failed boolean, result binary"
_ARROW_RESULT = pa.schema([("task", pa.int64()), ("failed", pa.bool_()), ("result", pa.binary())])


class SparkTasks:
    """Runs tasks on Spark. The session starts with the first use and ends with `stop`, or the end of a `with`.

    `session` gives one that somebody else starts and stops.
    """

    def __init__(self, settings: SparkSettings, *, session: Callable[[], SparkSession] | None = None) -> None:
        self._settings = settings
        self._session = session
        self._started: Started | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, task: Task[T], n: int, *, records: int = 0) -> list[T]:  # noqa: ARG002 - as all engines
        """`[task(0), …, task(n - 1)]`, each computed by a Spark task, whatever the number of records.

        Raises the CalveError that a task raised (that of the lowest number), ProtocolError if results are missing, and
        Spark's own exception, after Spark's retries, for anything else.
        """
        if n == 0:
            return []
        outcomes = self._outcomes(task, n)
        results = {number: (failed, result) for number, failed, result in outcomes}
        if len(outcomes) != n or len(results) != n:
            raise ProtocolError(
                f"Spark returned {len(outcomes)} results for {n} tasks", hint="see Spark's log", code=SPARK_LOST
            )
        for i in range(n):
            failed, result = results[i]
            if failed:
                raise cast(CalveError, pickle.loads(result))  # noqa: S301 - written by our own task
        return [pickle.loads(results[i][1]) for i in range(n)]  # noqa: S301 - written by our own task

    def _outcomes(self, task: Task[object], n: int) -> list[Outcome]:
        """Of a classic session not by its SQL, whose planning takes a second of a first job, and half the CPU of later
        ones that have little to do.
        """
        if (context := self._spark.context) is not None:
            return context.parallelize(range(n), n).map(partial(_outcome, task)).collect()
        rows = self.session.range(0, n, 1, n).mapInArrow(_each(task), _RESULT).collect()
        return [(int(row["task"]), bool(row["failed"]), bytes(row["result"])) for row in rows]

    def parallelism(self, records: int = 0) -> int:  # noqa: ARG002 - as all engines
        """Tasks that run at the same time: the setting `tasks`, else a local master's cores, else what Spark reports.

        A local master is not asked: a run with nothing to read should not pay for Spark's start.
        """
        return self._settings.tasks or _local_cores(self._settings.master or "") or self._reported_parallelism

    @property
    def session(self) -> SparkSession:
        """The session, started if need be. Raises ConfigError or Unreachable if it can't be had."""
        return self._spark.session

    def needs_start(self, records: int) -> bool:  # noqa: ARG002 - as all engines
        """Whether the first task has to wait for a session, whatever the number of records."""
        return self._started is None and self._session is None

    def stop(self) -> None:
        """End the session; one that was there before us goes on."""
        if self._started is not None:
            self._started.stop()
            self._started = None

    @property
    def _spark(self) -> Started:
        """As `session`, and without one where none is needed."""
        if self._started is None:
            self._started = Started.given(self._session()) if self._session else start(self._settings)
        return self._started

    @cached_property
    def _reported_parallelism(self) -> int:
        from pyspark.sql import functions

        if (context := self._spark.context) is not None:
            return context.defaultParallelism
        # A range that names no number of partitions gets the default one.
        numbers = self.session.range(1_000_000).select(functions.spark_partition_id().alias("number"))
        return 1 + int(numbers.agg(functions.max("number")).collect()[0][0])


def _local_cores(master: str) -> int | None:
    """Of `local`, `local[4]`, `local[4,2]` and `local[*]`; None for another master."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if match is None:
        return None
    return os.cpu_count() if match[1] == "*" else int(match[1] or 1)


def _each(task: Task[object]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for each in batch.column(0).to_pylist():
                number, failed, result = _outcome(task, int(cast(Any, each)))
                yield pa.RecordBatch.from_pydict(
                    {"task": [number], "failed": [failed], "result": [result]}, schema=_ARROW_RESULT
                )

    return run


def _outcome(task: Task[object], number: int) -> Outcome:
    """Our errors travel as results: Spark would retry them, and hand on no more than a traceback's text."""
    try:
        return number, False, pickle.dumps(task(number))
    except CalveError as error:
        return number, True, pickle.dumps(error)
