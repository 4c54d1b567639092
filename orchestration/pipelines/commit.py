"""The commit op: the owner of the tables. "Materialize" on a table means: take in now what is published."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.pipelines import metadata, specs, table_page
from calve.orchestration.pipelines.names import COMMIT, op_name, pool, table_key
from calve.orchestration.pipelines.runs import held_by_pause, run_session
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.sink_core.sink.session import Session


def commit_of(pipeline: Pipeline) -> dg.AssetsDefinition:
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
            if held_by_pause(context, pipeline, session.log.state):
                return
            report = session.coordinator().commit(**_selected(pipeline, session, context.selected_asset_keys))
            for landed in report.landed:
                table = session.catalog.load_table(landed.table)
                page = table_page.of_table(pipeline, table)
                if landed.table not in pipeline.table_names:
                    # Found at run time: Dagster learns of the asset by its first materialization.
                    yield table_page.landed(pipeline, landed, **page)
                    continue
                yield dg.MaterializeResult(
                    asset_key=table_key(pipeline, landed.table),
                    metadata=metadata.of_commit(landed, time.time_ns() // 1_000_000) | page,
                    data_version=dg.DataVersion(str(landed.snapshot_id)),
                )
            for table, error in report.failed.items():
                context.log.error(f"{table} stays behind: {error}")
            if not report.landed and not report.failed:
                context.log.info("nothing new: all that is published is in its tables")
            report.raise_failures()

    return commit


def _selected(pipeline: Pipeline, session: "Session", keys: Collection[dg.AssetKey]) -> dict[str, Any]:
    """All tables, those found at run time among them, or only those that somebody chose."""
    chosen = [name for name in pipeline.table_names if table_key(pipeline, name) in keys]
    if len(chosen) == len(pipeline.table_names):
        return {"tables": session.pipeline.table_names}
    return {"tables": chosen, "only": True}
