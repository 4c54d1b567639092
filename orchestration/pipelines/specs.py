"""The pipeline's assets as Dagster lists them: topics → batches → tables, ledger and dead letters."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster._utils.warnings import disable_dagster_warnings

from orchestration.pipelines.metadata import of_columns
from orchestration.pipelines.names import batches_key, pattern_key, source_keys, table_key, topic_key
from sink_core.config.effective import Pipeline

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
    described = {
        table.name: (
            f"Fed by pipeline {pipeline.name}.",
            of_columns(table.auto_create.columns) if table.auto_create else dict[str, Any](),
        )
        for table in pipeline.tables
    }
    described[pipeline.ledger_table] = ("What became of every source offset, a row per batch and partition.", {})
    described[pipeline.dead_letter_table] = ("Records that could not be stored, with error, place and content.", {})
    return [
        dg.AssetSpec(
            table_key(pipeline, name),
            deps=[batches_key(pipeline)],
            description=description,
            kinds={"iceberg"},
            metadata={
                "dagster/table_name": name,
                "catalog": pipeline.catalog.name,
                **columns,
                **_source(pipeline),
            },
            tags={"dagster/storage_kind": "iceberg"},
            skippable=True,
            **_common(pipeline),
        )
        for name, (description, columns) in described.items()
    ]


def _source(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline file. To a component's definitions Dagster adds the `defs.yaml` itself."""
    if pipeline.path.name in COMPONENT_FILES:
        return {}
    # Users can't help that these classes are called beta.
    with disable_dagster_warnings():
        reference = dg.LocalFileCodeReference(file_path=str(pipeline.path.absolute()), label="pipeline file")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _common(pipeline: Pipeline) -> dict[str, Any]:
    settings = pipeline.config.dagster
    return {"group_name": settings.group or pipeline.name, "owners": list(settings.owners)}
