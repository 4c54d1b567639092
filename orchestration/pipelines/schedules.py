"""Schedules: commits apart from ingestion, and the checks."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.pipelines.names import CHECKS, COMMIT, job_name
from calve.orchestration.pipelines.watch import Watch
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError, ConfigError

if TYPE_CHECKING:
    from calve.orchestration.compat import UnresolvedAssetJobDefinition as JobDefinition

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def commit_schedule(pipeline: Pipeline, every_s: float, job: "JobDefinition", watch: Watch) -> dg.ScheduleDefinition:
    """Commits every `commit.every` if something is published and not committed."""

    @dg.schedule(
        name=f"{job_name(pipeline, COMMIT)}_schedule",
        job=job,
        cron_schedule=_cron(pipeline.path, every_s),
        default_status=default_status(pipeline),
        description=f"Takes what {pipeline.name} has published into its tables.",
    )
    def commit(_context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            state = watch.state()
        except CalveError as error:
            return dg.SkipReason(str(error))
        if state is not None and state.paused is not None:
            return dg.SkipReason(str(state.paused))
        tables = state.tables_with_news() if state else []
        return dg.RunRequest() if tables else dg.SkipReason("0 uncommitted batches")

    return commit


def checks_schedule(pipeline: Pipeline, job: "JobDefinition") -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{job_name(pipeline, CHECKS)}_schedule",
        job=job,
        cron_schedule=pipeline.config.dagster.checks or f"{own_minute(pipeline)} * * * *",
        default_status=default_status(pipeline),
        description=f"Proves the ledger of {pipeline.name} and looks at lag, freshness, retention and files.",
    )


def _cron(path: Path, every_s: float) -> str:
    # A part of a second is refused as what it is, not rounded to an interval that nobody asked for.
    seconds = int(every_s) if every_s == int(every_s) else 0
    if seconds and _HOUR_S % seconds == 0 and seconds % _MINUTE_S == 0:
        return f"*/{seconds // _MINUTE_S} * * * *" if seconds < _HOUR_S else "0 * * * *"
    if seconds and _DAY_S % seconds == 0 and seconds % _HOUR_S == 0:
        return f"0 */{seconds // _HOUR_S} * * *" if seconds < _DAY_S else "0 0 * * *"
    raise ConfigError(
        f"{path}: commit.every: no schedule comes every {every_s:g} s",
        hint="set minutes that divide an hour or hours that divide a day, or `batch` to commit with each batch",
    )


def default_status(pipeline: Pipeline) -> dg.DefaultScheduleStatus:
    """Running from the first load on, unless the file says otherwise."""
    automatic = pipeline.config.dagster.automatic
    return dg.DefaultScheduleStatus.RUNNING if automatic else dg.DefaultScheduleStatus.STOPPED


def own_minute(pipeline: Pipeline) -> int:
    """A minute of the hour for each pipeline, so that not all are at work at once."""
    return zlib.crc32(pipeline.name.encode()) % 60
