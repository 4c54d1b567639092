"""The commit op, which owns the tables ("Materialize" on one commits what is published), and its schedule."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.names import job_name, op_name, pool
from calve.orchestration.dagster.common.runs import held_by_pause
from calve.orchestration.dagster.common.schedules import default_status, scheduled
from calve.orchestration.dagster.sink import metadata, specs, table_page
from calve.orchestration.dagster.sink.names import COMMIT, table_key
from calve.orchestration.dagster.sink.session import run_session
from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.hidden import hushing

if TYPE_CHECKING:
    from calve.orchestration.dagster.common.parts import AssetJob
    from calve.sink_core.sink.loop.session import Session

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def commit_of(pipeline: SinkPipeline) -> dg.AssetsDefinition:
    """Materializes the tables that got something; those that stay behind make the run red without holding others up."""

    @dg.multi_asset(
        name=op_name(pipeline, COMMIT), specs=specs.tables(pipeline), pool=pool(pipeline, COMMIT), can_subset=True
    )
    def commit(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any] | dg.AssetMaterialization]:
        with run_session(context, pipeline) as session:
            if not session.read_only():
                context.log.info(f"pipeline {pipeline.name} has not run yet: nothing is published")
                return
            session.bind()
            if held_by_pause(context, pipeline, session.log.state.paused):
                return
            report = session.coordinator().commit(**_selected(pipeline, session, context.selected_asset_keys))
            for landed in report.landed:
                page = table_page.of_table(pipeline, session, landed.table)
                if landed.table not in pipeline.table_names:
                    # Found at run time: Dagster learns of the asset by its first materialization.
                    yield table_page.landed(pipeline, landed, **page)
                    continue
                yield dg.MaterializeResult(
                    asset_key=table_key(pipeline, landed.table),
                    metadata=metadata.of_commit(landed, time.time_ns() // 1_000_000) | page,
                    data_version=dg.DataVersion(str(landed.snapshot_id)),
                )
            letters = pipeline.dead_letter_table
            chosen = table_key(pipeline, letters) in context.selected_asset_keys
            if report.landed and chosen and table_page.is_untold(context, pipeline, letters):
                page = table_page.of_table(pipeline, session, letters)
                yield dg.MaterializeResult(asset_key=table_key(pipeline, letters), metadata=page)
            for table, error in report.failed.items():
                context.log.error(f"{table} stays behind: {error}")
            if not report.landed and not report.failed:
                context.log.info("nothing new: all that is published is in its tables")
            report.raise_failures()

    return commit


def _selected(pipeline: SinkPipeline, session: "Session", keys: Collection[dg.AssetKey]) -> dict[str, Any]:
    """All tables, those found at run time among them, or only those that somebody chose."""
    chosen = [name for name in pipeline.table_names if table_key(pipeline, name) in keys]
    if len(chosen) == len(pipeline.table_names):
        return {"tables": session.pipeline.table_names}
    return {"tables": chosen, "only": True}


def commit_schedule(pipeline: SinkPipeline, every_s: float, job: "AssetJob", watch: SinkWatch) -> dg.ScheduleDefinition:
    """Commits every `commit.every` if something is published and not committed."""

    @dg.schedule(
        name=f"{job_name(pipeline, COMMIT)}_schedule",
        job=job,
        cron_schedule=_cron(pipeline.path, every_s),
        default_status=default_status(pipeline),
        description=f"Takes what {pipeline.name} has published into its tables.",
    )
    @hushing()
    def commit(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            state = watch.state()
        except CalveError as error:
            return dg.SkipReason(str(error))
        if state is not None and state.paused is not None:
            return dg.SkipReason(str(state.paused))
        tables = state.tables_with_news() if state else []
        if not tables:
            return dg.SkipReason("0 uncommitted batches")
        return scheduled(context.instance, pipeline, COMMIT)

    return commit


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
        code=Code.COMMIT_EVERY,
    )
