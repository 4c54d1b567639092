"""Deletes old runs: a pipeline makes thousands a day, and Dagster keeps them all.

What `instance.delete_run` does in Dagster 1.13 (tests/integration/test_cleanup.py holds it to that): the run with its
tags and all of its events are gone, materializations and check evaluations among them. The asset's and the check's own
rows keep a copy of the latest, so that their state stays, but the history begins with an older one and the link leads
nowhere: such a run is therefore never deleted. What a run printed stays, and with SQLite its own database file of
140 kB with no event in it; both are removed here.
"""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import dagster as dg
from dagster import DagsterInstance
from pydantic import Field

from calve.orchestration.compat import SqliteEventLogStorage
from calve.orchestration.dagster.common.names import PIPELINE_TAG

OP = "calve_cleanup"
JOB = "calve_cleanup_job"

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_PAGE = 200
_EVENTS_PAGE = 1000
_MOST_S = 3600
_KEPT, _KEPT_TEXT = 50, "Newest ended runs of each job that stay, however old: the sensor and the alerts rest on them."


class CleanupConfig(dg.Config):
    """What goes and what stays."""

    runs_older_than_days: int = Field(default=14, ge=0, description="Younger runs stay.")
    # The last failed run is what holds a stopped pipeline's sensor back.
    keep_last: int = Field(default=_KEPT, ge=1, description=_KEPT_TEXT)
    most_runs: int = Field(default=5000, ge=1, description="Runs deleted at a time; the next time goes on.")


@dataclass(slots=True)
class Deleted:
    """`kept` are old runs that hold an asset's latest materialization or a check's latest evaluation."""

    runs: int = 0
    events: int = 0
    kept: int = 0

    def __str__(self) -> str:
        return f"{self.runs:,} runs with {self.events:,} events deleted"


@dataclass(frozen=True, slots=True)
class _Seen:
    events: int
    checks: frozenset[dg.AssetCheckKey]


@dataclass(slots=True)
class _Latest:
    """Which runs hold the latest of an asset or a check. Asked once each: a newer one only frees an older run."""

    instance: DagsterInstance
    _of_assets: frozenset[str] = field(init=False)
    _of_checks: dict[dg.AssetCheckKey, str | None] = field(
        init=False, default_factory=dict[dg.AssetCheckKey, str | None]
    )

    def __post_init__(self) -> None:
        entries = [record.asset_entry.last_materialization_record for record in self.instance.get_asset_records()]
        self._of_assets = frozenset(entry.run_id for entry in entries if entry is not None)

    def is_in(self, run_id: str, checks: frozenset[dg.AssetCheckKey]) -> bool:
        return run_id in self._of_assets or any(self._evaluated_in(check) == run_id for check in checks)

    def _evaluated_in(self, check: dg.AssetCheckKey) -> str | None:
        if check not in self._of_checks:
            found = self.instance.event_log_storage.get_asset_check_summary_records([check])[check]
            self._of_checks[check] = found.last_completed_run_id
        return self._of_checks[check]


@dg.op(name=OP, out=dg.Out(dagster_type=dg.Nothing), description="Deletes old runs of Calve's pipelines.")
def cleanup(context: dg.OpExecutionContext, config: CleanupConfig) -> None:
    """Reports what it deleted as its output's metadata."""
    before = datetime.now(UTC) - timedelta(days=config.runs_older_than_days)
    done, said = Deleted(), 0
    for _ in delete_runs(context.instance, done, before=before, keep_last=config.keep_last, most=config.most_runs):
        if done.runs > said:
            said = done.runs
            context.log.info(str(done))
    if not done.runs:
        context.log.info(f"nothing to delete: no run from before {before:%Y-%m-%d %H:%M} UTC may go")
    elif done.runs == config.most_runs:
        context.log.info(f"{done}, which is most_runs: the next run goes on")
    context.add_output_metadata({"runs deleted": done.runs, "events deleted": done.events, "old runs kept": done.kept})


def cleanup_job(*, runs_older_than_days: int = 14, keep_last: int = _KEPT, cron: str = "17 4 * * *") -> dg.Definitions:
    """The job `calve_cleanup_job` and its schedule, which runs from the start. `cron` is in UTC.

    It deletes ended runs of Calve's pipelines, of all code locations of the instance: one job does for all.
    """
    given = CleanupConfig(runs_older_than_days=runs_older_than_days, keep_last=keep_last)

    @dg.job(
        name=JOB,
        description="Deletes old runs of Calve's pipelines from Dagster's storage.",
        config=dg.RunConfig(ops={OP: given}),
        tags={"dagster/max_runtime": str(_MOST_S)},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        cleanup()

    schedule = dg.ScheduleDefinition(
        name=f"{JOB}_schedule",
        job=job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])


def delete_runs(
    instance: DagsterInstance, done: Deleted, *, before: datetime, keep_last: int, most: int
) -> Iterator[None]:
    """Delete in pages, oldest first, the ended runs that began before `before`; `done` counts, each step is a page."""
    latest, tags = _Latest(instance), _tags(instance)

    @cache
    def newest(job: str) -> frozenset[str]:
        wanted = dg.RunsFilter(job_name=job, statuses=_ENDED, tags=tags)
        return frozenset(run.run_id for run in instance.get_runs(wanted, limit=keep_last))

    for page in _pages(instance, dg.RunsFilter(statuses=_ENDED, tags=tags, created_before=before)):
        for run in page:
            if done.runs == most:
                return
            if run.run_id not in newest(run.job_name):
                _delete(instance, run.run_id, latest, done)
        yield


def _delete(instance: DagsterInstance, run_id: str, latest: _Latest, done: Deleted) -> None:
    seen = _look(instance, run_id)
    if latest.is_in(run_id, seen.checks):
        done.kept += 1
        return
    # First: if it can't, the run is still there for the next time.
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    _delete_shard(instance, run_id)
    done.runs += 1
    done.events += seen.events


def _delete_shard(instance: DagsterInstance, run_id: str) -> None:
    storage = instance.event_log_storage
    if isinstance(storage, SqliteEventLogStorage):
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{storage.path_for_shard(run_id)}{suffix}").unlink()


def _look(instance: DagsterInstance, run_id: str) -> _Seen:
    """How many events a run has, and which checks it evaluated."""
    events, checks, cursor = 0, set[dg.AssetCheckKey](), None
    while True:
        page = instance.get_records_for_run(run_id, cursor=cursor, limit=_EVENTS_PAGE)
        for record in page.records:
            event = record.event_log_entry.dagster_event
            if event is not None and event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                checks.add(event.asset_check_evaluation_data.asset_check_key)
        events, cursor = events + len(page.records), page.cursor
        if not page.has_more:
            return _Seen(events, frozenset(checks))


def _pages(instance: DagsterInstance, wanted: dg.RunsFilter) -> Iterator[Sequence[dg.DagsterRun]]:
    """Oldest first. Each is fetched before the one ahead of it is deleted: its cursor is a run that must be there."""
    page = instance.run_storage.get_runs(wanted, limit=_PAGE, ascending=True)
    while page:
        following = instance.run_storage.get_runs(wanted, cursor=page[-1].run_id, limit=_PAGE, ascending=True)
        yield page
        page = following


def _tags(instance: DagsterInstance) -> dict[str, str | Sequence[str]]:
    """A filter takes no tag without a value."""
    found = dict(instance.run_storage.get_run_tags([PIPELINE_TAG]))
    return {PIPELINE_TAG: sorted(found.get(PIPELINE_TAG, ()))}
