"""What the runs that move records have in common, whatever their kind: bounds, progress, their last words."""

# Without postponed annotations: Dagster looks at `config`'s as it stands.

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.sink_core.config.effective import Pipeline
from calve.sink_core.wording import counted

if TYPE_CHECKING:
    from calve.sink_core.control.rounds import Bounds, Progress
    from calve.sink_core.tasks import WrittenBy

MOVED_TAG = "calve/moved"

LARGE_BATCH = 100_000
"""Offsets from which a batch's steps are logged: the loop may make several small ones a second."""


class RunConfig(dg.Config):
    """Bounds of one run; what is left out comes from the pipeline file."""

    max_batches: int | None = None
    max_duration_s: float | None = None
    linger_s: float | None = None


def bounds_of(pipeline: Pipeline, config: RunConfig) -> "Bounds":
    from calve.sink_core.control.rounds import Bounds

    wanted = {
        "max_batches": config.max_batches,
        "max_duration_s": config.max_duration_s,
        "linger_s": config.linger_s,
    }
    return replace(Bounds.of(pipeline), **{key: value for key, value in wanted.items() if value is not None})


def log_progress(context: dg.AssetExecutionContext, step: "Progress") -> None:
    if step.phase == "start" or step.offsets >= LARGE_BATCH:
        context.log.info(f"{step.phase}: {step.message}")


def engine_metadata(engine: "WrittenBy | None") -> dict[str, Any]:
    """The engine of a batch, as metadata of its materialization; Spark's page as a link."""
    if engine is None:
        return {}
    spark = {"spark application": engine.application_id, "spark master": engine.master}
    return {
        "engine": engine.engine,
        "tasks": engine.tasks,
        **{name: value for name, value in spark.items() if value},
        **({"spark page": dg.MetadataValue.url(engine.ui)} if engine.ui else {}),
    }


def step_times(seconds: "Mapping[str, float]") -> dict[str, float]:
    """How long the steps of a batch took, as metadata: each is a plot."""
    return {f"{step} time (s)": round(each, 3) for step, each in seconds.items()}


def say_moved(
    context: dg.AssetExecutionContext,
    records: int,
    batches: int,
    ended: str,
    engines: "Iterable[WrittenBy | None]",
) -> None:
    """In the log, and as a tag of a run that has moved something. `engines` wrote its batches."""
    moved = f"{counted(records, 'record', 'records')} in {counted(batches, 'batch', 'batches')}"
    by = ", ".join(dict.fromkeys(engine.place for engine in engines if engine))
    context.log.info(f"{moved}{f' by {by}' if by else ''}; {ended}")
    if batches:
        context.instance.add_run_tags(context.run.run_id, {MOVED_TAG: moved})
