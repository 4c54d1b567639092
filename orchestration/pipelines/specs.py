"""The pipeline's assets as Dagster lists them: topics → batches → tables, ledger and dead letters."""

from __future__ import annotations

from typing import Any

import dagster as dg

from calve.orchestration.compat import disable_dagster_warnings
from calve.orchestration.pipelines.metadata import of_columns
from calve.orchestration.pipelines.names import batches_key, pattern_key, source_keys, table_key, topic_key
from calve.sink_core.config.effective import Pipeline, TableSettings
from calve.sink_core.config.tables import InDagster

COMPONENT_FILES = ("defs.yaml", "component.yaml")


def topics(pipeline: Pipeline) -> list[dg.AssetSpec]:
    """Written by others: external assets, observed by the sensor."""
    found = [
        dg.AssetSpec(
            topic_key(pipeline, topic),
            description=f"Kafka topic {topic} of cluster {pipeline.kafka.name}.",
            kinds={"kafka"},
            metadata={"topic": topic, "cluster": pipeline.kafka.name},
            **_common(pipeline),
        )
        for topic in pipeline.config.source.topics
    ]
    if (pattern := pipeline.config.source.topics_regex) is not None:
        described = dg.AssetSpec(
            pattern_key(pipeline),
            description=f"All Kafka topics of cluster {pipeline.kafka.name} that match {pattern}.",
            kinds={"kafka"},
            metadata={"pattern": pattern, "cluster": pipeline.kafka.name},
            **_common(pipeline),
        )
        found.append(described)
    return found


def batches(pipeline: Pipeline) -> dg.AssetSpec:
    return dg.AssetSpec(
        batches_key(pipeline),
        deps=source_keys(pipeline),
        description="What is published: files written and source positions moved, in one Kafka transaction a batch.",
        kinds={"kafka", "spark"},
        metadata={"group": pipeline.group, "control topic": pipeline.control_topic, **_source(pipeline)},
        skippable=True,
        **_common(pipeline),
    )


def tables(pipeline: Pipeline) -> list[dg.AssetSpec]:
    """Data tables, ledger and dead letters; a run materializes those that got something, and others that it found."""
    internal = {
        pipeline.ledger_table: "What became of every source offset, a row per batch and partition.",
        pipeline.dead_letter_table: "Records that could not be stored, with error, place and content.",
    }
    return [
        *(_table(pipeline, table.name, _description(pipeline, table), table) for table in pipeline.tables),
        *(_table(pipeline, name, description) for name, description in internal.items()),
    ]


def _table(pipeline: Pipeline, name: str, description: str, table: TableSettings | None = None) -> dg.AssetSpec:
    shown = table.dagster if table else InDagster()
    created = table.auto_create if table else None
    columns = of_columns(created.columns, created.comments) if created else {}
    common = _common(pipeline)
    if shown.owners:
        common["owners"] = list(shown.owners)
    return dg.AssetSpec(
        table_key(pipeline, name),
        deps=[batches_key(pipeline)],
        description=shown.description or description,
        kinds=set(shown.kinds),
        metadata={"dagster/table_name": name, "catalog": pipeline.catalog.name, **columns, **_source(pipeline)},
        tags={**shown.tags, "dagster/storage_kind": "iceberg"},
        automation_condition=dg.AutomationCondition.eager() if shown.automation == "eager" else None,
        skippable=True,
        **common,
    )


def _description(pipeline: Pipeline, table: TableSettings) -> str:
    """What feeds a table, and what a row of it is."""
    of = {
        "append": "Each record is a row",
        "upsert": "Each record takes the place of the row with its key",
        "cdc": "Rows follow the changes that records tell of",
    }
    topics = ", ".join(sorted(table.rule.topics or pipeline.config.source.topics)) or "the matching topics"
    return f"{of[table.mode]}; from Kafka topic {topics}, by pipeline {pipeline.name}."


def _source(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline file. To a component's definitions Dagster adds the `defs.yaml` itself."""
    if pipeline.path.name.partition("#")[0] in COMPONENT_FILES:
        return {}
    # Users can't help that these classes are called beta.
    with disable_dagster_warnings():
        reference = dg.LocalFileCodeReference(file_path=str(pipeline.path.absolute()), label="pipeline file")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _common(pipeline: Pipeline) -> dict[str, Any]:
    settings = pipeline.config.dagster
    return {"group_name": settings.group or pipeline.name, "owners": list(settings.owners)}
