"""What a pipeline's parts are called in Dagster. Names carry the pipeline's, since a location has many."""

from __future__ import annotations

from calve.sink_core.config.effective import Pipeline

PIPELINE_TAG = "calve/pipeline"
STAGE_TAG = "calve/stage"
CONFIG_TAG = "calve/config"
ERROR_TAG = "calve/error"
TERMINAL_TAG = "calve/terminal"
WHY_TAG = "calve/why"
REMEDY_TAG = "calve/remedy"
ANSWER_TAG = "calve/answer"
"""The id of the last answer that the control log had when the run was asked for: one that came later is another."""
PAUSED_TAG = "calve/paused"
ALONE_TAG = "calve/alone"
HELD_TAG = "calve/held"
"""The tables that a failed run could not commit to, where it did all else."""
STEP_TAG = "calve/step"
"""The pipeline whose step a run is in that is not of one of Calve's jobs; empty after it."""

CHECKS = "checks"
PAUSE = "pause"
RESUME = "resume"
RESOLVE = "resolve"
VERIFY = "verify"
POSITIONS = "positions"


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
