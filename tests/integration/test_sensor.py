"""The sensor's ticks as Dagster makes them, against a broker and an instance that are there."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import re
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka.admin import NewPartitions
from dagster import DagsterInstance
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.test_utils import create_run_for_test

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common import watch
from calve.orchestration.dagster.common.dead import LIMITS_S, Silence
from calve.orchestration.dagster.common.names import job_name, run_tags
from calve.orchestration.dagster.common.runs import failures_told
from calve.orchestration.dagster.common.topics import topic_key
from calve.orchestration.dagster.sensor import Cursor
from calve.orchestration.dagster.sink.names import INGEST
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Event, Paused, Resumed
from calve.sink_core.control.log import CREATED_CONFIG
from calve.sink_core.errors import CalveError, FindingError, Unreachable
from calve.sink_core.kafka.source import end_offsets
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.codes import names, raises
from tests.dagster_runs import run
from tests.pipelines import COLUMNS, Flow
from tests.support import TIMEOUT_S, TopicFactory

GONE = Unreachable("no answer from broker:9092", hint="start it")
ROLLED_BACK = FindingError("table-rolled-back", "db.events", stored="1", found="2", hint="calve resolve p.yaml")
FIRST, CAUGHT_UP = "first run", "caught up"
"""What a reason to start a run, and one to skip it, begin with that have no number to go by."""


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Clients of brokers that are gone would go on looking for them. Beside other tests a broker may take its time."""
    monkeypatch.setattr(watch, "LOOK_TIMEOUT_S", 20.0)
    yield
    watch._shared_admin.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A run is due at ten records, or when any has waited for an hour."""
    extra = {"trigger": {"every": "1h", "or_records": 10}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), kafka_topic(), extra=extra)


@dataclass
class Sensor:
    """A pipeline's sensor in one code server, with the cursor that the daemon keeps for it."""

    flow: Flow
    instance: DagsterInstance
    cursor: str | None = None
    last: SensorExecutionData | None = None

    @cached_property
    def defs(self) -> dg.Definitions:
        return build_pipeline_defs(self.flow.pipeline)

    def tick(self) -> str | None:
        """The skip reason; None if a run was requested."""
        with dg.build_sensor_context(self.instance, self.cursor, definitions=self.defs) as context:
            data = self.defs.resolve_sensor_def(f"{self.flow.name}_lag").evaluate_tick(context)
        self.last, self.cursor = data, data.cursor
        assert len(data.run_requests or []) == (0 if data.skip_message else 1)
        return data.skip_message

    def reason(self) -> str:
        """Why the run of this tick was requested."""
        skipped = self.tick()
        assert skipped is None
        assert self.last
        [request] = self.last.run_requests or []
        assert request.run_key is None, "a failed run would use it up"
        return request.tags["calve/reason"]

    def due(self) -> None:
        """Let the time pass until an unreachable source is asked again."""
        before = Cursor.loads(self.cursor)
        assert before.memory.unreachable
        due = replace(before.memory.unreachable, next_s=time.time())
        self.cursor = replace(before, memory=replace(before.memory, unreachable=due)).dumps()

    def observed(self) -> list[tuple[int, int]]:
        """Lag and end of each topic as the last tick observed them; nothing if it did not."""
        assert self.last
        found = {event.asset_key: event for event in self.last.asset_events}
        assert not any(event.tags for event in found.values()), "a data version would show the tables as out of sync"
        keys = [topic_key(self.flow.pipeline, self.flow.pipeline.config.source, name) for name in self.flow.topics]
        assert found.keys() in (set(), set(keys))
        said = [found[key].metadata for key in keys if found]
        return [(each["lag"].value, each["end offsets"].value) for each in said]

    def let_pass(self, seconds_ago: float) -> None:
        """Let so much time pass since a tick saw the last failure."""
        assert self.tick()
        before = Cursor.loads(self.cursor)
        earlier = replace(before.memory, failure_seen_s=before.memory.failure_seen_s - seconds_ago)
        self.cursor = replace(before, memory=earlier).dumps()

    def fail(self, error: Exception) -> None:
        """A run of the pipeline's that ended with `error`."""

        @dg.op
        def work(context: dg.OpExecutionContext) -> None:
            with failures_told(context.instance, context.run, self.flow.pipeline):
                raise error

        @dg.job(name=job_name(self.flow.pipeline, INGEST), tags=run_tags(self.flow.pipeline, INGEST))
        def job() -> None:
            work()

        assert not job.execute_in_process(instance=self.instance, raise_on_error=False).success


@pytest.fixture
def sensor(flow: Flow, instance: DagsterInstance) -> Sensor:
    return Sensor(flow, instance)


@pytest.fixture
def waiting(sensor: Sensor) -> Sensor:
    """Caught up once, then ten records came."""
    sensor.flow.run()
    sensor.flow.produce(range(10))
    return sensor


def tell(flow: Flow, kind: type[Paused] | type[Resumed], **values: str) -> None:
    with flow.session() as session:
        event: Event = kind(pipeline_id=session.bind().pipeline_id, by="ann", **values)
        session.log.append(event)


def recreate(flow: Flow, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Until the broker answers for the new one."""
    flow.recreate_topic(topic, partitions, config)
    while True:
        with suppress(CalveError):
            ends = end_offsets(flow.admin, [TopicPartition(topic, p) for p in range(partitions)], timeout_s=TIMEOUT_S)
            if not any(ends.values()):
                return
        time.sleep(0.05)


def test_a_pipeline_is_started_seen_caught_up_and_started_again(sensor: Sensor) -> None:
    flow = sensor.flow
    assert sensor.reason().startswith(FIRST), "even without records"
    assert sensor.observed() == [(0, 0), (0, 0)]
    flow.run()
    assert (sensor.tick() or "").startswith(CAUGHT_UP)
    flow.produce(range(4), partition=1)
    names(sensor.tick() or "", 4, "trigger.or_records", 10, "trigger.every", 3600)
    assert sensor.observed() == [(4, 4), (0, 0)]
    flow.produce(range(4, 1_204), topic=flow.topics[1])
    names(sensor.reason(), "1,204", "trigger.or_records", 10)
    assert sensor.observed() == [], "more of the same, within a minute"
    flow.run()
    assert (sensor.tick() or "").startswith(CAUGHT_UP)
    assert sensor.observed() == [(0, 4), (0, 1_200)]


def test_failed_runs_and_a_pause_hold_it_back_until_somebody_answers(waiting: Sensor) -> None:
    flow, file = waiting.flow, waiting.flow.pipeline.path
    waiting.fail(GONE)
    waiting.let_pass(seconds_ago=35)
    assert waiting.tick() is None
    waiting.fail(GONE)
    waiting.let_pass(seconds_ago=20)
    skipped = waiting.tick() or ""
    names(skipped, 10, "trigger.or_records", 2)
    assert 0 < skipped.find(GONE.message) < skipped.find(GONE.hint)
    assert 30 < float(re.findall(r"\d[\d.]*", skipped)[-1]) <= 40
    waiting.fail(ROLLED_BACK)
    stopped = waiting.tick() or ""
    places = [stopped.find(part) for part in (ROLLED_BACK.message, ROLLED_BACK.hint, f"calve resume {file}")]
    assert -1 < places[0] < places[1] < places[2], "the error, what to do about it, and how to go on"
    changed = flow.but(extra={**flow.extra, "on_bad_record": "stop"})
    assert Sensor(changed, waiting.instance).tick() is None, "another configuration ends a stop"
    tell(flow, Paused, reason="upgrade")
    names(waiting.tick() or "", "ann", "upgrade")
    tell(flow, Resumed)
    assert waiting.tick() is None


def test_topics_that_are_held_back_for_a_table_start_no_runs_of_their_own(
    flow: Flow, instance: DagsterInstance
) -> None:
    columns = {"auto_create": {"columns": COLUMNS}}
    tables = [{"name": f"db.t{i}", "topics": [topic], **columns} for i, topic in enumerate(flow.topics)]
    flow = flow.but(tables=("db.t0", "db.t1"), extra={**flow.extra, "tables": tables})
    flow.run()
    sensor = Sensor(flow, instance)
    assert (sensor.tick() or "").startswith(CAUGHT_UP)
    Path(flow.load_table("db.t1").metadata_location.removeprefix("file://")).unlink()
    flow.produce(range(20), topic=flow.topics[1])
    assert sensor.tick() is None
    for read in (0, 9):
        flow.produce(range(read))
        with raises(Code.METADATA_GONE, "db.t1") as raised:
            flow.run()
        sensor.fail(raised.value)
        names(sensor.tick() or "", "db.t1")
        flow.produce(range(9))
        names(sensor.tick() or "", 9, "trigger.or_records")
        flow.produce(range(1))
        names(sensor.reason(), 10, "trigger.or_records")
        with raises(Code.METADATA_GONE):
            flow.run()
    sensor.let_pass(seconds_ago=70)
    assert sensor.tick() is None, "the table is tried again now and then"


def test_a_topic_that_is_missing_is_told_and_found_once_it_is_there(
    tmp_path: Path, broker: Broker, instance: DagsterInstance
) -> None:
    topic = support.unique("late")
    sensor = Sensor(Flow.create(tmp_path, broker.bootstrap, topic), instance)
    for times in (1, 2):
        told = sensor.tick() or ""
        names(told, topic, "UNKNOWN_TOPIC_OR_PART")
        waits = sensor.tick() or ""
        assert told in waits
        assert waits != told
        memory = Cursor.loads(sensor.cursor).memory
        assert memory.unreachable
        assert memory.unreachable.times == times
        sensor.due()
    support.create_topic(broker.bootstrap, topic)
    assert sensor.reason().startswith(FIRST)


def test_a_run_by_hand_that_failed_waits_for_an_answer_that_it_did_not_have(waiting: Sensor) -> None:
    flow = waiting.flow
    tell(flow, Resumed)
    flow.run()
    flow.recreate_table()
    flow.produce(range(10, 20))
    assert not run(flow, waiting.instance).result.success
    assert waiting.tick(), "no sensor has asked for it, and nobody has answered since"
    tell(flow, Resumed)
    assert waiting.tick() is None


def test_a_dead_run_ends_also_while_the_source_is_not_even_looked_at(
    broker: Broker, instance: DagsterInstance, tmp_path: Path
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, support.unique("topic"))
    tags, sensor = run_tags(flow.pipeline, INGEST), Sensor(flow, instance)
    run = create_run_for_test(instance, "job", status=dg.DagsterRunStatus.STARTED, tags=tags)
    assert sensor.tick()
    before = Cursor.loads(sensor.cursor)
    silent = Silence(before.silences.of[run.run_id].mark, LIMITS_S[dg.DagsterRunStatus.STARTED])
    sensor.cursor = replace(before, silences=replace(before.silences, of={run.run_id: silent})).dumps()
    assert sensor.tick()
    assert Cursor.loads(sensor.cursor).memory == before.memory, "it was asked"
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status == dg.DagsterRunStatus.FAILURE


def test_pipelines_of_one_cluster_share_their_client(waiting: Sensor, tmp_path: Path) -> None:
    shared = watch._shared_admin  # pyright: ignore[reportPrivateUsage]
    other = Sensor(Flow.create(tmp_path, waiting.flow.bootstrap, waiting.flow.topic), waiting.instance)
    shared.cache_clear()
    for sensor in (waiting, other, waiting, other):
        assert sensor.tick() is None
    assert (shared.cache_info().misses, shared.cache_info().currsize) == (1, 1)


def test_a_topic_recreated_starts_a_run_that_stops_with_the_finding(waiting: Sensor) -> None:
    flow = waiting.flow
    flow.run()
    assert (waiting.tick() or "").startswith(CAUGHT_UP)
    recreate(flow, flow.topic, 2)
    names(waiting.reason(), TopicPartition(flow.topic, 0), 10)
    anew = Sensor(flow, waiting.instance)
    names(anew.reason(), "topic-recreated", flow.topic)
    job = waiting.defs.resolve_job_def(job_name(flow.pipeline, INGEST))
    done = job.execute_in_process(instance=waiting.instance, raise_on_error=False)
    assert not done.success
    for sensor in (waiting, anew):
        stopped = sensor.tick() or ""
        names(stopped, "topic-recreated", flow.topic)
        assert f"calve resolve {flow.pipeline.path} topic-recreated --subject {flow.topic} --choose restart" in stopped


def test_new_partitions_are_read(waiting: Sensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_TOPICS_EVERY_S", 0.0)
    flow = waiting.flow
    flow.run()
    assert (waiting.tick() or "").startswith(CAUGHT_UP)
    flow.admin.create_partitions([NewPartitions(flow.topic, 5)])[flow.topic].result(TIMEOUT_S)
    for partition in (2, 3, 4):
        flow.produce(range(4), partition=partition)
    names(waiting.reason(), 12, "trigger.or_records", 10)


def test_a_control_topic_recreated_under_the_sensor_starts_a_run_that_names_it(waiting: Sensor) -> None:
    flow = waiting.flow
    flow.run()
    assert (waiting.tick() or "").startswith(CAUGHT_UP)
    recreate(flow, flow.pipeline.control_topic, 1, CREATED_CONFIG)
    names(waiting.reason(), "control-topic-truncated")
    assert waiting.reason().startswith(FIRST), "by the log as it is now; the run looks at the tables as well"
    job = waiting.defs.resolve_job_def(job_name(flow.pipeline, INGEST))
    assert not job.execute_in_process(instance=waiting.instance, raise_on_error=False).success
    names(waiting.tick() or "", "control-topic-recreated")


def test_a_control_topic_deleted_under_the_sensor_does_not_silence_it(waiting: Sensor) -> None:
    flow = waiting.flow
    flow.run()
    assert (waiting.tick() or "").startswith(CAUGHT_UP)
    for done in flow.admin.delete_topics([flow.pipeline.control_topic]).values():
        done.result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    # A broker answers for a deleted topic until it hears of it.
    while (told := waiting.tick() or "").startswith(CAUGHT_UP):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert flow.pipeline.control_topic in told
    waiting.due()
    assert waiting.reason().startswith(FIRST)
