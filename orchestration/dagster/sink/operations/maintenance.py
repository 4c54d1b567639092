"""Maintenance of tables, control topic and positions; nothing here is an asset: a table stays the same table."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.operations.job import Work
from calve.orchestration.dagster.common.operations.maintenance import Maintaining
from calve.orchestration.dagster.sink.names import table_key
from calve.orchestration.dagster.sink.session import run_session
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.config.table_maintenance import TASKS

if TYPE_CHECKING:
    from calve.sink_core.control.maintenance_report import MaintenanceReport
    from calve.sink_core.sink.loop.session import Session


class MaintenanceConfig(dg.Config):
    """What to narrow a run by."""

    tables: list[str] = Field(default=[])
    dry_run: bool = False


def maintaining(pipeline: SinkPipeline) -> "Maintaining[Session]":
    """Its tasks are those of `calve maintain`."""

    def key(session: "Session", subject: str) -> dg.AssetKey | None:
        return table_key(pipeline, subject) if subject in session.pipeline.table_names else None

    return Maintaining(TASKS, run_session, _run, key, MaintenanceConfig, pipeline.config.maintenance.off)


def _run(task: str, at: "Work[Session]", config: MaintenanceConfig) -> "MaintenanceReport":
    from calve.sink_core.sink.maintenance.tasks import run_task
    from calve.spark_jobs.procedures import SparkProcedures

    procedures = SparkProcedures(lambda: at.spark().session, at.plane.pipeline.catalog)
    return run_task(
        task, at.plane, procedures, tables=config.tables, dry_run=config.dry_run, on_progress=at.context.log.info
    )
