"""Ends runs that have died: no run says that of itself, and the pipeline's sensors see it by their silence.

A run in progress whose status and sign of life (`common/signs.py`) stay the same is silent. How long, is counted by the
clock of whoever looks, and by no other: from look to look, so that a look that came late, a machine that slept or a
clock that was set counts as no more than `MOST_S`.

A wrong guess costs a run and never a record: the protocol fences who wakes up again. The sensor may die between any two
effects. The next tick finds, before the run's end, its silence in the cursor or, if that wasn't saved, a run that is
silent anew; after it, no run in progress. The slots of its pools Dagster frees as well, a little later. A tick of
the pipeline's other sensor, or of another code server, that ends the same run does it once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus

from calve.orchestration.dagster.common.names import PIPELINE_TAG, STEP_TAG
from calve.orchestration.dagster.common.runs import error_tags
from calve.orchestration.dagster.common.signs import signs
from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError

MOST_S = 15.0
"""What the time between two looks counts for at most; the sensor that starts runs looks every 5 s."""

LIMITS_S = {
    DagsterRunStatus.STARTED: 45.0,
    DagsterRunStatus.CANCELING: 45.0,
    DagsterRunStatus.STARTING: 180.0,
    DagsterRunStatus.NOT_STARTED: 180.0,
}
"""By status. A run that is STARTED misses four signs. One that waits in the queue may do so for ever."""

IMPORTED_S = 90.0
"""For a process of the code server, which has no image to pull, to start a run."""

_BY_CODE_SERVER_TAG = ".dagster/grpc_info"


@dataclass(frozen=True, slots=True)
class Silence:
    """`mark` is what stayed the same for `seconds`."""

    mark: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Silences:
    """Of the runs in progress at the last look, which was at `at_s` of the looking host's clock."""

    at_s: float = 0.0
    of: Mapping[str, Silence] = field(default_factory=dict[str, Silence])

    def after(self, marks: Mapping[str, str], now_s: float) -> Silences:
        """What the next look makes of them; a run that is not in progress any more is forgotten."""
        passed_s = min(MOST_S, max(0.0, now_s - self.at_s))
        silent = dict[str, Silence]()
        for run_id, mark in marks.items():
            before = self.of.get(run_id)
            stays = before is not None and before.mark == mark
            silent[run_id] = Silence(mark, before.seconds + passed_s) if before and stays else Silence(mark)
        return Silences(now_s, silent)


def limit_s(status: DagsterRunStatus, *, by_code_server: bool) -> float:
    """How long a run may be silent. Its process is one of the code server's with Dagster's default launcher."""
    return min(LIMITS_S[status], IMPORTED_S) if by_code_server else LIMITS_S[status]


@dataclass(frozen=True, slots=True)
class Looked:
    """`silences` are for the next look, `ended` has a line for each run that this one ended."""

    silences: Silences
    ended: list[str]


def end_the_dead(instance: DagsterInstance, pipeline: str, before: Silences, now_s: float) -> Looked:
    """Ends runs of the pipeline that have died; `before` is of the last look."""
    runs = {run.run_id: run for run in _in_progress(instance, pipeline)}
    if not runs:
        return Looked(Silences(now_s), [])
    last = signs(instance, pipeline)
    marks = {run_id: f"{run.status.value} {last.get(run_id, '')}" for run_id, run in runs.items()}
    silences = before.after(marks, now_s)
    ended = list[str]()
    for run_id, run in runs.items():
        silent_s = silences.of[run_id].seconds
        if silent_s >= limit_s(run.status, by_code_server=_BY_CODE_SERVER_TAG in run.tags):
            ended += _end(instance, run, silent_s)
    return Looked(silences, ended)


def _in_progress(instance: DagsterInstance, pipeline: str) -> list[dg.DagsterRun]:
    """Runs of the pipeline's jobs, and others that are in one of its steps."""
    # By the index of statuses: in progress are few, and of a pipeline's tag there are all runs of weeks.
    runs = instance.get_runs(dg.RunsFilter(statuses=[*LIMITS_S]))
    return [run for run in runs if pipeline in (run.tags.get(PIPELINE_TAG), run.tags.get(STEP_TAG))]


def _end(instance: DagsterInstance, run: dg.DagsterRun, silent_s: float) -> list[str]:
    now = instance.get_run_by_id(run.run_id)
    if now is None or now.status != run.status:
        return []
    error = RetriableError(
        f"run {run.run_id[:8]}, which is {run.status.value}, gave no sign of life for {silent_s:.0f} s",
        hint="nothing is to be done: the next run goes on where it ended",
        code=Code.RUN_DIED,
    )
    if run.status == dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, f"{error}\n{Code.RUN_DIED.explanation.meaning}")
    else:
        # First: once the run has failed, alerts and the sensor look at them.
        instance.add_run_tags(run.run_id, error_tags(error))
        instance.report_run_failed(run, f"{error}\n{Code.RUN_DIED.explanation.meaning}")
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [f"ended: {error.message}"]
