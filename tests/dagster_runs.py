"""Jobs of a pipeline run in this process, on an instance of the test's own, and what they told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import DagsterInstance
from dagster._core.execution.execute_in_process_result import ExecuteInProcessResult

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.names import job_name
from calve.orchestration.dagster.sink.names import INGEST, batches_key, table_key
from calve.sink_core.config.effective import Pipeline
from tests.pipelines import Flow


@dataclass(frozen=True)
class Ran:
    """A run's end and what it told, oldest first."""

    instance: DagsterInstance
    result: ExecuteInProcessResult

    @property
    def tags(self) -> Mapping[str, str]:
        run = self.instance.get_run_by_id(self.result.run_id)
        assert run is not None
        return run.tags

    @property
    def materialized(self) -> Iterator[dg.AssetMaterialization]:
        for event in self.result.all_events:
            if event.is_step_materialization:
                yield event.step_materialization_data.materialization

    def of(self, key: dg.AssetKey) -> list[dict[str, Any]]:
        """The metadata of an asset's materializations."""
        found = [m.metadata for m in self.materialized if m.asset_key == key]
        return [{name: value.value for name, value in metadata.items()} for metadata in found]

    @property
    def checks(self) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
        found = self.result.get_asset_check_evaluations()
        assert len({(e.asset_key, e.check_name) for e in found}) == len(found)
        return {(e.asset_key.to_user_string(), e.check_name): e for e in found}

    @property
    def output(self) -> dict[str, Any]:
        """The metadata of an operation's output."""
        [event] = [e for e in self.result.all_events if e.is_successful_output]
        return {name: value.value for name, value in event.step_output_data.metadata.items()}

    def records(self, name: str) -> list[Mapping[str, Any]]:
        """The rows of a table in the output's metadata."""
        [event] = [e for e in self.result.all_events if e.is_successful_output]
        return [record.data for record in event.step_output_data.metadata[name].records]

    @property
    def steps(self) -> dict[str, str]:
        """How each step ended."""
        ends = ("STEP_SUCCESS", "STEP_SKIPPED", "STEP_FAILURE")
        shown = [e for e in self.result.all_events if e.event_type_value in ends]
        return {str(e.step_key): e.event_type_value.removeprefix("STEP_") for e in shown}

    @property
    def failure(self) -> dg.Failure | Any:
        """What the failed step says to people."""
        [event] = [e for e in self.result.all_events if e.is_step_failure]
        return event.step_failure_data


@dataclass(frozen=True)
class Done(Ran):
    """That of a sink."""

    flow: Flow

    @property
    def batches(self) -> list[dict[str, Any]]:
        return self.of(batches_key(self.flow.pipeline))

    def table(self, name: str = "") -> list[dict[str, Any]]:
        return self.of(table_key(self.flow.pipeline, name or self.flow.table))


def run(flow: Flow, instance: DagsterInstance, stage: str = INGEST, *, hour: str | None = None, **config: Any) -> Done:
    """As `run_of`, of a sink."""
    ran = run_of(flow.pipeline, instance, stage, hour=hour, **config)
    return Done(instance, ran.result, flow)


def run_of(pipeline: Pipeline, instance: DagsterInstance, stage: str, *, hour: str | None = None, **config: Any) -> Ran:
    """`hour` is the partition of a job that has some. Without `config` a job runs as its editor opens."""
    job = build_pipeline_defs(pipeline).resolve_job_def(job_name(pipeline, stage))
    op = {"ops": {f"{pipeline.name}_{stage}": {"config": config}}} if config else None
    done = job.execute_in_process(run_config=op, instance=instance, raise_on_error=False, partition_key=hour)
    return Ran(instance, done)
