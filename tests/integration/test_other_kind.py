"""A source and a sink of one name in one deployment, as `calve init` makes them of one topic: the second is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.trim import trim
from calve.sink_core.source.plane import SourcePlane
from tests import support
from tests.codes import finding, raises
from tests.pipelines import Flow
from tests.source_flow import Made, lines_of

OTHER = finding("other-kind")


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Made:
    found = lines_of(broker, tmp_path)
    found.write("a", "1", "2")
    found.run()
    return found


def sink_of(made: Made, directory: Path) -> Flow:
    flow = Flow.create(directory, made.broker.bootstrap, made.topic, deployment=made.pipeline.deployment)
    return replace(flow, name=made.pipeline.name)


def test_a_sink_of_a_source_s_name_is_refused_and_nothing_is_written(made: Made, tmp_path: Path) -> None:
    flow = sink_of(made, tmp_path)
    assert flow.pipeline.control_topic == made.pipeline.control_topic
    before = support.consume(made.broker.bootstrap, made.pipeline.control_topic)
    for _ in range(2):
        with raises(OTHER, "source", "sink", flow.pipeline.control_topic, flow.pipeline.path):
            flow.run()
    assert support.consume(made.broker.bootstrap, made.pipeline.control_topic) == before
    assert made.run().ended == "caught up"


def test_also_where_a_checkpoint_stands_for_the_binding(made: Made, tmp_path: Path) -> None:
    with SourcePlane(made.pipeline) as plane:
        plane.bind()
        trim(plane, older_than_s=0.0)
        assert plane.log.log_start() > 0
    with raises(OTHER, "source", "sink"):
        sink_of(made, tmp_path).run()


def test_a_source_of_a_sink_s_name_is_refused(broker: Broker, tmp_path: Path) -> None:
    topic = support.create_topic(broker.bootstrap, support.unique("t"))
    (tmp_path / "sink").mkdir()
    made = lines_of(broker, tmp_path)
    flow = replace(
        Flow.create(tmp_path / "sink", broker.bootstrap, topic, deployment=made.pipeline.deployment),
        name=made.pipeline.name,
    )
    flow.produce(range(2))
    flow.run()
    with raises(OTHER, "source", "sink"):
        made.run()
