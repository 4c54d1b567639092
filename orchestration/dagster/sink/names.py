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


def topic_key(pipeline: SinkPipeline, topic: str) -> dg.AssetKey:
    """Below the pipeline: two that read one topic must not describe the same asset twice.

    Topics of a pipeline that differ in punctuation only are numbered.
    """
    alike = [other for other in pipeline.config.source.topics if _plain(other) == _plain(topic)]
    number = f"_{alike.index(topic) + 1}" if alike.index(topic) else ""
    return dg.AssetKey([pipeline.name, f"{_plain(topic)}_topic{number}"])


def pattern_key(pipeline: SinkPipeline) -> dg.AssetKey:
    """Stands for all topics that `source.topics_regex` matches: which these are only Kafka knows."""
    return dg.AssetKey([pipeline.name, "matching_topics"])


def source_keys(pipeline: SinkPipeline) -> list[dg.AssetKey]:
    """What batches are read from."""
    named, pattern = pipeline.config.source.topics, pipeline.config.source.topics_regex
    return [*(topic_key(pipeline, topic) for topic in named), *([pattern_key(pipeline)] if pattern else [])]


def batches_key(pipeline: SinkPipeline) -> dg.AssetKey:
    """Its last part, which is what the graph shows of it, tells pipelines apart."""
    return dg.AssetKey([pipeline.name, f"{pipeline.name}_batches"])


def table_key(pipeline: SinkPipeline, table: str) -> dg.AssetKey:
    """The table's own name, so that others can depend on it; `dagster.key_prefix` tells two pipelines' apart."""
    return dg.AssetKey([*pipeline.config.dagster.key_prefix, *table.split(".")])


def _plain(topic: str) -> str:
    """Keys take letters, digits and underscores; a topic may hold dots and dashes."""
    return topic.replace(".", "_").replace("-", "_")
