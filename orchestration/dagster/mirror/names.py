"""The keys of a mirror's assets, and what Dagster could not tell apart."""

from __future__ import annotations

import dagster as dg

from calve.orchestration.dagster.common.topics import COPY, copy_key, written_key
from calve.sink_core.codes import Code
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.errors import ConfigError

__all__ = ["COPY", "asset_key", "check_distinct", "remote_topics"]


def remote_topics(pipeline: MirrorPipeline) -> dict[str, str]:
    """By source topic the remote topic, of those that the file names; others are found at run time."""
    named = (topic for topic in pipeline.config.source.topics if not pipeline.refused(topic))
    return {topic: pipeline.remote_of(topic) for topic in named}


def asset_key(pipeline: MirrorPipeline, remote: str | None) -> dg.AssetKey:
    """A remote topic, or None for the copy of all of them."""
    return copy_key(pipeline.name) if remote is None else written_key(pipeline.name, remote)


def check_distinct(pipeline: MirrorPipeline) -> None:
    """Raise ConfigError for remote topics that Dagster can't tell apart."""
    known = {copy_key(pipeline.name).to_python_identifier(): COPY}
    for remote in remote_topics(pipeline).values():
        other = known.setdefault(asset_key(pipeline, remote).to_python_identifier(), remote)
        if other != remote:
            raise ConfigError(
                f"{pipeline.path}: source.topics: Dagster can't tell {remote} from {other}: to it - and _ are the same",
                hint="set target.names so that they differ, or copy one of them by another mirror",
                code=Code.DAGSTER_NAMES,
            )
