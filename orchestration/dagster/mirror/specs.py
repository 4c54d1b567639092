"""The assets that a mirror makes: the copy, and the remote topics that follow from it."""

from __future__ import annotations

import dagster as dg

from calve.orchestration.dagster.common.assets import group_and_owners, pipeline_file
from calve.orchestration.dagster.common.topics import source_keys
from calve.orchestration.dagster.mirror.names import asset_key, remote_topics
from calve.sink_core.config.mirror_pipeline import MirrorPipeline


def copy(pipeline: MirrorPipeline) -> dg.AssetSpec:
    """Materialized once a batch."""
    config = pipeline.config
    return dg.AssetSpec(
        asset_key(pipeline, None),
        deps=source_keys(pipeline, config.source),
        description=f"What is copied from {config.source_alias} to {config.target_alias}, records and positions in one "
        "transaction for each slot and piece.",
        kinds={"kafka", "spark"},
        metadata={
            "source": config.source_alias,
            "target": config.target_alias,
            "group": pipeline.group,
            "control topic": pipeline.control_topic,
            **pipeline_file(pipeline),
        },
        skippable=True,
        **group_and_owners(pipeline),
    )


def remotes(pipeline: MirrorPipeline) -> list[dg.AssetSpec]:
    """The remote topics of topics that the file names; a run materializes those that got something."""
    return [_remote(pipeline, topic, remote) for topic, remote in remote_topics(pipeline).items()]


def _remote(pipeline: MirrorPipeline, topic: str, remote: str) -> dg.AssetSpec:
    config = pipeline.config
    return dg.AssetSpec(
        asset_key(pipeline, remote),
        deps=[asset_key(pipeline, None)],
        description=f"Topic {topic} of {config.source_alias} on {config.target_alias}: each record once, in its order.",
        kinds={"kafka"},
        metadata={"topic": remote, "cluster": config.target_alias, "source topic": topic},
        skippable=True,
        **group_and_owners(pipeline),
    )
