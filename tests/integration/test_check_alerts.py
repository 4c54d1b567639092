"""Red checks of a real pipeline on a Dagster instance, and the ticks of the sensor that posts them."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from calve import Alert, build_pipeline_defs, check_alert_sensor
from calve.orchestration.dagster.alerts import NotPosted
from calve.orchestration.dagster.common.names import CHECKS, job_name
from calve.orchestration.local.broker import Broker
from tests import support
from tests.dagster_runs import run
from tests.pipelines import Flow
from tests.support import TopicFactory


@pytest.fixture(scope="module")
def instance() -> Generator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


@dataclass
class Sensor:
    """With the cursor that the daemon keeps for it; what it posted."""

    flow: Flow
    instance: DagsterInstance
    warnings: bool = False
    refusing: bool = False
    refuses: str = ""
    cursor: str | None = None
    posted: list[Alert] = field(default_factory=list[Alert])

    def __post_init__(self) -> None:
        self.sensor = check_alert_sensor(self._post, warnings=self.warnings)
        pipelines = build_pipeline_defs(self.flow.pipeline)
        self.repository = dg.Definitions.merge(pipelines, dg.Definitions(sensors=[self.sensor])).get_repository_def()

    def _post(self, alert: Alert) -> None:
        if self.refusing or alert.error == self.refuses:
            raise OSError("503")
        self.posted.append(alert)

    def look(self) -> list[str]:
        """Tick until nothing is posted; the checks that were."""
        before = len(self.posted)
        while True:
            seen = len(self.posted)
            context = dg.build_sensor_context(
                instance=self.instance, cursor=self.cursor, repository_def=self.repository
            )
            self.cursor = self.sensor.evaluate_tick(context).cursor
            if len(self.posted) == seen:
                return sorted(alert.error for alert in self.posted[before:])


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), extra={"objectives": {"lag": 2}})
    flow.produce(range(5))
    flow.run()
    return flow


def test_a_check_is_posted_when_it_turns_red_and_again_only_after_it_was_good(
    flow: Flow, instance: DagsterInstance
) -> None:
    sensor = Sensor(flow, instance)
    assert sensor.look() == [], "it was never made"
    run(flow, instance, CHECKS)
    assert sensor.look() == []
    flow.produce(range(5, 10))
    red = run(flow, instance, CHECKS)
    assert sensor.look() == ["lag"]
    [alert] = sensor.posted
    assert (alert.pipeline, alert.stage, alert.run_id) == (flow.name, CHECKS, red.result.run_id)
    asset, _, said = alert.message.partition(": ")
    assert asset == f"{flow.name}/{flow.name}_batches"
    assert re.findall(r"\d+", said) == ["5", "2"]
    assert alert.job_name == job_name(flow.pipeline, CHECKS)
    run(flow, instance, CHECKS)
    assert sensor.look() == [], "it is red still"
    flow.run()
    run(flow, instance, CHECKS)
    assert sensor.look() == []
    flow.produce(range(10, 15))
    run(flow, instance, CHECKS)
    assert sensor.look() == ["lag"]


def test_what_could_not_be_posted_is_posted_by_the_next_tick(flow: Flow, instance: DagsterInstance) -> None:
    sensor = Sensor(flow, instance, refusing=True)
    flow.produce(range(5, 10))
    run(flow, instance, CHECKS)
    with pytest.raises(NotPosted, match=f"lag of {flow.name}/.* could not be posted"):
        sensor.look()
    sensor.refusing = False
    assert sensor.look() == ["lag"]


def test_a_check_that_can_not_be_posted_keeps_back_no_other(flow: Flow, instance: DagsterInstance) -> None:
    sensor = Sensor(flow, instance, warnings=True, refuses="lag")
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 5, "more": 1}'])
    flow.run()
    flow.produce(range(6, 11))
    run(flow, instance, CHECKS)
    for _ in range(2):
        with pytest.raises(NotPosted, match=f"lag of {flow.name}/.* could not be posted"):
            sensor.look()
    assert [alert.error for alert in sensor.posted] == ["dropped_fields"]


def test_warnings_are_posted_if_wanted(flow: Flow, instance: DagsterInstance) -> None:
    quiet, loud = Sensor(flow, instance), Sensor(flow, instance, warnings=True)
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 5, "more": 1}'])
    flow.run()
    run(flow, instance, CHECKS)
    assert (quiet.look(), loud.look()) == ([], ["dropped_fields"])
