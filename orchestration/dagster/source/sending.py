"""The op of a source: generations in a loop, each told to Dagster once its slots have ended."""

# Without postponed annotations: Dagster looks at `config`'s as it stands.

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common import tags
from calve.orchestration.dagster.common.assets import group_and_owners, pipeline_file
from calve.orchestration.dagster.common.moving import (
    RunConfig,
    bounds_of,
    engine_metadata,
    log_progress,
    say_moved,
    step_times,
)
from calve.orchestration.dagster.common.names import op_name, pool, resource_key
from calve.orchestration.dagster.common.runs import held_by_pause
from calve.orchestration.dagster.common.spark import start_of
from calve.orchestration.dagster.common.topics import COPY, copy_key, system_key, table_key, written_key
from calve.orchestration.dagster.source import checks
from calve.orchestration.dagster.source.plane import run_plane
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.errors import CalveError

if TYPE_CHECKING:
    from calve.sink_core.control.rounds import Bounds
    from calve.sink_core.source.batches import SendReport
    from calve.sink_core.source.plane import SourcePlane

Told = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.MaterializeResult[Any]


def system_of(pipeline: SourcePipeline) -> dg.AssetSpec:
    """The system that is read: external, observed by the sensor."""
    return dg.AssetSpec(
        system_key(pipeline),
        description=f"What {pipeline.name} reads: {pipeline.reads}.",
        metadata={"source": pipeline.reads},
        **group_and_owners(pipeline),
    )


def tables_of(pipeline: SourcePipeline) -> list[dg.AssetSpec]:
    """The tables that the file names: external."""
    return [
        dg.AssetSpec(
            table_key(pipeline, table),
            deps=[system_key(pipeline)],
            description=f"Table {table}, which is read into {topic}.",
            metadata={"table": table, "topic": topic},
            **group_and_owners(pipeline),
        )
        for table, topic in pipeline.tables.items()
    ]


def copy_of(pipeline: SourcePipeline) -> dg.AssetsDefinition:
    """The owner of all that is sent, and of the topics that the file tells of; others are materialized beside it.
    "Materialize" on one of them sends whatever waits.
    """
    copy = dg.AssetSpec(
        copy_key(pipeline.name),
        deps=[table_key(pipeline, table) for table in pipeline.tables] or [system_key(pipeline)],
        description=f"What is sent to {pipeline.kafka.name}: records and source offsets in one transaction for each "
        "slot and piece.",
        kinds={"kafka", "spark"},
        metadata={
            "source": pipeline.reads,
            "target": pipeline.kafka.name,
            "offsets topic": pipeline.offsets_topic,
            "control topic": pipeline.control_topic,
            **pipeline_file(pipeline),
        },
        skippable=True,
        **group_and_owners(pipeline),
    )
    topics = [
        dg.AssetSpec(
            written_key(pipeline.name, topic),
            deps=[copy_key(pipeline.name)],
            description=f"Kafka topic {topic} of cluster {pipeline.kafka.name}.",
            kinds={"kafka"},
            metadata={"topic": topic, "cluster": pipeline.kafka.name},
            skippable=True,
            **group_and_owners(pipeline),
        )
        for topic in pipeline.topics
    ]

    @dg.multi_asset(
        name=op_name(pipeline, COPY),
        specs=[copy, *topics],
        pool=pool(pipeline, COPY),
        required_resource_keys={resource_key(pipeline)},
        can_subset=False,
    )
    def send(context: dg.AssetExecutionContext, config: RunConfig) -> Iterator[Told]:
        start = start_of(getattr(context.resources, resource_key(pipeline)))
        with run_plane(context, pipeline, start) as plane:
            yield from _through(context, pipeline, plane, bounds_of(pipeline, config))

    return send


def _through(
    context: dg.AssetExecutionContext, pipeline: SourcePipeline, plane: "SourcePlane", bounds: "Bounds"
) -> Iterator[Told]:
    from calve.sink_core.source.run import SourceReport, run_steps

    report = SourceReport()
    for batch in run_steps(plane, report, bounds=bounds, on_progress=partial(log_progress, context)):
        yield from _told(pipeline, batch)
    if not held_by_pause(context, pipeline, plane.log.state.paused) or report.batches:
        sent = [batch for batch in report.batches if batch.sent]
        say_moved(context, report.records, len(sent), report.ended, (batch.written_by for batch in sent))
    try:
        found = [*checks.look(pipeline, plane)]
    except CalveError as error:
        # Without them a run is still a good run.
        context.log.warning(f"the checks could not be made: {error}")
    else:
        yield from checks.evaluations(pipeline, found)


def _told(pipeline: SourcePipeline, batch: "SendReport") -> Iterator[dg.AssetMaterialization]:
    """One materialization of all, and of each topic that got something."""
    if not batch.sent:
        return
    copy = copy_key(pipeline.name)
    yield dg.AssetMaterialization(copy, metadata=_of_batch(batch), tags=tags.of_version())
    by_topic: dict[str, list[Any]] = {}
    for written in batch.written:
        by_topic.setdefault(written.topic, []).append(written)
    for topic, runs in sorted(by_topic.items()):
        got = {"records": sum(run.records for run in runs), "bytes": sum(run.bytes for run in runs)}
        yield dg.AssetMaterialization(
            written_key(pipeline.name, topic),
            metadata={**got, "batch id": batch.batch_id, "slots": batch.slots},
            tags=tags.following(copy),
        )


def _of_batch(batch: "SendReport") -> dict[str, Any]:
    return {
        "batch id": batch.batch_id,
        "records": batch.records,
        "bytes": batch.bytes,
        "source offsets moved": batch.moved,
        "rows dropped": batch.dropped,
        "dead letters": batch.dead_letters,
        "slots": batch.slots,
        **engine_metadata(batch.written_by),
        "lag (records)": batch.lag_after,
        **step_times(batch.seconds),
    }
