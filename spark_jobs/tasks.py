"""Tasks on a Spark session, classic (`local[*]`, standalone, YARN, Kubernetes), warm or Connect."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import pyarrow as pa

from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import CalveError, ProtocolError, RetriableError
from calve.sink_core.tasks import Job, Size, Task, WrittenBy
from calve.spark_jobs.attached import Surroundings
from calve.spark_jobs.compat import detach, gateway, worker_died
from calve.spark_jobs.session import Started, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class Outcome(NamedTuple):
    """What has become of a task: its result or error, pickled, and the time that it took."""

    task: int
    failed: bool
    result: bytes
    millis: int


_RESULT = "task long, failed boolean, result binary, millis long"
_ARROW_RESULT = pa.schema(
    [("task", pa.int64()), ("failed", pa.bool_()), ("result", pa.binary()), ("millis", pa.int64())]
)


_UNNAMED = Job("calve", "", "calve")
"""Of work that no batch has asked for. A thread keeps its last name."""


class SparkTasks:
    """Runs tasks on Spark, which starts with the first use and ends with `stop`, or the end of a `with`.

    `begin` starts it in another way than the settings say.
    """

    def __init__(self, settings: SparkSettings, *, begin: Callable[[], Started] | None = None) -> None:
        self._settings = settings
        self._begin = begin or partial(start, settings)
        self._started: Started | None = None
        self._start: _Start | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, task: Task[T], n: int, *, records: int = 0, job: Job | None = None) -> list[T]:  # noqa: ARG002 - as all engines
        """`[task(0), …, task(n - 1)]`, each computed by a Spark task, whatever the number of records.

        Raises the CalveError that a task raised (that of the lowest number), ProtocolError if results are missing,
        RetriableError if the driver is lost, and Spark's own exception, after Spark's retries, for anything else. A
        warm Spark that is lost is replaced once.
        """
        if n == 0:
            return []
        outcomes = self.on_spark(partial(self._outcomes, task, n), job)
        results = {outcome.task: outcome for outcome in outcomes}
        if len(outcomes) != n or len(results) != n:
            raise ProtocolError(
                f"Spark returned {len(outcomes)} results for {n} tasks", hint="see Spark's log", code=Code.SPARK_LOST
            )
        ordered = [results[i] for i in range(n)]
        for outcome in ordered:
            if outcome.failed:
                raise cast(CalveError, pickle.loads(outcome.result))  # noqa: S301 - written by our own task
        done = [pickle.loads(outcome.result) for outcome in ordered]  # noqa: S301 - written by our own task
        if job is not None:
            self._measure(done, ordered, job)
        return done

    def _measure(self, results: Sequence[object], outcomes: Sequence[Outcome], job: Job) -> None:
        """Note records, bytes and time of each task as metrics of the driver. Connect's is another's process."""
        started = self._spark
        if started.context is None:
            return
        # Metrics are no reason to lose what was written.
        with suppress(Exception):
            metrics = started.metrics
            for result, outcome in zip(results, outcomes, strict=True):
                size = getattr(result, "size", None)
                if isinstance(size, Size):
                    for unit, number in (("records", size.records), ("bytes", size.bytes)):
                        metrics.counter(f"{job.pipeline}.{unit}").inc(number)
                        metrics.histogram(f"{job.pipeline}.task.{unit}").update(number)
                    metrics.histogram(f"{job.pipeline}.task.millis").update(outcome.millis)

    def on_spark(self, work: Callable[[Started], T], job: Job | None = None, *, again: bool = True) -> T:
        """What `work` makes of the running Spark. If that was a warm one and is lost, it is done once more on the next,
        as Spark does it with a task whose executor is lost, unless it may not be done `again`. Raises RetriableError if
        the driver is lost.
        """
        try:
            return self._named(work, job)
        except CalveError:
            raise
        except Exception as error:
            if worker_died(error):
                raise RetriableError(
                    "a Python process of Spark's died in the middle of a task, as many times as Spark tries it",
                    hint="see Spark's log; where memory is scarce set batch.max_bytes, or fewer `tasks` under `spark`",
                    code=Code.SPARK_LOST,
                ) from error
            if not self._is_lost():
                raise
            was_warm = self._forget()
            if not (was_warm and again):
                raise RetriableError(
                    f"Spark's driver ended: {type(error).__name__}",
                    hint="run again; `spark.driver_memory` is its heap",
                    code=Code.SPARK_LOST,
                ) from error
        return self._named(work, job)

    def _named(self, work: Callable[[Started], T], job: Job | None) -> T:
        started = self._spark
        with _job(started, job):
            return work(started)

    def _outcomes(self, task: Task[object], n: int, started: Started) -> list[Outcome]:
        """Of a classic session not by its SQL, whose planning takes a second of a first job, and half the CPU of later
        ones that have little to do.
        """
        if started.context is None:
            rows = started.session.range(0, n, 1, n).mapInArrow(_each(task), _RESULT).collect()
            return [Outcome(row["task"], row["failed"], bytes(row["result"]), row["millis"]) for row in rows]
        from pyspark import cloudpickle

        each = partial(_outcome, task)
        if started.place is not None and started.is_local:
            each = partial(_outcome_here, Surroundings.here(), cloudpickle.dumps(task))
        return started.numbers(n).map(each).collect()

    def parallelism(self, records: int = 0) -> int:  # noqa: ARG002 - as all engines
        """Tasks that run at the same time: the setting `tasks`, else a local master's cores, else what Spark reports.

        A local master is not asked: a run with nothing to read should not pay for Spark's start.
        """
        return self._settings.tasks or _local_cores(self._settings.master or "") or self._reported_parallelism

    def written_by(self, n: int, *, records: int = 0) -> WrittenBy:  # noqa: ARG002 - as all engines
        """The Spark that ran them."""
        return self._spark.written_by(n)

    @property
    def session(self) -> SparkSession:
        """The session, started if need be. Raises ConfigError or Unreachable if it can't be had."""
        return self._spark.session

    @property
    def is_up(self) -> bool:
        """Whether the session has started."""
        return self._started is not None

    def begin_start(self, records: int = 0) -> bool:  # noqa: ARG002 - as all engines
        """Start Spark in the background, so that the first task finds it up; True unless it is up."""
        if not self.is_up and self._start is None:
            self._start = _Start(self._begin)
        return not self.is_up

    def stop(self) -> None:
        """End the session; one that was there before us goes on."""
        pending, self._start = self._start, None
        if pending is not None:
            # That it could not start nobody needs to know who had nothing for it to do.
            with suppress(Exception):
                self._started = pending.result()
        if self._started is not None:
            self._started.stop()
            self._started = None

    @property
    def _spark(self) -> Started:
        """As `session`, and without one where none is needed."""
        if self._started is None:
            # Also where it is waited for at once: an interrupt would leave a JVM behind that starts for nobody.
            self._start = self._start or _Start(self._begin)
            self._start.wait()
            pending, self._start = self._start, None
            self._started = pending.result()
        return self._started

    def _is_lost(self) -> bool:
        """Whether the driver has ended, as far as this process can know."""
        started = self._started
        if started is None or started.context is None:
            return False
        if started.place is not None:
            return started.place.is_lost()
        way: Any = gateway()
        return way is not None and getattr(way, "proc", None) is not None and way.proc.poll() is not None

    def _forget(self) -> bool:
        """Let go of a driver that has ended; whether it was a warm one, which can be had again."""
        started, self._started = self._started, None
        assert started is not None
        if started.place is None:
            return False
        assert started.context is not None
        detach(started.context)
        started.place.leave()
        return True

    @cached_property
    def _reported_parallelism(self) -> int:
        from pyspark.sql import functions

        if (context := self._spark.context) is not None:
            return context.defaultParallelism
        # A range that names no number of partitions gets the default one.
        numbers = self.session.range(1_000_000).select(functions.spark_partition_id().alias("number"))
        return 1 + int(numbers.agg(functions.max("number")).collect()[0][0])


class _Start:
    """Spark's start in a thread of its own."""

    def __init__(self, begin: Callable[[], Started]) -> None:
        self._begin = begin
        self._started: Started | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="calve-spark-start", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._started = self._begin()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error

    def wait(self) -> None:
        """Wait for its end, whatever that is."""
        self._thread.join()

    def result(self) -> Started:
        """The Spark, waited for. Raises what its start raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        assert self._started is not None
        return self._started


@contextmanager
def _job(started: Started, job: Job | None) -> Generator[None]:
    """Name what Spark runs in this `with`, and cancel it if that ends by an interrupt or an error."""
    if started.context is None:
        # Connect ends what a session runs with the session, and shows a tag.
        yield
        return
    started.name_jobs(job or _UNNAMED)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            started.cancel_jobs()
        raise


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
                outcome = _outcome(task, int(cast(Any, each)))
                yield pa.RecordBatch.from_pylist([outcome._asdict()], schema=_ARROW_RESULT)

    return run


def _outcome_here(surroundings: Surroundings, task: bytes, number: int) -> Outcome:
    """As `_outcome`, in a process like that of the run: only there can the task be told from its bytes."""
    surroundings.enter()
    return _outcome(pickle.loads(task), number)  # noqa: S301 - written by our own run


def _outcome(task: Task[object], number: int) -> Outcome:
    """Our errors travel as results: Spark would retry them, and hand on no more than a traceback's text."""
    begin = perf_counter()
    try:
        failed, result = False, pickle.dumps(task(number))
    except CalveError as error:
        failed, result = True, pickle.dumps(error)
    return Outcome(number, failed, result, round((perf_counter() - begin) * 1000))
