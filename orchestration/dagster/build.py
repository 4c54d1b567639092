"""All of a pipeline's Dagster definitions, from its model. The component and plain Python projects both come here."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from calve.orchestration.compat import disable_dagster_warnings
from calve.orchestration.dagster.common.spark import own_resources
from calve.orchestration.dagster.kinds import KINDS
from calve.orchestration.dagster.sensor import lag_sensor, watch_sensor
from calve.sink_core.config.effective import Pipeline


def build_pipeline_defs(
    pipeline: Pipeline, *, asset_spec: Callable[[dg.AssetSpec], dg.AssetSpec] | None = None
) -> dg.Definitions:
    """Assets, checks, jobs, sensors, schedules and Spark resource of `pipeline` (`calve.load_pipeline` gives it).

    `asset_spec` gives the spec of a topic, of the batches or of a table as Dagster is to have it. Opens no connection
    and reads no environment variable. Raises ConfigError for what no schedule can express.
    """
    parts = KINDS[pipeline.kind](pipeline)
    defs = dg.Definitions(
        assets=parts.assets,
        asset_checks=parts.checks,
        jobs=[parts.moves, *parts.jobs],
        sensors=[lag_sensor(pipeline, parts), watch_sensor(pipeline, parts)],
        schedules=parts.schedules,
        resources=own_resources(pipeline),
    )
    # Users can't help that this method is called a preview.
    with disable_dagster_warnings():
        return defs.map_asset_specs(func=asset_spec) if asset_spec else defs
