"""A kind's checks as Dagster has them: specs, one op for all, and verdicts as events."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg

from calve.orchestration.compat import AssetCheckExecutionRecord
from calve.orchestration.dagster.common.names import CHECKS, PIPELINE_TAG, op_name
from calve.orchestration.dagster.common.opening import Opens
from calve.orchestration.dagster.common.verdicts import FRESHNESS, LAG, Check, Verdict
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.sink_core.control.plane import AnyPlane

P = TypeVar("P", bound="AnyPlane")
KeyOf = Callable[[str | None], dg.AssetKey]
"""The asset of a check's subject."""


def check_specs(pipeline: Pipeline, checks: Iterable[tuple[Check[Any], dg.AssetKey]]) -> list[dg.AssetCheckSpec]:
    """Of each check and an asset that it is of."""
    return [
        dg.AssetCheckSpec(
            name=check.name, asset=key, description=check.description, metadata={PIPELINE_TAG: pipeline.name}
        )
        for check, key in checks
    ]


def checks_op(
    pipeline: Pipeline,
    specs: Iterable[dg.AssetCheckSpec],
    opens: Opens[P],
    find: Callable[[P], Iterable[Verdict]],
    key_of: KeyOf,
) -> dg.AssetChecksDefinition:
    """One op for all: they look at the same state."""

    @dg.multi_asset_check(name=op_name(pipeline, CHECKS), specs=list(specs), can_subset=True)
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        wanted = context.selected_asset_check_keys
        with opens(context, pipeline) as plane:
            for verdict in [*find(plane)]:
                if dg.AssetCheckKey(key_of(verdict.subject), verdict.check) in wanted:
                    yield dg.AssetCheckResult(**_told(verdict, key_of))

    return checks


def told_by_run(pipeline: Pipeline, found: Iterable[Verdict], key_of: KeyOf) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdicts as events that a run yields which moves something.

    Of an objective of the file only the sensor that watches judges, and the job of the checks: two that judge by
    different means would turn a check red and green all the time.
    """
    objectives = pipeline.config.objectives
    watched = {LAG: objectives.lag, FRESHNESS: objectives.freshness}
    yield from told((verdict for verdict in found if watched.get(verdict.check) is None), key_of)


def told(found: Iterable[Verdict], key_of: KeyOf) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdicts as events, for whoever may yield some."""
    for verdict in found:
        yield dg.AssetCheckEvaluation(**_told(verdict, key_of))


def _told(verdict: Verdict, key_of: KeyOf) -> dict[str, Any]:
    return {
        "asset_key": key_of(verdict.subject),
        "check_name": verdict.check,
        "passed": verdict.passed,
        "severity": dg.AssetCheckSeverity.WARN if verdict.warning else dg.AssetCheckSeverity.ERROR,
        "description": verdict.text,
        "metadata": metadata_of(verdict),
    }


def evaluation_of(record: AssetCheckExecutionRecord | None) -> dg.AssetCheckEvaluation | None:
    """What a check found, by Dagster's record of it."""
    event = record.event.dagster_event if record and record.event else None
    found: Any = event.event_specific_data if event else None
    return found if isinstance(found, dg.AssetCheckEvaluation) else None


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
