"""The frame of an operator's job: one op that opens the pipeline, does what a command does, and says what it did."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import dagster as dg

from calve.orchestration.dagster.common.names import job_name, op_name, pool, resource_key, run_tags
from calve.orchestration.dagster.common.opening import Opens
from calve.orchestration.dagster.common.runs import held_by_pause, made_by
from calve.orchestration.dagster.common.signs import in_process
from calve.orchestration.dagster.common.spark import own_resources, start_of
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.sink_core.control.plane import AnyPlane
    from calve.sink_core.control.rounds import Progress
    from calve.spark_jobs.session import Started

Told = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
Config = TypeVar("Config", bound=dg.Config)
P = TypeVar("P", bound="AnyPlane")


@dataclass(frozen=True, slots=True)
class Work(Generic[P]):
    """What an operation has at hand. Spark starts when it is first needed."""

    context: dg.OpExecutionContext
    pipeline: Pipeline
    plane: P
    spark: "Callable[[], Started]"

    @property
    def by(self) -> str:
        return made_by(self.context.run)

    def held(self) -> dict[str, Any]:
        """What the run's output says if the pipeline is paused, nothing if it isn't."""
        state = self.plane.log.refresh()
        return {"ended": str(state.paused)} if held_by_pause(self.context, self.pipeline, state.paused) else {}

    def say(self, line: str) -> None:
        self.context.log.info(line)

    def progress(self, step: "Progress") -> None:
        self.say(f"{step.phase}: {step.message}")


@dataclass(frozen=True, slots=True)
class Operation(Generic[P, Config]):
    """One job. `work` yields events about assets and returns the metadata of the run's output.

    `config` is None where there is nothing to choose. `editor` is what the Launchpad opens with. Runs with the same
    `lane` go one after the other. What `only_looks` changes nothing outside of Dagster.
    """

    stage: str
    description: str
    config: type[Config] | None
    editor: Mapping[str, Any]
    work: Callable[[Work[P], Config], Generator[Told, None, dict[str, Any]]]
    lane: str | None = None
    partitions: dg.PartitionsDefinition[str] | None = None
    only_looks: bool = False


def operator_jobs(
    pipeline: Pipeline, operations: Iterable[Operation[Any, Any]], opens: Opens[Any]
) -> list[dg.JobDefinition]:
    """A job for each operation that the pipeline file leaves in Dagster."""
    may_change = pipeline.config.dagster.operations
    return [_job_of(pipeline, each, opens) for each in operations if may_change or each.only_looks]


def _job_of(pipeline: Pipeline, operation: Operation[P, Config], opens: Opens[P]) -> dg.JobDefinition:
    """To be launched by hand; a run may last as long as one of maintenance. `opens` opens the pipeline for it."""

    def through(context: dg.OpExecutionContext, config: Any) -> Iterator[Told | dg.Output[None]]:
        start = start_of(getattr(context.resources, resource_key(pipeline)))
        with opens(context, pipeline, start) as plane:
            metadata = yield from operation.work(Work(context, pipeline, plane, start), config)
            yield dg.Output(None, metadata=metadata)

    name = op_name(pipeline, operation.stage)
    operate = dg.op(
        name=name,
        description=operation.description,
        out=dg.Out(dg.Nothing),
        pool=pool(pipeline, operation.lane) if operation.lane else None,
        required_resource_keys={resource_key(pipeline)},
    )(of_config(through, operation.config))

    editor: Any = {"ops": {name: {"config": dict(operation.editor)}}} if operation.config else None

    @dg.job(
        name=job_name(pipeline, operation.stage),
        description=operation.description,
        config=editor,
        partitions_def=operation.partitions,
        tags={
            **run_tags(pipeline, operation.stage),
            "dagster/max_runtime": str(int(pipeline.config.maintenance.max_duration)),
        },
        resource_defs=own_resources(pipeline),
        executor_def=in_process,
    )
    def job() -> None:
        operate()

    return job


def of_config(through: Callable[..., Iterator[Any]], given: type[dg.Config] | None) -> Callable[..., Iterator[Any]]:
    """A function from whose signature Dagster learns the fields; it doesn't take a class without any."""
    if given is None:

        def plain(context: dg.OpExecutionContext) -> Iterator[Any]:
            yield from through(context, None)

        return plain

    def configured(
        context: dg.OpExecutionContext,
        config: given,  # pyright: ignore[reportInvalidTypeForm]
    ) -> Iterator[Any]:
        yield from through(context, config)

    return configured
