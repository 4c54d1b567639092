"""A hook for red checks: a check of Calve's that turns red is handed to a function of yours, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import dagster as dg

from calve.orchestration.compat import AssetCheckExecutionRecord
from calve.orchestration.dagster.alerts import INTERVAL_S, Alert, NotPosted
from calve.orchestration.dagster.common.checks import evaluation_of
from calve.orchestration.dagster.common.names import CHECKS, PIPELINE_TAG


def check_alert_sensor(
    post: Callable[[Alert], None], *, name: str = "calve_check_alerts", warnings: bool = False
) -> dg.SensorDefinition:
    """Hands to `post` each check of this code location's pipelines that turns red; with `warnings` yellow ones too.

    A check is posted once, and not again before it was good in between. One that `post` refuses is tried again with
    each tick, and keeps back no other; a tick that posts none of those due fails. If the daemon dies right after a
    post, it is posted twice.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts checks of Calve's pipelines that turn red.",
    )
    def checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        posted: list[str] = json.loads(context.cursor) if context.cursor else []
        red = dict(_red(context, warnings=warnings))
        # What is good by now is news when it turns red again.
        still = [key for key in posted if key in red]
        refused: tuple[str, Exception] | None = None
        for due in [key for key in red if key not in still]:
            try:
                post(red[due])
            except Exception as error:  # noqa: BLE001 - raised below
                refused = refused or (due, error)
            else:
                # One a tick, so that the cursor is saved before the daemon may die.
                return dg.SensorResult(skip_reason=f"posted {due}", cursor=json.dumps([*still, due]))
        if refused:
            raise NotPosted(f"{refused[0]}: the alert about it could not be posted") from refused[1]
        return dg.SensorResult(skip_reason=f"{len(still)} checks are red, all of them posted", cursor=json.dumps(still))

    return checks


def _red(context: dg.SensorEvaluationContext, *, warnings: bool) -> Iterator[tuple[str, Alert]]:
    """By check, as text: what an alert about it says."""
    repository = context.repository_def
    if repository is None:
        return
    graph = repository.asset_graph
    pipelines = {
        key: str(spec.metadata[PIPELINE_TAG])
        for key in graph.asset_check_keys
        if PIPELINE_TAG in (spec := graph.get_check_spec(key)).metadata
    }
    found = context.instance.event_log_storage.get_asset_check_summary_records(list(pipelines))
    for key, pipeline in pipelines.items():
        record = found[key].last_completed_check_execution_record
        evaluation = evaluation_of(record)
        if record is None or evaluation is None or evaluation.passed:
            continue
        if warnings or evaluation.severity is dg.AssetCheckSeverity.ERROR:
            yield f"{key.name} of {key.asset_key.to_user_string()}", _alert(pipeline, record, evaluation)


def _alert(pipeline: str, record: AssetCheckExecutionRecord, evaluation: dg.AssetCheckEvaluation) -> Alert:
    event = record.event
    return Alert(
        pipeline=pipeline,
        stage=CHECKS,
        error=evaluation.check_name,
        message=f"{evaluation.asset_key.to_user_string()}: {evaluation.description or 'failed'}",
        remedy="",
        run_id=record.run_id,
        job_name=event.job_name or "" if event else "",
        at=datetime.fromtimestamp(record.create_timestamp, UTC).isoformat(timespec="seconds"),
        folded=0,
    )
