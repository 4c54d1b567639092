"""Asset checks: after each ingest run within it, and on a schedule in a job of their own, the proof then too."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.names import CHECKS, PIPELINE_TAG, op_name
from calve.orchestration.dagster.sink import verdicts
from calve.orchestration.dagster.sink.names import batches_key, table_key
from calve.orchestration.dagster.sink.session import run_session
from calve.orchestration.dagster.sink.verdicts import Verdict
from calve.sink_core.config.sink_pipeline import SinkPipeline

if TYPE_CHECKING:
    from calve.sink_core.sink.session import Session

DESCRIPTIONS = {
    verdicts.LAG: "Records that wait, against objectives.lag.",
    verdicts.RETENTION: "How near deletion by retention is to records that were not read yet.",
    verdicts.FRESHNESS: "Age of the oldest record that is not in the table, against objectives.freshness.",
    verdicts.FILE_SIZES: "Many small files make reading slow; compaction joins them.",
    verdicts.DROPPED: "Fields of records in the last batches that the table has no column for.",
    verdicts.RATE: "Share of dead letters in the last batches, against objectives.dead_letters.",
    verdicts.MISFITS: "Records of the last days that a table can't take since a schema has changed, by field.",
    verdicts.PROOF: "The ledger is contiguous and adds up; control topic, positions and tables agree with it.",
}


def specs(pipeline: SinkPipeline) -> list[dg.AssetCheckSpec]:
    """All checks of a pipeline."""
    each = (verdicts.FRESHNESS, verdicts.FILE_SIZES, verdicts.DROPPED)
    of_tables = [(table.name, check) for table in pipeline.tables for check in each]
    named: list[tuple[str | None, str]] = [
        (None, verdicts.LAG),
        (None, verdicts.RETENTION),
        (pipeline.dead_letter_table, verdicts.RATE),
        (pipeline.dead_letter_table, verdicts.MISFITS),
        (pipeline.ledger_table, verdicts.PROOF),
        *of_tables,
    ]
    return [
        dg.AssetCheckSpec(
            name=check,
            asset=asset_key(pipeline, table),
            description=DESCRIPTIONS[check],
            metadata={PIPELINE_TAG: pipeline.name},
        )
        for table, check in named
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
    from calve.sink_core.verify.verify import verify

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
