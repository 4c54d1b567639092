"""Objectives that are judged while no run starts: the watching sensor's ticks as Dagster makes them, and a broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.test_utils import create_run_for_test

from calve import Alert, build_pipeline_defs, check_alert_sensor
from calve.orchestration.dagster.common import watch
from calve.orchestration.dagster.common.dead import LIMITS_S, Silence
from calve.orchestration.dagster.common.names import CHECKS, run_tags
from calve.orchestration.dagster.sensor import Cursor
from calve.orchestration.dagster.sink import checks
from calve.orchestration.dagster.sink.names import INGEST
from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.orchestration.local.broker import Broker
from calve.sink_core.control.events import Event, Paused, Resumed
from calve.sink_core.detached import free_port
from calve.sink_core.sink.run import run_pipeline
from tests import support
from tests.codes import names
from tests.dagster_runs import run
from tests.pipelines import COLUMNS, Flow, record
from tests.support import TopicFactory

OBJECTIVES = {"objectives": {"lag": 2, "freshness": "1s"}}


@dataclass
class Watch:
    """With the cursor that the daemon keeps for it; what it says is stored as the daemon does it."""

    flow: Flow
    instance: DagsterInstance
    cursor: str | None = None
    alerts_cursor: str | None = None

    def __post_init__(self) -> None:
        self.posted: list[Alert] = []

    @cached_property
    def defs(self) -> dg.Definitions:
        alerts = check_alert_sensor(self.posted.append)
        return dg.Definitions.merge(build_pipeline_defs(self.flow.pipeline), dg.Definitions(sensors=[alerts]))

    def _tick(self, sensor: str, cursor: str | None) -> SensorExecutionData:
        with dg.build_sensor_context(self.instance, cursor, definitions=self.defs) as context:
            return self.defs.resolve_sensor_def(sensor).evaluate_tick(context)

    def tick(self) -> dict[str, bool]:
        """What was news, by check; whether it passed."""
        data = self._tick(f"{self.flow.name}_watch", self.cursor)
        self.cursor = data.cursor
        assert not data.run_requests
        for event in data.asset_events:
            self.instance.report_runless_asset_event(event)
        return {event.check_name: event.passed for event in data.asset_events}  # pyright: ignore

    def until(self, news: dict[str, bool]) -> None:
        """Tick until all of it was told, and nothing else."""
        left = dict(news)
        while left:
            for check, passed in self.tick().items():
                assert left.pop(check) == passed
            time.sleep(0.05)

    def alerts(self) -> list[str]:
        """Checks that were posted anew."""
        before = len(self.posted)
        for _ in range(3):
            self.alerts_cursor = self._tick("calve_check_alerts", self.alerts_cursor).cursor
        return sorted(alert.error for alert in self.posted[before:])


def tell(flow: Flow, kind: type[Paused] | type[Resumed], **values: str) -> None:
    with flow.session() as session:
        event: Event = kind(pipeline_id=session.bind().pipeline_id, by="ann", **values)
        session.log.append(event)


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra=OBJECTIVES)
    flow.produce(range(5))
    flow.run()
    return flow


@pytest.fixture
def watching(flow: Flow, instance: DagsterInstance) -> Watch:
    watching = Watch(flow, instance)
    watching.until({"lag": True, "freshness": True})
    return watching


def test_a_pipeline_whose_runs_do_not_start_turns_red_and_is_posted_and_good_once_all_has_arrived(
    watching: Watch,
) -> None:
    flow = watching.flow
    tell(flow, Paused, reason="upgrade")
    flow.produce(range(5, 10))
    watching.until({"lag": False, "freshness": False})
    assert watching.alerts() == ["freshness", "lag"]
    assert {(alert.pipeline, alert.stage, alert.run_id) for alert in watching.posted} == {(flow.name, CHECKS, "")}
    assert watching.tick() == {}, "it is told once"
    assert watching.alerts() == []
    tell(flow, Resumed)
    flow.run()
    watching.until({"lag": True, "freshness": True})
    assert watching.alerts() == []


def test_a_record_that_comes_after_a_long_rest_is_as_old_as_it_is(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, instance: DagsterInstance
) -> None:
    """The valid-through time is that of the last record, a year ago; the other partition has none at all."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra={"objectives": {"freshness": "10m"}})
    year_ago_ms = (time.time_ns() - 365 * 86_400 * 10**9) // 1_000_000
    support.produce(flow.bootstrap, flow.topic, [record(0)], timestamps=[year_ago_ms])
    flow.run()
    watching = Watch(flow, instance)
    watching.until({"freshness": True})
    flow.produce(range(1, 2))
    assert watching.tick() == {}


def test_a_run_that_moves_something_leaves_the_objectives_to_the_sensor_and_the_job_of_the_checks_does_not(
    watching: Watch,
) -> None:
    flow, instance = watching.flow, watching.instance
    flow.produce(range(5, 6))
    judged = [{name for _, name in run(flow, instance, stage).checks} for stage in (INGEST, CHECKS)]
    assert judged[1] - judged[0] == {"lag", "freshness"}


def test_a_table_that_is_held_turns_red_alone(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, instance: DagsterInstance
) -> None:
    topics, good, bad = (kafka_topic(1), kafka_topic(1)), "db.good", "db.bad"
    columns = {"auto_create": {"columns": COLUMNS}}
    tables = [{"name": n, "topics": [t], **columns} for n, t in zip((good, bad), topics, strict=True)]
    extra = {"tables": tables, "objectives": {"freshness": "10m"}}
    flow = Flow.create(tmp_path, broker.bootstrap, *topics, tables=(good, bad), extra=extra)
    flow.run()
    Path(flow.load_table(bad).metadata_location.removeprefix("file://")).unlink()
    for topic in topics:
        flow.produce(range(1), topic=topic)
    with flow.session() as session:
        assert [*run_pipeline(session).failed] == [bad]
    watched = SinkWatch(flow.pipeline)
    watched.look()
    assert watched.through_s().keys() == {good}
    # The job of the checks goes by times of records, also while one waits for the other table.
    flow.produce(range(1, 2), topic=topics[0])
    with flow.session() as session:
        judged = {
            each.subject: each.passed for each in checks.look(flow.pipeline, session) if each.check == "freshness"
        }
    assert judged == {good: True, bad: False}


def test_a_broker_that_is_silent_turns_both_red(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_TIMEOUT_S", 0.2)
    watching = Watch(Flow.create(tmp_path, f"127.0.0.1:{free_port()}", "nowhere", extra=OBJECTIVES), instance)
    watching.until({"freshness": False})
    before = Cursor.loads(watching.cursor)
    minute_ago = replace(before.objectives, seen_s=before.objectives.seen_s - 60)
    watching.cursor = replace(before, objectives=minute_ago).dumps()
    assert watching.tick() == {"lag": False}
    assert watching.alerts() == ["freshness", "lag"]
    for alert in watching.posted:
        names(alert.message, "nowhere")
    watch._shared_admin.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_a_dead_run_ends_whether_the_other_sensor_looks_or_not_and_without_objectives(
    tmp_path: Path, broker: Broker, instance: DagsterInstance
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, support.unique("topic"))
    dead = create_run_for_test(
        instance, "job", status=dg.DagsterRunStatus.STARTED, tags=run_tags(flow.pipeline, INGEST)
    )
    watching = Watch(flow, instance)
    assert watching.tick() == {}
    before = Cursor.loads(watching.cursor)
    silent = Silence(before.silences.of[dead.run_id].mark, LIMITS_S[dg.DagsterRunStatus.STARTED])
    watching.cursor = replace(before, silences=replace(before.silences, of={dead.run_id: silent})).dumps()
    watching.tick()
    ended = instance.get_run_by_id(dead.run_id)
    assert ended is not None
    assert ended.status == dg.DagsterRunStatus.FAILURE
