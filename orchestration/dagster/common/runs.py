"""What the instance knows of a pipeline's runs, and what a run says about its own failure: tags, both ways."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import dagster as dg
from dagster import DagsterInstance

from calve.orchestration.dagster.common.names import (
    ALONE_TAG,
    ANSWER_TAG,
    CONFIG_TAG,
    ERROR_TAG,
    HELD_TAG,
    PAUSED_TAG,
    PIPELINE_TAG,
    REMEDY_TAG,
    RESOLVE,
    RESUME,
    STAGE_TAG,
    TERMINAL_TAG,
    WHY_TAG,
    job_name,
)
from calve.orchestration.dagster.common.signs import alive_in_step
from calve.orchestration.dagster.common.trigger import LastRuns
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.hidden import hushing
from calve.sink_core.timing import LONG_STEP

if TYPE_CHECKING:
    from calve.sink_core.control.events import Paused
    from calve.sink_core.control.plane import AnyPlane

Context = dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext

IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
_LOOKED_BACK = 12
_TAG_LENGTH = 400
"""Postgres indexes tags with their values, which therefore stay short."""
UNEXPLAINED = "unexplained"
"""The kind of a failure without an error of Calve's: most often a worker that died."""

_SENSOR_TAG = "dagster/sensor_name"
_DEPLOYED = (
    "the process was told to end, as by a deploy: what is published stays, what is not is read again by the next run, "
    "which the sensor starts"
)
_STARTED_AGAIN = "the process was told to end, as by a deploy: what it has done stays, Dagster starts the run again"

_NOTHING_SAID = {
    ERROR_TAG: UNEXPLAINED,
    TERMINAL_TAG: "false",
    WHY_TAG: "the run ended without a word",
    REMEDY_TAG: "",
}


def last_runs(instance: DagsterInstance, pipeline: Pipeline, stage: str) -> LastRuns:
    """The pipeline's runs of the stage that the sensor starts, newest first, as far as it needs them."""
    if current := in_progress(instance, pipeline, stage):
        return LastRuns(in_flight=current.dagster_run.run_id, in_flight_s=current.create_timestamp.timestamp())
    tags = {PIPELINE_TAG: pipeline.name, STAGE_TAG: stage}
    return _failures(instance.get_run_records(dg.RunsFilter(tags=tags, statuses=ENDED), limit=_LOOKED_BACK))


def in_progress(instance: DagsterInstance, pipeline: Pipeline, stage: str) -> dg.RunRecord | None:
    """The newest run of the stage that waits or is at work; None if there is none."""
    tags = {PIPELINE_TAG: pipeline.name, STAGE_TAG: stage}
    return next(iter(instance.get_run_records(dg.RunsFilter(tags=tags, statuses=IN_PROGRESS), limit=1)), None)


def _failures(ended: Sequence[dg.RunRecord]) -> LastRuns:
    failed: list[dg.RunRecord] = []
    for record in ended:
        # Failures of single tables say nothing of how often whole runs failed, nor the other way round.
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE or _alone(record) != _alone(ended[0]):
            break
        failed.append(record)
    if not failed:
        return LastRuns()
    run, end_s = failed[0].dagster_run, failed[0].end_time or failed[0].update_timestamp.timestamp()
    return LastRuns(
        failures=len(failed),
        failed_s=end_s,
        terminal=run.tags.get(TERMINAL_TAG) == "true",
        why=run.tags.get(WHY_TAG, f"see run {run.run_id[:8]}"),
        remedy=run.tags.get(REMEDY_TAG, ""),
        config=run.tags.get(CONFIG_TAG, ""),
        alone=_alone(failed[0]),
        answer=run.tags.get(ANSWER_TAG, ""),
        held=frozenset(filter(None, run.tags.get(HELD_TAG, "").split(" "))),
    )


def _alone(record: dg.RunRecord) -> bool:
    return bool(record.dagster_run.tags.get(ALONE_TAG))


def made_by(run: dg.DagsterRun) -> str:
    """Who does it, as events and snapshots say: the run, which says who launched it."""
    return f"dagster run {run.run_id}"


@contextmanager
def answer_known(context: Context, plane: AnyPlane) -> Generator[None]:
    """Tag a run that fails with the answer that it knew at its start, unless the sensor has done so: a later one starts
    the next run, that one does not.
    """
    try:
        yield
    except CalveError:
        if ANSWER_TAG not in context.run.tags and plane.answer is not None:
            context.instance.add_run_tags(context.run.run_id, {ANSWER_TAG: plane.answer})
        raise


@contextmanager
def failures_told(instance: DagsterInstance, run: dg.DagsterRun, pipeline: Pipeline) -> Generator[None]:
    """Raise Calve's errors as Dagster's Failure with the remedy in its metadata, and tag the run with them.

    Retrying the same run helps nobody: the sensor's next tick is the retry, with fresh positions. The run gives signs
    of life meanwhile. One that is told to end is cancelled if the sensor starts the next.
    """
    LONG_STEP.set(dg.get_dagster_logger().info)
    if ERROR_TAG in run.tags:
        # Of the run that this one repeats; should this one be killed, it must not be taken for the other's error.
        instance.add_run_tags(run.run_id, _NOTHING_SAID)
    try:
        with hushing(), alive_in_step(instance, run, pipeline.name):
            yield
    except dg.DagsterExecutionInterruptedError:
        _cancel(instance, run)
        raise
    except CalveError as error:
        instance.add_run_tags(run.run_id, {**error_tags(error), CONFIG_TAG: pipeline.config_fingerprint})
        metadata: dict[str, dg.MetadataValue] = {
            "error": dg.MetadataValue.text(type(error).__name__),
            "code": dg.MetadataValue.text(error.code),
        }
        if error.hint:
            metadata["what to do"] = dg.MetadataValue.text(error.hint)
        if isinstance(error, FindingError):
            metadata |= {
                "finding": dg.MetadataValue.text(error.finding),
                "subject": dg.MetadataValue.text(error.subject),
                "stored": dg.MetadataValue.text(error.stored),
                "found": dg.MetadataValue.text(error.found),
                **_answered_by(run, pipeline),
            }
        raise dg.Failure(str(error), metadata=metadata, allow_retries=False) from error


def _cancel(instance: DagsterInstance, run: dg.DagsterRun) -> None:
    """A process that is told to end by a signal, as by a deploy: nobody has cancelled its run, which Dagster would take
    for a failure. What the sensor has not started Dagster then starts again: nobody else would.
    """
    now = instance.get_run_by_id(run.run_id)
    if now is None or now.status != dg.DagsterRunStatus.STARTED:
        return
    if _SENSOR_TAG in run.tags:
        instance.add_run_tags(run.run_id, {WHY_TAG: _DEPLOYED})
        instance.report_run_canceling(run, _DEPLOYED)
    else:
        instance.add_run_tags(run.run_id, {**_NOTHING_SAID, WHY_TAG: _STARTED_AGAIN})


def _answered_by(run: dg.DagsterRun, pipeline: Pipeline) -> dict[str, dg.MetadataValue]:
    """The job that answers findings; a link where the run says which code location it comes from."""
    name, origin = job_name(pipeline, RESOLVE), run.remote_job_origin
    job = dg.MetadataValue.job(name, origin.location_name) if origin else dg.MetadataValue.text(name)
    return {"answered by": job}


def held_by_pause(context: Context, pipeline: Pipeline, paused: Paused | None) -> bool:
    """Whether the pipeline is paused; then the run says so, by a tag as well."""
    if paused is None:
        return False
    context.log.info(f"{paused}. Nothing is moved until {job_name(pipeline, RESUME)} or `calve resume` ends it")
    context.instance.add_run_tags(context.run.run_id, {PAUSED_TAG: short(str(paused))})
    return True


def error_tags(error: CalveError) -> dict[str, str]:
    """What the sensor and alerts need to know of a failure."""
    kind = error.finding if isinstance(error, FindingError) else type(error).__name__
    alone = {ALONE_TAG: short(", ".join(error.alone))} if error.alone else {}
    return {
        ERROR_TAG: kind,
        TERMINAL_TAG: str(error.waits_for_answer).lower(),
        WHY_TAG: short(error.message),
        REMEDY_TAG: short(error.hint),
        **alone,
        **({HELD_TAG: _as_many_as_fit(error.held)} if error.held else {}),
    }


def _as_many_as_fit(topics: Sequence[str]) -> str:
    """Names of topics in a tag. Those that it has no room for count as any others: runs are started for them."""
    lengths = accumulate(len(topic) + 1 for topic in topics)
    return " ".join(topic for topic, length in zip(topics, lengths, strict=True) if length <= _TAG_LENGTH)


def short(text: str) -> str:
    """One line of a tag's length."""
    line = " ".join(text.split())
    return line if len(line) <= _TAG_LENGTH else f"{line[: _TAG_LENGTH - 1]}…"
