"""The sensor's ticks as Dagster makes them, against a broker and an instance that are there."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import re
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka.admin import NewPartitions
from dagster import DagsterInstance
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.test_utils import create_run_for_test, freeze_time

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common import watch
from calve.orchestration.dagster.common.names import job_name, run_tags
from calve.orchestration.dagster.common.runs import IN_PROGRESS, failures_told
from calve.orchestration.dagster.common.topics import topic_key
from calve.orchestration.dagster.common.trigger import Memory
from calve.orchestration.dagster.sink.names import INGEST
from calve.orchestration.local.broker import Broker
from calve.sink_core.control.events import Event, Paused, Resumed
from calve.sink_core.control.log import CREATED_CONFIG
from calve.sink_core.detached import free_port
from calve.sink_core.errors import CalveError, FindingError, Unreachable
from calve.sink_core.kafka.source import end_offsets
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.pipelines import Flow
from tests.support import TIMEOUT_S, TopicFactory

GONE = Unreachable("no answer from broker:9092", hint="start it")
ROLLED_BACK = FindingError("table-rolled-back", "db.events", stored="1", found="2", hint="calve resolve p.yaml")
LOOK_TIMEOUT_S = watch.LOOK_TIMEOUT_S
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
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra=extra)


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
        memory = Memory.loads(self.cursor)
        assert memory.unreachable
        self.cursor = replace(memory, unreachable=replace(memory.unreachable, next_s=time.time())).dumps()

    @property
    def observed(self) -> list[tuple[dg.AssetKey, dict[str, Any]]]:
        """What the last tick observed."""
        assert self.last
        return [(e.asset_key, {k: v.value for k, v in e.metadata.items()}) for e in self.last.asset_events]

    def fail(self, error: Exception, seconds_ago: float = 0.0) -> None:
        """A run of the pipeline's that ended with `error`."""

        @dg.op
        def work(context: dg.OpExecutionContext) -> None:
            with failures_told(context.instance, context.run, self.flow.pipeline):
                raise error

        @dg.job(name=job_name(self.flow.pipeline, INGEST), tags=run_tags(self.flow.pipeline, INGEST))
        def job() -> None:
            work()

        with freeze_time(datetime.now(UTC) - timedelta(seconds=seconds_ago)):
            assert not job.execute_in_process(instance=self.instance, raise_on_error=False).success

    def succeed(self) -> None:
        @dg.op
        def work() -> None: ...

        @dg.job(name=job_name(self.flow.pipeline, INGEST), tags=run_tags(self.flow.pipeline, INGEST))
        def job() -> None:
            work()

        assert job.execute_in_process(instance=self.instance).success


@pytest.fixture
def sensor(flow: Flow, instance: DagsterInstance) -> Sensor:
    return Sensor(flow, instance)


def names(said: str | None, *values: object) -> bool:
    """Whether a reason has each of the values as a word of its own."""
    words = {word.strip("():;,.") for word in (said or "").split()}
    return {str(value) for value in values} <= words


def last_number(said: str) -> float:
    return float(re.findall(r"\d[\d.]*", said)[-1])


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
        try:
            end_offsets(flow.admin, [TopicPartition(topic, p) for p in range(partitions)], timeout_s=TIMEOUT_S)
        except CalveError:
            time.sleep(0.05)
        else:
            return


def test_the_first_run_is_requested_even_without_records(sensor: Sensor) -> None:
    assert sensor.reason().startswith(FIRST)
    assert sensor.observed == [
        (
            topic_key(sensor.flow.pipeline, sensor.flow.pipeline.config.source, sensor.flow.topic),
            {"lag": 0, "end offsets": 0},
        )
    ]


def test_a_pipeline_is_started_seen_caught_up_and_started_again(sensor: Sensor) -> None:
    flow = sensor.flow
    flow.produce(range(4))
    assert sensor.reason().startswith(FIRST)
    flow.run()
    assert (sensor.tick() or "").startswith(CAUGHT_UP)
    flow.produce(range(4, 8), partition=1)
    assert names(sensor.tick(), 4, "trigger.or_records", 10, "trigger.every", 3600)
    flow.produce(range(8, 1_208))
    assert names(sensor.reason(), "1,204", "trigger.or_records", 10)


def test_few_records_start_a_run_when_the_last_publish_was_long_ago(sensor: Sensor) -> None:
    sensor.flow.produce(range(3))
    sensor.flow.run()
    sensor.flow.produce(range(3, 6))
    assert sensor.tick() is not None
    memory = Memory.loads(sensor.cursor)
    sensor.cursor = replace(memory, seen_s=memory.seen_s - 3_600).dumps()
    reason = sensor.reason()
    assert names(reason, 3)
    assert any(3_600 <= int(number) < 3_610 for number in re.findall(r"\d+", reason))


def test_what_is_published_but_not_committed_does_not_wait_in_the_source(sensor: Sensor) -> None:
    sensor.flow.produce(range(50))
    sensor.flow.publish()
    assert (sensor.tick() or "").startswith(CAUGHT_UP)


def test_lag_and_ends_are_observed_when_they_come_and_go(waiting: Sensor) -> None:
    flow = waiting.flow
    key = topic_key(flow.pipeline, flow.pipeline.config.source, flow.topic)
    waiting.tick()
    assert waiting.observed == [(key, {"lag": 10, "end offsets": 10})]
    waiting.tick()
    assert waiting.observed == []
    flow.produce(range(5))
    waiting.tick()
    assert waiting.observed == [], "more of the same, within a minute"
    flow.run()
    waiting.tick()
    assert waiting.observed == [(key, {"lag": 0, "end offsets": 15})]
    [event] = (waiting.last.asset_events if waiting.last else None) or []
    assert event.tags == {}, "a data version would show the tables as out of sync"


def test_each_topic_is_observed(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, instance: Any) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(), kafka_topic(3))
    flow.run()
    sensor = Sensor(flow, instance)
    flow.produce(range(7), topic=flow.topics[1], partition=2)
    sensor.tick()
    assert {k.path[-1]: m["lag"] for k, m in sensor.observed} == {
        topic_key(flow.pipeline, flow.pipeline.config.source, topic).path[-1]: lag
        for topic, lag in zip(flow.topics, (0, 7), strict=True)
    }


# Dagster queues only runs of a code location; tests/e2e/dagster has those.
@pytest.mark.parametrize("status", [s for s in IN_PROGRESS if s != dg.DagsterRunStatus.QUEUED])
def test_a_run_under_way_is_waited_for(waiting: Sensor, status: dg.DagsterRunStatus) -> None:
    tags = run_tags(waiting.flow.pipeline, INGEST)
    run = create_run_for_test(waiting.instance, "job", status=status, tags=tags)
    skipped = waiting.tick() or ""
    assert names(skipped, 10, "trigger.or_records", run.run_id[:8])
    assert 0 <= last_number(skipped) < 60, "whatever time zone the instance stores"


def test_runs_of_others_do_not_matter(waiting: Sensor) -> None:
    pipeline = waiting.flow.pipeline
    for tags in (run_tags(pipeline, "commit"), {**run_tags(pipeline, INGEST), "calve/pipeline": "other"}, {}):
        create_run_for_test(waiting.instance, "job", status=dg.DagsterRunStatus.STARTED, tags=tags)
    assert waiting.tick() is None


def test_after_failures_the_next_try_waits_longer_and_longer(waiting: Sensor) -> None:
    waiting.fail(GONE, seconds_ago=35)
    assert waiting.tick() is None
    waiting.fail(GONE, seconds_ago=20)
    skipped = waiting.tick() or ""
    assert names(skipped, 10, "trigger.or_records", 2)
    assert 0 < skipped.find(GONE.message) < skipped.find(GONE.hint)
    assert 30 < last_number(skipped) <= 40
    waiting.succeed()
    assert waiting.tick() is None
    waiting.fail(GONE)
    assert GONE.message in (waiting.tick() or "")


def test_a_failure_without_an_explanation_names_the_run(waiting: Sensor) -> None:
    waiting.fail(RuntimeError("no error of ours"))
    [record] = waiting.instance.get_run_records(limit=1)
    assert names(waiting.tick(), record.dagster_run.run_id[:8])


def test_a_finding_stops_the_pipeline_until_somebody_answers(waiting: Sensor) -> None:
    file = waiting.flow.pipeline.path
    waiting.fail(ROLLED_BACK, seconds_ago=100_000)
    stopped = waiting.tick() or ""
    places = [stopped.find(part) for part in (ROLLED_BACK.message, ROLLED_BACK.hint, f"calve resume {file}")]
    assert -1 < places[0] < places[1] < places[2], "the error, what to do about it, and how to go on"
    tell(waiting.flow, Resumed)
    assert waiting.tick() is None
    waiting.fail(ROLLED_BACK)
    assert f"calve resume {file}" in (waiting.tick() or ""), "the answer was to the first"


def test_another_configuration_ends_a_stop(waiting: Sensor) -> None:
    waiting.fail(ROLLED_BACK)
    assert f"calve resume {waiting.flow.pipeline.path}" in (waiting.tick() or "")
    changed = waiting.flow.but(extra={**waiting.flow.extra, "on_bad_record": "stop"})
    assert Sensor(changed, waiting.instance).tick() is None


def test_a_pause_is_obeyed_and_told(waiting: Sensor) -> None:
    tell(waiting.flow, Paused, reason="upgrade")
    assert names(waiting.tick(), "ann", "upgrade")
    tell(waiting.flow, Resumed)
    assert waiting.tick() is None


def test_a_broker_out_of_reach_is_told_in_time_and_left_alone_for_a_while(
    tmp_path: Path, instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_TIMEOUT_S", LOOK_TIMEOUT_S)
    sensor = Sensor(Flow.create(tmp_path, f"127.0.0.1:{free_port()}", "nowhere"), instance)
    for times in (1, 2):
        begun = time.monotonic()
        told = sensor.tick() or ""
        assert time.monotonic() - begun < 6
        assert names(told, "nowhere", "`bootstrap.servers`")
        waits = sensor.tick() or ""
        assert told in waits
        assert waits != told
        memory = Memory.loads(sensor.cursor)
        assert memory.unreachable
        assert memory.unreachable.times == times
        sensor.due()


def test_a_topic_that_is_missing_is_told_and_found_once_it_is_there(
    tmp_path: Path, broker: Broker, instance: DagsterInstance
) -> None:
    topic = support.unique("late")
    sensor = Sensor(Flow.create(tmp_path, broker.bootstrap, topic), instance)
    told = sensor.tick() or ""
    assert names(told, topic, "UNKNOWN_TOPIC_OR_PART")
    support.create_topic(broker.bootstrap, topic)
    sensor.due()
    assert sensor.reason().startswith(FIRST)


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
    assert names(waiting.reason(), TopicPartition(flow.topic, 0), 10)
    anew = Sensor(flow, waiting.instance)
    assert names(anew.reason(), "topic-recreated", flow.topic)
    job = waiting.defs.resolve_job_def(job_name(flow.pipeline, INGEST))
    done = job.execute_in_process(instance=waiting.instance, raise_on_error=False)
    assert not done.success
    for sensor in (waiting, anew):
        stopped = sensor.tick() or ""
        assert names(stopped, "topic-recreated", flow.topic)
        assert f"calve resolve {flow.pipeline.path} topic-recreated --subject {flow.topic} --choose restart" in stopped


def test_new_partitions_are_read(waiting: Sensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_TOPICS_EVERY_S", 0.0)
    flow = waiting.flow
    flow.run()
    assert (waiting.tick() or "").startswith(CAUGHT_UP)
    flow.admin.create_partitions([NewPartitions(flow.topic, 5)])[flow.topic].result(TIMEOUT_S)
    for partition in (2, 3, 4):
        flow.produce(range(4), partition=partition)
    assert names(waiting.reason(), 12, "trigger.or_records", 10)


def test_a_control_topic_recreated_under_the_sensor_starts_a_run_that_names_it(waiting: Sensor) -> None:
    flow = waiting.flow
    flow.run()
    assert (waiting.tick() or "").startswith(CAUGHT_UP)
    recreate(flow, flow.pipeline.control_topic, 1, CREATED_CONFIG)
    assert names(waiting.reason(), "control-topic-truncated")
    assert waiting.reason().startswith(FIRST), "by the log as it is now; the run looks at the tables as well"
    job = waiting.defs.resolve_job_def(job_name(flow.pipeline, INGEST))
    assert not job.execute_in_process(instance=waiting.instance, raise_on_error=False).success
    assert names(waiting.tick(), "control-topic-recreated")


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
