"""Maintenance jobs, one per task, with their schedules; nothing here is an asset: a table stays the same table."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import dagster as dg

from calve.orchestration.dagster.common.names import job_name, op_name, pool, resource_key, run_tags
from calve.orchestration.dagster.common.opening import Opens
from calve.orchestration.dagster.common.operations.job import P, Work, of_config
from calve.orchestration.dagster.common.parts import StateWatch
from calve.orchestration.dagster.common.schedules import default_status, own_minute, scheduled
from calve.orchestration.dagster.common.signs import in_process
from calve.orchestration.dagster.common.spark import own_resources, start_of
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError
from calve.sink_core.hidden import hushing

if TYPE_CHECKING:
    from calve.sink_core.control.maintenance import LogTask
    from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome

POOL = "maintenance"
"""One pool for all tasks of a pipeline: compaction and orphan removal are never at work together."""

OWN_TIMES = {
    "compact": "* * * *",
    "manifests": "3 * * *",
    "expire": "2 * * *",
    "orphans": "5 * * 0",
    "trim": "4 * * *",
    "keep_alive": "4 * * *",
}
"""When tasks are due unless the file says so, after the minute."""

DESCRIPTIONS = {
    "compact": "Joins small files of the tables of {}.",
    "manifests": "Rewrites the manifests of the tables of {}.",
    "expire": "Expires old snapshots of the tables of {}.",
    "orphans": "Deletes files of the tables of {} that nothing names; gives up batches that are in progress.",
    "trim": "Deletes events of the control topic of {} that nobody needs any more.",
    "keep_alive": "Commits the positions of {} again, so that the broker keeps them.",
}


Told = dg.AssetObservation | dg.Output[None]


class LogTaskConfig(dg.Config):
    """What to narrow a run by."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Maintaining(Generic[P]):
    """The maintenance of a kind: its `tasks`, and what runs one, with the config that a run is given.

    `key` is the asset of a subject that a task looked at, if it is one. Tasks that are `off` have no schedule.
    """

    tasks: Sequence[str]
    opens: Opens[P]
    run: "Callable[[str, Work[P], Any], MaintenanceReport]"
    key: Callable[[P, str], dg.AssetKey | None] = lambda _plane, _subject: None
    config: type[dg.Config] = LogTaskConfig
    off: Sequence[str] = ()


LOG_TASKS: "dict[str, LogTask]" = {"trim": "trim", "keep_alive": "keep_alive"}
"""What every kind has to maintain."""


def of_log(opens: Opens[P]) -> Maintaining[P]:
    """The maintenance of a kind that has no more than its control topic and positions."""
    return Maintaining(tuple(LOG_TASKS), opens, _log_task)


def _log_task(task: str, at: Work[P], config: LogTaskConfig) -> "MaintenanceReport":
    from calve.sink_core.control.maintenance import run_log_task

    return run_log_task(LOG_TASKS[task], at.plane, dry_run=config.dry_run, on_progress=at.say)


def maintenance_jobs(pipeline: Pipeline, maintaining: Maintaining[P]) -> dict[str, dg.JobDefinition]:
    """A job for each task, also for those that aren't scheduled: they can be launched by hand."""
    return {task: _job(pipeline, task, maintaining) for task in maintaining.tasks}


def maintenance_schedules(
    pipeline: Pipeline, jobs: Mapping[str, dg.JobDefinition], watch: StateWatch, *, off: Sequence[str] = ()
) -> list[dg.ScheduleDefinition]:
    """Schedules of the tasks that are not off."""
    settings, minute = pipeline.config.maintenance, own_minute(pipeline)
    times = {task: getattr(settings, task).cron or f"{minute} {OWN_TIMES[task]}" for task in jobs if task not in off}
    return [_schedule(pipeline, task, cron, jobs[task], watch) for task, cron in times.items()]


def _job(pipeline: Pipeline, task: str, maintaining: Maintaining[P]) -> dg.JobDefinition:
    description = DESCRIPTIONS[task].format(pipeline.name)

    def through(context: dg.OpExecutionContext, config: Any) -> Iterator[Told]:
        start = start_of(getattr(context.resources, resource_key(pipeline)))
        with maintaining.opens(context, pipeline, start) as plane:
            report = maintaining.run(task, Work(context, pipeline, plane, start), config)
            for done in report.done:
                context.log.info(f"{done.subject}: {done.did}")
                key = maintaining.key(plane, done.subject)
                if key is not None and not config.dry_run:
                    # Yielded, since what is only logged waits for the next yield, and is lost with a failure.
                    yield dg.AssetObservation(key, metadata=_metadata(done))
            for subject, error in report.failed.items():
                context.log.error(f"{subject}: {error}")
            report.raise_failures()
            yield dg.Output(None, metadata=_output(report.done))

    maintain = dg.op(
        name=op_name(pipeline, task),
        description=description,
        out=dg.Out(dg.Nothing),
        pool=pool(pipeline, POOL),
        required_resource_keys={resource_key(pipeline)},
    )(of_config(through, maintaining.config))

    @dg.job(
        name=job_name(pipeline, task),
        description=description,
        tags={
            **run_tags(pipeline, task),
            "dagster/max_runtime": str(int(pipeline.config.maintenance.max_duration)),
            # Ingestion comes first where runs wait for each other.
            "dagster/priority": "-1",
        },
        resource_defs=own_resources(pipeline),
        executor_def=in_process,
    )
    def job() -> None:
        maintain()

    return job


def _metadata(done: "TaskOutcome") -> dict[str, Any]:
    """Numbers before and after, side by side."""
    names = dict.fromkeys([*done.before, *done.after])
    shown = {
        f"{name.replace('_', ' ')} {when}": numbers[name]
        for name in names
        for when, numbers in (("before", done.before), ("after", done.after))
        if name in numbers
    }
    return {"task": done.task, "did": done.did, **shown}


def _output(done: "list[TaskOutcome]") -> dict[str, Any]:
    """What a run's page shows: a line per subject."""
    if not done:
        return {}
    records = [
        dg.TableRecord({"subject": u.subject, "did": u.did, "before": _line(u.before), "after": _line(u.after)})
        for u in done
    ]
    return {"changed": sum(outcome.changed for outcome in done), "done": dg.MetadataValue.table(records)}


def _line(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in numbers.items())


def _schedule(
    pipeline: Pipeline, task: str, cron: str, job: dg.JobDefinition, watch: StateWatch
) -> dg.ScheduleDefinition:
    """A paused pipeline is left alone, but its positions must not be forgotten."""

    @dg.schedule(
        name=f"{job_name(pipeline, task)}_schedule",
        job=job,
        cron_schedule=cron,
        default_status=default_status(pipeline),
        description=DESCRIPTIONS[task].format(pipeline.name),
    )
    @hushing()
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            state = watch.state()
        except CalveError as error:
            return dg.SkipReason(str(error))
        if state is None:
            return dg.SkipReason(f"pipeline {pipeline.name} has not run yet")
        if state.paused is not None and task != "keep_alive":
            return dg.SkipReason(str(state.paused))
        return scheduled(context.instance, pipeline, task)

    return schedule
