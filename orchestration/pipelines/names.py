"""What a pipeline's parts are called in Dagster. Names carry the pipeline's, since a location has many."""

from __future__ import annotations

import dagster as dg

from calve.sink_core.config.effective import Pipeline

PIPELINE_TAG = "calve/pipeline"
STAGE_TAG = "calve/stage"
CONFIG_TAG = "calve/config"
ERROR_TAG = "calve/error"
TERMINAL_TAG = "calve/terminal"
WHY_TAG = "calve/why"
REMEDY_TAG = "calve/remedy"
PAUSED_TAG = "calve/paused"

INGEST = "ingest"
COMMIT = "commit"
CHECKS = "checks"
PAUSE = "pause"
RESUME = "resume"
RESOLVE = "resolve"
VERIFY = "verify"
POSITIONS = "positions"
REPLAY = "replay"
REPLAY_HOURS = "replay_hours"
DEAD_LETTERS = "dead_letters"
REPLAY_DEAD_LETTERS = "replay_dead_letters"


def topic_key(pipeline: Pipeline, topic: str) -> dg.AssetKey:
    """Below the pipeline: two that read one topic must not describe the same asset twice.

    Topics of a pipeline that differ in punctuation only are numbered.
    """
    alike = [other for other in pipeline.config.source.topics if _plain(other) == _plain(topic)]
    number = f"_{alike.index(topic) + 1}" if alike.index(topic) else ""
    return dg.AssetKey([pipeline.name, f"{_plain(topic)}_topic{number}"])


def pattern_key(pipeline: Pipeline) -> dg.AssetKey:
    """Stands for all topics that `source.topics_regex` matches: which these are only Kafka knows."""
    return dg.AssetKey([pipeline.name, "matching_topics"])


def source_keys(pipeline: Pipeline) -> list[dg.AssetKey]:
    """What batches are read from."""
    named, pattern = pipeline.config.source.topics, pipeline.config.source.topics_regex
    return [*(topic_key(pipeline, topic) for topic in named), *([pattern_key(pipeline)] if pattern else [])]


def batches_key(pipeline: Pipeline) -> dg.AssetKey:
    """Its last part, which is what the graph shows of it, tells pipelines apart."""
    return dg.AssetKey([pipeline.name, f"{pipeline.name}_batches"])


def table_key(pipeline: Pipeline, table: str) -> dg.AssetKey:
    """The table's own name, so that others can depend on it; `dagster.key_prefix` tells two pipelines' apart."""
    return dg.AssetKey([*pipeline.config.dagster.key_prefix, *table.split(".")])


def op_name(pipeline: Pipeline, stage: str) -> str:
    return f"{pipeline.name}_{stage}"


def job_name(pipeline: Pipeline, stage: str) -> str:
    """With a suffix: a job may not be called as an asset's op is."""
    return f"{pipeline.name}_{stage}_job"


def pool(pipeline: Pipeline, stage: str) -> str:
    return f"calve_{pipeline.name}_{stage}"


def resource_key(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_spark"


def run_tags(pipeline: Pipeline, stage: str) -> dict[str, str]:
    """Of every run of a job: what the sensor finds its runs by, and how Dagster deals with them."""
    return {
        PIPELINE_TAG: pipeline.name,
        STAGE_TAG: stage,
        # A worker that died is tried again from the start: what it had planned may be stale.
        "dagster/retry_strategy": "ALL_STEPS",
    }


def _plain(topic: str) -> str:
    """Keys take letters, digits and underscores; a topic may hold dots and dashes."""
    return topic.replace(".", "_").replace("-", "_")
