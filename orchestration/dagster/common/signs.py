"""A run's signs of life: what it leaves in Dagster's storage as long as its process lives, and what ends a process that
outlives its run.

One value of Dagster's key-value storage for each pipeline has the last sign of each of its runs. Tags of a run would be
written whole each time, over what others tag it with meanwhile; events would stay for as long as the run does. Two runs
that write the value at once leave one sign out, which comes again with the next: a run is taken for dead that missed
four in a row (`common/dead.py`).

A thread gives the signs: in runs of Calve's own jobs as long as their process executes them, also while a step waits
for a pool; in others, such as those of "Materialize", during Calve's steps alone, which a tag of the run says. It looks
at the run's status as well. A process may sleep for minutes, as with its machine, and wake up when its run was ended
and replaced: it then interrupts itself, as Dagster does to cancel a run. Nothing rests on how soon that is, since the
protocol fences whoever comes late. A library's call that takes no interrupt would keep the process alive; what a run
leaves at any point is what one that was killed there leaves, so it is ended hard.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from dagster import DagsterInstance
from pydantic import TypeAdapter

from calve.orchestration.compat import InProcessExecutor
from calve.orchestration.dagster.common.names import PIPELINE_TAG, STAGE_TAG, STEP_TAG

if TYPE_CHECKING:
    from calve.orchestration.compat import ExecutionPlan, PlanOrchestrationContext

EVERY_S = 10.0

INTERRUPTED_AFTER = 1
"""Signs that a process waits whose run is to be cancelled: the code server that started it tells it, if that lives."""

EXIT_AFTER = 3
"""Signs after its interrupt at which a process is ended hard."""

_MOST = 100
"""Runs whose signs are kept; those that live come back with their next one."""

_VALUE = TypeAdapter(dict[str, str])


def signs(instance: DagsterInstance, pipeline: str) -> Mapping[str, str]:
    """The last sign of each run by its id. Two signs are compared for being the same, and for nothing else."""
    key = _key(pipeline)
    try:
        return _VALUE.validate_json(instance.daemon_cursor_storage.get_cursor_values({key}).get(key, "{}"))
    except ValueError:
        return {}


def give(instance: DagsterInstance, pipeline: str, run_id: str) -> None:
    others = {other: sign for other, sign in signs(instance, pipeline).items() if other != run_id}
    kept = dict([*others.items()][1 - _MOST :])
    # By this host's clock, for people: no other clock is compared with it.
    kept[run_id] = str(time.time_ns())
    instance.daemon_cursor_storage.set_cursor_values({_key(pipeline): _VALUE.dump_json(kept).decode()})


def _key(pipeline: str) -> str:
    return f"calve/signs/{pipeline}"


@contextmanager
def alive(instance: DagsterInstance, run: dg.DagsterRun, pipeline: str) -> Generator[None]:
    """The run gives signs of life meanwhile."""
    signing, enough = _Signing(instance, run, pipeline), threading.Event()
    # A step that is not in the main thread can't be interrupted.
    main = threading.current_thread() is threading.main_thread()
    thread = threading.Thread(target=signing.until, args=(enough, main), name="calve-signs", daemon=True)
    signing.sign()
    thread.start()
    _ALIVE.add(run.run_id)
    try:
        yield
    finally:
        _ALIVE.discard(run.run_id)
        enough.set()
        thread.join(timeout=1)


@contextmanager
def alive_in_step(instance: DagsterInstance, run: dg.DagsterRun, pipeline: str) -> Generator[None]:
    """The same in a step of a run that gives none by itself. A tag says so: what its other steps do is not known."""
    if run.run_id in _ALIVE:
        yield
        return
    with alive(instance, run, pipeline):
        instance.add_run_tags(run.run_id, {STEP_TAG: pipeline})
        try:
            yield
        finally:
            with suppress(Exception):
                instance.add_run_tags(run.run_id, {STEP_TAG: ""})


_ALIVE: set[str] = set()


class _Signing:
    def __init__(self, instance: DagsterInstance, run: dg.DagsterRun, pipeline: str) -> None:
        self._instance, self._run, self._pipeline = instance, run, pipeline
        self._over = 0
        """Signs since the run was first seen to be over, or to be cancelled."""

    def until(self, enough: threading.Event, main: bool) -> None:
        while not enough.wait(EVERY_S):
            status = self.sign()
            if main and not enough.is_set():
                self._end_if_over(status)

    def sign(self) -> dg.DagsterRunStatus | None:
        """The run's status, None where the storage can't be reached: the run doesn't rest on it."""
        with suppress(Exception):
            give(self._instance, self._pipeline, self._run.run_id)
            run = self._instance.get_run_by_id(self._run.run_id)
            return run.status if run else dg.DagsterRunStatus.CANCELED
        return None

    def _end_if_over(self, status: dg.DagsterRunStatus | None) -> None:
        act = action(status, self._over)
        if act is not None:
            self._over += 1
        if act == "interrupt":
            self._say()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        elif act == "exit":
            if status == dg.DagsterRunStatus.CANCELING:
                with suppress(Exception):
                    self._instance.report_run_canceled(self._run, "The run didn't end when it was told to: killed.")
            os.kill(os.getpid(), signal.SIGKILL)

    def _say(self) -> None:
        """In the run's own log: who has its place now."""
        with suppress(Exception):
            newer = replaced_by(self._instance, self._run)
            by = f"run {newer.run_id} has taken its place" if newer else "the next run takes its place"
            self._instance.report_engine_event(
                f"This run was ended while its process lived on; {by}. The process ends here: what it has published "
                "stays, what it has not is read again.",
                self._run,
            )


def action(status: dg.DagsterRunStatus | None, seen: int) -> Literal["wait", "interrupt", "exit"] | None:
    """What a process does whose run has `status`, which was over or to be cancelled at `seen` signs before. Pure."""
    if status in _OVER:
        interrupted_at = 0
    elif status == dg.DagsterRunStatus.CANCELING:
        interrupted_at = INTERRUPTED_AFTER
    else:
        return None
    if seen == interrupted_at:
        return "interrupt"
    return "exit" if seen >= interrupted_at + EXIT_AFTER else "wait"


def replaced_by(instance: DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun | None:
    """The newest run of the same pipeline and stage, if it isn't this one."""
    tags = {name: run.tags[name] for name in (PIPELINE_TAG, STAGE_TAG) if name in run.tags}
    newest = instance.get_runs(dg.RunsFilter(tags=tags), limit=1) if tags else []
    return newest[0] if newest and newest[0].run_id != run.run_id else None


_OVER = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


class _Executor(InProcessExecutor):
    """Gives signs of life, also before the first step and between two."""

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        run = plan_context.dagster_run
        with alive(plan_context.instance, run, run.tags.get(PIPELINE_TAG, "")):
            yield from super().execute(plan_context, execution_plan)


_CONFIG: Any = dg.in_process_executor.config_schema


@dg.executor(name=dg.in_process_executor.name, config_schema=_CONFIG)
def in_process(init_context: dg.InitExecutorContext) -> dg.Executor:
    """Of all of Calve's jobs: a process for each step costs more than the steps do."""
    create: Any = dg.in_process_executor.executor_creation_fn
    plain: InProcessExecutor = create(init_context)
    return _Executor(plain.retries, plain.step_dependency_config)
