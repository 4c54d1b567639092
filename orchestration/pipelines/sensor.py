"""The sensor that starts runs: two bounded questions to Kafka, and the instance only when a run is wanted."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.pipelines import trigger
from calve.orchestration.pipelines.names import pattern_key, topic_key
from calve.orchestration.pipelines.runs import last_runs, short
from calve.orchestration.pipelines.trigger import Decision, Memory, Sight
from calve.orchestration.pipelines.watch import Watch
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError

if TYPE_CHECKING:
    from calve.orchestration.compat import UnresolvedAssetJobDefinition as JobDefinition

INTERVAL_S = 1
"""Dagster looks every 5 s which sensors are due. A tick that had to wait for a thread begins late in its round; with an
interval near 5 the next look would come too early for it, and it would wait for the one after."""

REASON_TAG = "calve/reason"


def lag_sensor(pipeline: Pipeline, job: "JobDefinition", watch: Watch) -> dg.SensorDefinition:
    """Starts `job` when records wait, and says in each tick what it saw."""
    status = dg.DefaultSensorStatus.RUNNING if pipeline.config.dagster.automatic else dg.DefaultSensorStatus.STOPPED

    @dg.sensor(
        name=f"{pipeline.name}_lag",
        job=job,
        minimum_interval_seconds=INTERVAL_S,
        default_status=status,
        description=f"Starts a run of pipeline {pipeline.name} when records are pending in topic "
        f"{', '.join(_sources(pipeline))}. Dagster's daemon evaluates it every 5 s.",
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        now_s, memory = time.time(), Memory.loads(context.cursor)
        if (gone := trigger.unreached(memory, now_s)) is not None:
            return dg.SkipReason(gone.reason)
        try:
            sight = watch.look()
        except CalveError as error:
            told = f"{error.message} → {error.hint}" if error.hint else error.message
            return dg.SensorResult(skip_reason=told, cursor=memory.not_reached(told, now_s).dumps())
        memory = memory.reached(sight, now_s)
        observations = list[dg.AssetObservation]()
        if trigger.worth_observing(memory, sight, now_s):
            memory = memory.observed(sight, now_s)
            observations = _observations(pipeline, watch)
        decision = _decision(context, pipeline, sight, memory, now_s)
        if not decision.start:
            return dg.SensorResult(skip_reason=decision.reason, cursor=memory.dumps(), asset_events=observations)
        request = dg.RunRequest(tags={REASON_TAG: short(decision.reason)})
        return dg.SensorResult(run_requests=[request], cursor=memory.dumps(), asset_events=observations)

    return lag


def _sources(pipeline: Pipeline) -> list[str]:
    pattern = pipeline.config.source.topics_regex
    return [*pipeline.config.source.topics, *([f"matching {pattern}"] if pattern else [])]


def _decision(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, sight: Sight, memory: Memory, now_s: float
) -> Decision:
    want = trigger.wanted(pipeline.config.trigger, sight, memory, now_s)
    if not want.start:
        return want
    runs = last_runs(context.instance, pipeline)
    may = trigger.allowed(runs, sight, file=str(pipeline.path), config=pipeline.config_fingerprint, now_s=now_s)
    return want if may.start else Decision(False, f"{want.reason}; {may.reason}")


def _observations(pipeline: Pipeline, watch: Watch) -> list[dg.AssetObservation]:
    """Without a data version: the tables would be shown as out of sync whenever the topic moves."""
    named, by_topic = pipeline.config.source.topics, watch.by_topic()
    found = [
        dg.AssetObservation(topic_key(pipeline, topic), metadata={"lag": seen.lag, "end offsets": seen.end})
        for topic, seen in by_topic.items()
        if topic in named
    ]
    if pipeline.config.source.topics_regex is not None:
        others = [seen for topic, seen in by_topic.items() if topic not in named]
        known = {"topics": len(others), "lag": sum(s.lag for s in others), "end offsets": sum(s.end for s in others)}
        found.append(dg.AssetObservation(pattern_key(pipeline), metadata=known))
    return found
