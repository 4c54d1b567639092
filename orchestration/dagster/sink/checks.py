"""Asset checks: after each ingest run within it, and on a schedule in a job of their own, the proof then too."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.names import CHECKS, PIPELINE_TAG, op_name
from calve.orchestration.dagster.sink import verdicts
from calve.orchestration.dagster.sink.names import batches_key, table_key
from calve.orchestration.dagster.sink.session import run_session
from calve.orchestration.dagster.sink.verdicts import Verdict
from calve.sink_core.config.sink_pipeline import SinkPipeline

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.session import Session


def specs(pipeline: SinkPipeline) -> list[dg.AssetCheckSpec]:
    """All checks of a pipeline."""
    return [
        dg.AssetCheckSpec(
            name=check.name,
            asset=asset_key(pipeline, table),
            description=check.description,
            metadata={PIPELINE_TAG: pipeline.name},
        )
        for check in verdicts.CHECKS
        for table in check.tables(pipeline)
    ]


def checks_of(pipeline: SinkPipeline) -> dg.AssetChecksDefinition:
    """One op for all: they look at the same state."""

    @dg.multi_asset_check(name=op_name(pipeline, CHECKS), specs=specs(pipeline), can_subset=True)
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:

        wanted = context.selected_asset_check_keys
        with run_session(context, pipeline) as session:
            found = [*look(pipeline, session), *prove(pipeline, session)]
            for verdict in found:
                key = dg.AssetCheckKey(asset_key(pipeline, verdict.table), verdict.check)
                if key in wanted:
                    yield dg.AssetCheckResult(**_told(pipeline, verdict))

    return checks


def look(pipeline: SinkPipeline, session: "Session") -> list[Verdict]:
    """Every verdict but the proof."""
    from calve.sink_core.sink.status import status

    return verdicts.health(pipeline, status(session), session.log.state.batches.values())


def prove(pipeline: SinkPipeline, session: "Session") -> Iterator[Verdict]:
    """The proof, as far back as `dagster.prove_since` says; nothing if there is nothing to prove yet."""
    from calve.sink_core.sink.verify.proof import verify

    back_s = pipeline.config.dagster.prove_since
    since_ms = None if back_s is None else time.time_ns() // 1_000_000 - round(back_s * 1000)
    if session.log.state.last_publish is not None:
        yield verdicts.proof(pipeline, verify(session, deep=False, since_ms=since_ms))


def evaluations(pipeline: SinkPipeline, found: Iterable[Verdict]) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdicts as events that any op may yield."""
    for verdict in found:
        yield dg.AssetCheckEvaluation(**_told(pipeline, verdict))


def asset_key(pipeline: SinkPipeline, table: str | None) -> dg.AssetKey:
    return batches_key(pipeline) if table is None else table_key(pipeline, table)


def _told(pipeline: SinkPipeline, verdict: Verdict) -> dict[str, Any]:
    return {
        "asset_key": asset_key(pipeline, verdict.table),
        "check_name": verdict.check,
        "passed": verdict.passed,
        "severity": dg.AssetCheckSeverity.WARN if verdict.warning else dg.AssetCheckSeverity.ERROR,
        "description": verdict.text,
        "metadata": metadata_of(verdict),
    }


def metadata_of(verdict: Verdict) -> dict[str, Any]:
    """Numbers, and what is behind them."""
    return {**verdict.numbers, **{name: _shown(value) for name, value in verdict.details.items()}}


def _shown(value: Any) -> Any:
    """Lists of records as tables; anything else as it is."""
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        return value
    return dg.MetadataValue.table([dg.TableRecord({k: _cell(v) for k, v in each.items()}) for each in value])


def _cell(value: Any) -> str | int | float | bool | None:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
