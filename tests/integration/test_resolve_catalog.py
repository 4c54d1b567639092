"""A pipeline whose catalog was moved: `calve resolve … --choose move` binds it anew, or refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.log import REQUIRED_CONFIG
from calve.sink_core.control.trim import trim
from tests import damage, support
from tests.codes import finding, raises, says
from tests.integration.conftest import StartBroker
from tests.pipelines import Flow
from tests.resolving import refused, resolve, resolved, run_and_prove
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline with a batch in its table and ten records waiting."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20))
    return flow


def moved_catalog(flow: Flow) -> Flow:
    """The same pipeline with its catalog at another address; the tables' files stay where they are."""
    there = flow.but(lake=flow.lake.parent / "there")
    there.lake.mkdir()
    shutil.copy(flow.lake / "catalog.db", there.lake / "catalog.db")
    return there


def test_a_pipeline_goes_on_with_its_catalog_at_another_address(flow: Flow) -> None:
    there = moved_catalog(flow)
    said = resolved(there, "other-catalog", "move")
    assert flow.pipeline.catalog_fingerprint in said["does"][0]
    assert there.pipeline.catalog_fingerprint in said["does"][0]
    run_and_prove(there)
    assert there.ids() == list(range(20))
    first, second = flow.events(PipelineBound)
    assert (first.pipeline_id, first.control_topic_id) == (second.pipeline_id, second.control_topic_id)
    with raises(finding("other-catalog")):
        flow.run()


def test_a_trim_keeps_the_new_address(flow: Flow) -> None:
    there = moved_catalog(flow)
    resolved(there, "other-catalog", "move")
    there.run()
    with there.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    there.produce(range(20, 30))
    run_and_prove(there)
    assert there.ids() == list(range(30))


def test_a_catalog_without_the_tables_is_refused(flow: Flow) -> None:
    other = damage.configure_another_catalog(flow)
    refused(other, "other-catalog", "move", Code.NOT_POSSIBLE, "table-dropped")


def test_a_catalog_copied_before_the_last_commit_is_refused(flow: Flow) -> None:
    there = moved_catalog(flow)
    flow.run()
    refused(there, "other-catalog", "move", Code.NOT_POSSIBLE, "table-restored")


def test_a_copied_control_topic_is_answered_in_the_file(flow: Flow) -> None:
    copy = flow.but(name=support.unique("p").replace("-", "_"))
    support.create_topic(flow.bootstrap, copy.pipeline.control_topic, 1, REQUIRED_CONFIG)
    events = support.consume(flow.bootstrap, flow.pipeline.control_topic)
    support.produce(flow.bootstrap, copy.pipeline.control_topic, events)
    refused(copy, "renamed-pipeline", "takes_over", Code.NO_SUCH_CHOICE, "takes_over")
    assert support.consume(flow.bootstrap, copy.pipeline.control_topic) == events


def test_a_pipeline_is_not_rebuilt_on_another_cluster(flow: Flow, start_broker: StartBroker) -> None:
    there = start_broker()
    control = flow.pipeline.control_topic
    support.create_topic(there.bootstrap, flow.topic, 2)
    support.create_topic(there.bootstrap, control, 1, REQUIRED_CONFIG)
    support.produce(there.bootstrap, control, support.consume(flow.bootstrap, control))
    refused = resolve(flow.but(bootstrap=there.bootstrap), "other-cluster", "--choose", "rebuild", "--yes")
    assert refused.exit_code == 2
    says(refused.stderr, Code.NO_SUCH_CHOICE, "other-cluster", "bootstrap.servers")
