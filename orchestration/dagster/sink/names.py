"""What the parts that only sinks have are called in Dagster: their stages, and the keys of their assets."""

from __future__ import annotations

import dagster as dg

from calve.sink_core.config.sink_pipeline import SinkPipeline

INGEST = "ingest"
COMMIT = "commit"
REPLAY = "replay"
REPLAY_HOURS = "replay_hours"
DEAD_LETTERS = "dead_letters"
REPLAY_DEAD_LETTERS = "replay_dead_letters"


def batches_key(pipeline: SinkPipeline) -> dg.AssetKey:
    """Its last part, which is what the graph shows of it, tells pipelines apart."""
    return dg.AssetKey([pipeline.name, f"{pipeline.name}_batches"])


def table_key(pipeline: SinkPipeline, table: str) -> dg.AssetKey:
    """The table's own name, so that others can depend on it; `dagster.key_prefix` tells two pipelines' apart."""
    return dg.AssetKey([*pipeline.config.dagster.key_prefix, *table.split(".")])
