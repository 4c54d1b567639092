"""The topics that pipelines read and write, as assets."""

from __future__ import annotations

import dagster as dg

from calve.orchestration.dagster.common.assets import group_and_owners
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.config.topics import Topics

COPY = "copy"


def topic_key(pipeline: Pipeline, source: Topics, topic: str) -> dg.AssetKey:
    """Below the pipeline: two that read one topic must not describe the same asset twice.

    Topics of a pipeline that differ in punctuation only are numbered.
    """
    alike = [other for other in source.topics if _plain(other) == _plain(topic)]
    number = f"_{alike.index(topic) + 1}" if alike.index(topic) else ""
    return dg.AssetKey([pipeline.name, f"{_plain(topic)}_topic{number}"])


def pattern_key(pipeline: Pipeline) -> dg.AssetKey:
    """Stands for all topics that `source.topics_regex` matches: which these are only Kafka knows."""
    return dg.AssetKey([pipeline.name, "matching_topics"])


def written_key(pipeline: str, topic: str) -> dg.AssetKey:
    """A topic that a pipeline writes, by its own name: so a pipeline that reads it finds it by `source.fed_by`."""
    return dg.AssetKey([pipeline, topic])


def copy_key(pipeline: str) -> dg.AssetKey:
    """What a pipeline writes to topics, all in one."""
    return dg.AssetKey([pipeline, COPY])


def system_key(pipeline: Pipeline) -> dg.AssetKey:
    """Stands for the system that a source reads."""
    return dg.AssetKey([pipeline.name, "system"])


def table_key(pipeline: Pipeline, table: str) -> dg.AssetKey:
    """Stands for a table of the system that a source reads."""
    return dg.AssetKey([pipeline.name, f"{_plain(table)}_table"])


def source_keys(pipeline: Pipeline, source: Topics) -> list[dg.AssetKey]:
    """What a pipeline reads."""
    pattern = [pattern_key(pipeline)] if source.topics_regex else []
    return [*(topic_key(pipeline, source, topic) for topic in source.topics), *pattern]


def source_topics(pipeline: Pipeline, source: Topics, cluster: str) -> list[dg.AssetSpec]:
    """Written by others: external assets, observed by the sensor. They follow from what the pipelines of `fed_by`
    write, each topic from that of its name as well: whether such a pipeline has found it by a pattern, and so has no
    asset of it, is not known here.
    """
    found = [
        dg.AssetSpec(
            topic_key(pipeline, source, topic),
            deps=[key for fed in source.fed_by for key in (written_key(fed, topic), copy_key(fed))],
            description=f"Kafka topic {topic} of cluster {cluster}.",
            kinds={"kafka"},
            metadata={"topic": topic, "cluster": cluster},
            **group_and_owners(pipeline),
        )
        for topic in source.topics
    ]
    if (pattern := source.topics_regex) is not None:
        described = dg.AssetSpec(
            pattern_key(pipeline),
            deps=[copy_key(fed) for fed in source.fed_by],
            description=f"All Kafka topics of cluster {cluster} that match {pattern}.",
            kinds={"kafka"},
            metadata={"pattern": pattern, "cluster": cluster},
            **group_and_owners(pipeline),
        )
        found.append(described)
    return found


def reads(source: Topics) -> str:
    """What is read, as part of a sentence."""
    pattern = [f"matching {source.topics_regex}"] if source.topics_regex else []
    return f"topic {', '.join([*source.topics, *pattern])}"


def _plain(topic: str) -> str:
    """Keys take letters, digits and underscores; a topic may hold dots and dashes."""
    return topic.replace(".", "_").replace("-", "_")
