"""The assets that a sink makes, as Dagster lists them: batches → tables, ledger and dead letters."""

from __future__ import annotations

import dagster as dg

from calve.orchestration.dagster.common.assets import group_and_owners, pipeline_file
from calve.orchestration.dagster.common.topics import source_keys
from calve.orchestration.dagster.sink.metadata import of_columns
from calve.orchestration.dagster.sink.names import batches_key, table_key
from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.config.tables import InDagster


def batches(pipeline: SinkPipeline) -> dg.AssetSpec:
    return dg.AssetSpec(
        batches_key(pipeline),
        deps=source_keys(pipeline, pipeline.config.source),
        description="What is published: files written and source positions moved, in one Kafka transaction a batch.",
        kinds={"kafka", "spark"},
        metadata={"group": pipeline.group, "control topic": pipeline.control_topic, **pipeline_file(pipeline)},
        skippable=True,
        **group_and_owners(pipeline),
    )


def tables(pipeline: SinkPipeline) -> list[dg.AssetSpec]:
    """Data tables, ledger and dead letters; a run materializes those that got something, and others that it found."""
    internal = {
        pipeline.ledger_table: "What became of every source offset, a row per batch and partition.",
        pipeline.dead_letter_table: "Records that could not be stored, with error, place and content.",
    }
    return [
        *(_table(pipeline, table.name, _description(pipeline, table), table) for table in pipeline.tables),
        *(_table(pipeline, name, description) for name, description in internal.items()),
    ]


def _table(pipeline: SinkPipeline, name: str, description: str, table: TableSettings | None = None) -> dg.AssetSpec:
    shown = table.dagster if table else InDagster()
    created = table.auto_create if table else None
    columns = of_columns(created.columns, created.comments) if created else {}
    kind = pipeline.format_of(name)
    common = group_and_owners(pipeline)
    if shown.owners:
        common["owners"] = list(shown.owners)
    return dg.AssetSpec(
        table_key(pipeline, name),
        deps=[batches_key(pipeline)],
        description=shown.description or description,
        kinds=set(shown.kinds or (kind,)),
        metadata={"dagster/table_name": name, "catalog": pipeline.catalog.name, **columns, **pipeline_file(pipeline)},
        tags={**shown.tags, "dagster/storage_kind": kind},
        automation_condition=dg.AutomationCondition.eager() if shown.automation == "eager" else None,
        skippable=True,
        **common,
    )


def _description(pipeline: SinkPipeline, table: TableSettings) -> str:
    """What feeds a table, and what a row of it is."""
    of = {
        "append": "Each record is a row",
        "upsert": "Each record takes the place of the row with its key",
        "cdc": "Rows follow the changes that records tell of",
    }
    topics = ", ".join(sorted(table.rule.topics or pipeline.config.source.topics)) or "the matching topics"
    return f"{of[table.mode]}; from Kafka topic {topics}, by pipeline {pipeline.name}."
