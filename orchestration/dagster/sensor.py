"""The sensors of a pipeline. One starts runs: two bounded questions to Kafka, and to the instance which runs are in
progress. One watches, also while the first is off or its runs don't start: it judges the objectives by what it sees.
Both end runs that have died.
"""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import dagster as dg
from pydantic import TypeAdapter

from calve.orchestration.dagster.common import arrivals, trigger
from calve.orchestration.dagster.common.checks import KeyOf, evaluation_of, told
from calve.orchestration.dagster.common.dead import Silences, end_the_dead
from calve.orchestration.dagster.common.names import ANSWER_TAG
from calve.orchestration.dagster.common.parts import Parts
from calve.orchestration.dagster.common.runs import last_runs, short
from calve.orchestration.dagster.common.spark import keep_warm
from calve.orchestration.dagster.common.trigger import Decision, LastRuns, Memory, Sight
from calve.orchestration.dagster.common.verdicts import Verdict
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError
from calve.sink_core.hidden import hushing

INTERVAL_S = 1
"""Dagster looks every 5 s which sensors are due. A tick that had to wait for a thread begins late in its round; with an
interval near 5 the next look would come too early for it, and it would wait for the one after."""

WATCH_MOST_S = 29
"""Every sixth of Dagster's rounds; more often where half of `objectives.freshness` is less."""

REASON_TAG = "calve/reason"


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a tick of either sensor leaves for its next one."""

    silences: Silences = field(default_factory=Silences)
    memory: Memory = field(default_factory=Memory)
    objectives: arrivals.Memory = field(default_factory=arrivals.Memory)

    def dumps(self) -> str:
        return _CURSOR.dump_json(self).decode()

    @classmethod
    def loads(cls, cursor: str | None) -> "Cursor":
        """Of a cursor; a fresh one if there is none, or one of another version."""
        try:
            return _CURSOR.validate_json(cursor or "{}")
        except ValueError:
            return cls()


_CURSOR = TypeAdapter(Cursor)


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
    @hushing()
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if warmed := keep_warm(pipeline):
            context.log.info(warmed)
        now_s = time.time()
        before = _without_the_dead(context, pipeline, now_s)
        memory = before.memory

        def result(said: str | dg.RunRequest, memory: Memory, *events: dg.AssetObservation) -> dg.SensorResult:
            cursor = replace(before, memory=memory).dumps()
            if isinstance(said, str):
                return dg.SensorResult(skip_reason=said, cursor=cursor, asset_events=events)
            return dg.SensorResult(run_requests=[said], cursor=cursor, asset_events=events)

        if (gone := trigger.unreached(memory, now_s)) is not None:
            return result(gone.reason, memory)
        try:
            sight = parts.watch.look()
        except CalveError as error:
            return result(_said(error), memory.not_reached(_said(error), now_s))
        memory = memory.reached(sight, now_s)
        observations = list[dg.AssetObservation]()
        if trigger.worth_observing(memory, sight, now_s):
            memory = memory.observed(sight, now_s)
            observations += parts.watch.observations()
        decision = trigger.wanted(pipeline.config.trigger, sight, memory, now_s)
        if decision.start:
            runs = last_runs(context.instance, pipeline, parts.stage)
            memory = memory.failed(runs, now_s)
            beside = sight.beside(runs.held)
            decision = trigger.wanted(pipeline.config.trigger, beside, memory, now_s)
            decision = _allowed(decision, pipeline, runs, beside, memory, now_s)
        tags = {REASON_TAG: short(decision.reason), ANSWER_TAG: sight.answer or ""}
        return result(dg.RunRequest(tags=tags) if decision.start else decision.reason, memory, *observations)

    return lag


def watch_sensor(pipeline: Pipeline, parts: Parts) -> dg.SensorDefinition:
    """Judges the objectives that the file sets, each time a verdict is another one than the last that Dagster has.

    It starts nothing, and runs where nothing is automatic too. Dagster keeps what a sensor says for ever: only news.
    """
    objectives, key_of = pipeline.config.objectives, parts.key_of
    most_s = objectives.freshness
    judges = key_of is not None and (most_s is not None or objectives.lag is not None)

    @dg.sensor(
        name=f"{pipeline.name}_watch",
        minimum_interval_seconds=WATCH_MOST_S if most_s is None else max(1, min(WATCH_MOST_S, int(most_s / 2) - 1)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Looks after pipeline {pipeline.name}, whether runs of it start or not: judges its objectives and "
        "ends runs that have died.",
    )
    @hushing()
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now_s = time.time()
        before = _without_the_dead(context, pipeline, now_s)
        if not judges or key_of is None:
            return dg.SensorResult(skip_reason="the file sets no objective for it to judge", cursor=before.dumps())
        sight, why = None, ""
        try:
            sight = parts.watch.look()
        except CalveError as error:
            why = _said(error)
        memory = before.objectives.after(sight, parts.watch.through_s(), now_s)
        verdicts = [*memory.judged(objectives, sight, why, parts.fresh, now_s)]
        return dg.SensorResult(
            skip_reason="; ".join(verdict.text for verdict in verdicts if not verdict.passed)
            or (f"{sight.lag:,} records wait, as the objectives allow" if sight else why),
            cursor=replace(before, objectives=memory).dumps(),
            asset_events=[*told(_news(context, verdicts, key_of), key_of)],
        )

    return watch


def _news(context: dg.SensorEvaluationContext, verdicts: list[Verdict], key_of: KeyOf) -> Iterator[Verdict]:
    """Those that say another thing than Dagster has of their checks, whoever said it."""
    keys = [dg.AssetCheckKey(key_of(verdict.subject), verdict.check) for verdict in verdicts]
    last = context.instance.event_log_storage.get_asset_check_summary_records(keys)
    for key, verdict in zip(keys, verdicts, strict=True):
        evaluation = evaluation_of(last[key].last_completed_check_execution_record)
        if evaluation is None or evaluation.passed != verdict.passed:
            yield verdict


def _without_the_dead(context: dg.SensorEvaluationContext, pipeline: Pipeline, now_s: float) -> Cursor:
    """What the last tick left; runs that have died are ended."""
    before = Cursor.loads(context.cursor)
    looked = end_the_dead(context.instance, pipeline.name, before.silences, now_s)
    for line in looked.ended:
        context.log.warning(line)
    return replace(before, silences=looked.silences)


def _said(error: CalveError) -> str:
    return f"{error.message} → {error.hint}" if error.hint else error.message


def _allowed(
    want: Decision, pipeline: Pipeline, runs: LastRuns, sight: Sight, memory: Memory, now_s: float
) -> Decision:
    if not want.start:
        return want
    file, config = str(pipeline.path), pipeline.config_fingerprint
    may = trigger.allowed(runs, sight, memory, file=file, config=config, now_s=now_s)
    return want if may.start else Decision(False, f"{want.reason}; {may.reason}")
