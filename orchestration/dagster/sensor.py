"""The sensor that starts runs: two bounded questions to Kafka, and to the instance which runs are in progress, so that
those end that have died."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from dataclasses import replace

import dagster as dg

from calve.orchestration.dagster.common import trigger
from calve.orchestration.dagster.common.dead import end_the_dead
from calve.orchestration.dagster.common.parts import Parts
from calve.orchestration.dagster.common.runs import last_runs, short
from calve.orchestration.dagster.common.spark import keep_warm
from calve.orchestration.dagster.common.trigger import Decision, Memory, Sight
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError

INTERVAL_S = 1
"""Dagster looks every 5 s which sensors are due. A tick that had to wait for a thread begins late in its round; with an
interval near 5 the next look would come too early for it, and it would wait for the one after."""

REASON_TAG = "calve/reason"


def lag_sensor(pipeline: Pipeline, parts: Parts) -> dg.SensorDefinition:
    """Starts the job that moves records when some are pending, and says in each tick what it saw."""
    status = dg.DefaultSensorStatus.RUNNING if pipeline.config.dagster.automatic else dg.DefaultSensorStatus.STOPPED

    @dg.sensor(
        name=f"{pipeline.name}_lag",
        job=parts.moves,
        minimum_interval_seconds=INTERVAL_S,
        default_status=status,
        description=f"Starts a run of pipeline {pipeline.name} when records are pending in {parts.reads}. "
        "Dagster's daemon evaluates it every 5 s.",
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if told := keep_warm(pipeline):
            context.log.info(told)
        now_s, memory = time.time(), Memory.loads(context.cursor)
        looked = end_the_dead(context.instance, pipeline.name, memory.silences, now_s)
        for line in looked.ended:
            context.log.warning(line)
        memory = replace(memory, silences=looked.silences)
        if (gone := trigger.unreached(memory, now_s)) is not None:
            return dg.SensorResult(skip_reason=gone.reason, cursor=memory.dumps())
        try:
            sight = parts.watch.look()
        except CalveError as error:
            told = f"{error.message} → {error.hint}" if error.hint else error.message
            return dg.SensorResult(skip_reason=told, cursor=memory.not_reached(told, now_s).dumps())
        memory = memory.reached(sight, now_s)
        observations = list[dg.AssetObservation]()
        if trigger.worth_observing(memory, sight, now_s):
            memory = memory.observed(sight, now_s)
            observations += parts.watch.observations()
        decision = _decision(context, pipeline, parts.stage, sight, memory, now_s)
        if not decision.start:
            return dg.SensorResult(skip_reason=decision.reason, cursor=memory.dumps(), asset_events=observations)
        request = dg.RunRequest(tags={REASON_TAG: short(decision.reason)})
        return dg.SensorResult(run_requests=[request], cursor=memory.dumps(), asset_events=observations)

    return lag


def _decision(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, stage: str, sight: Sight, memory: Memory, now_s: float
) -> Decision:
    want = trigger.wanted(pipeline.config.trigger, sight, memory, now_s)
    if not want.start:
        return want
    runs = last_runs(context.instance, pipeline, stage)
    may = trigger.allowed(runs, sight, file=str(pipeline.path), config=pipeline.config_fingerprint, now_s=now_s)
    return want if may.start else Decision(False, f"{want.reason}; {may.reason}")
