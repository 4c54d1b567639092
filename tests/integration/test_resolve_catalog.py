"""A pipeline whose catalog was moved: `calve resolve … --choose move` binds it anew, or refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestration.broker import Broker
from sink_core.control.events import PipelineBound
from sink_core.errors import FindingError
from sink_core.maintenance.trim import trim
from tests import damage
from tests.pipelines import Flow
from tests.resolving import resolve, resolved, run_and_prove
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
    assert said["does"][0] == f"catalog: {flow.pipeline.catalog_fingerprint} → {there.pipeline.catalog_fingerprint}"
    run_and_prove(there)
    assert there.ids() == list(range(20))
    first, second = flow.events(PipelineBound)
    assert (first.pipeline_id, first.control_topic_id) == (second.pipeline_id, second.control_topic_id)
    with pytest.raises(FindingError, match="other-catalog"):
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
    before = damage.world(flow)
    refused = resolve(other, "other-catalog", "--choose", "move", "--yes")
    assert refused.exit_code == 2
    assert "move is not possible: the tables there are not those of this pipeline: table-dropped" in refused.stderr
    assert damage.world(flow) == before


def test_a_catalog_copied_before_the_last_commit_is_refused(flow: Flow) -> None:
    there = moved_catalog(flow)
    flow.run()
    refused = resolve(there, "other-catalog", "--choose", "move", "--yes")
    assert refused.exit_code == 2
    assert "table-restored" in refused.stderr
