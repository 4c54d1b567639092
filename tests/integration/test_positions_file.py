"""Positions exported from one pipeline and imported into another: nothing is lost or read twice in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tables.log.events import DataComplete
from tests.codes import raises, says
from tests.pipelines import Flow
from tests.resolving import run_and_prove
from tests.support import TopicFactory, unique


@pytest.fixture
def old(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline that has read ten records, with ten more waiting."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20), partition=1)
    return flow


@pytest.fixture
def new(old: Flow) -> Flow:
    """Another name for the same topic; its catalog is another one too."""
    return old.but(name=unique("p").replace("-", "_"))


def positions(flow: Flow, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["positions", command, str(flow.pipeline.path), *arguments])


def exported(flow: Flow) -> dict[str, Any]:
    done = positions(flow, "export")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def imported(flow: Flow, document: dict[str, Any]) -> Result:
    path = flow.pipeline.path.parent / "positions.json"
    path.write_text(json.dumps(document))
    return positions(flow, "import", str(path))


def test_a_pipeline_begins_where_another_one_ended(old: Flow, new: Flow) -> None:
    document = exported(old)
    assert document["positions"] == [
        {"topic": old.topic, "partition": 0, "offset": 10},
        {"topic": old.topic, "partition": 1, "offset": 0},
    ]
    done = imported(new, document)
    assert done.exit_code == 0, done.output
    assert {at: p.offset for at, p in new.positions().items()} == {
        TopicPartition(old.topic, 0): 10,
        TopicPartition(old.topic, 1): 0,
    }
    new.produce(range(20, 30))
    run_and_prove(new)
    assert new.ids() == list(range(10, 30))


def test_a_renamed_pipeline_goes_on(old: Flow) -> None:
    renamed = replace(old, files=old.files / "renamed", extra={"name": "departures", "takes_over": old.name})
    assert renamed.pipeline.name == "departures"
    run_and_prove(renamed)
    assert old.ids() == list(range(20))
    assert [len(own.batches) for _, own in old.own_snapshots()] == [1, 1]


def test_a_pipeline_that_never_was_is_not_taken_over(old: Flow) -> None:
    renamed = replace(old, files=old.files / "renamed", extra={"name": "departures", "takes_over": "nobody"})
    with raises(Code.TAKES_OVER, "takes_over", "nobody"):
        renamed.run()
    assert renamed.pipeline.control_topic not in old.admin.list_topics(timeout=30).topics


def without_a_partition(document: dict[str, Any]) -> None:
    document["positions"].pop()


def of_another_topic(document: dict[str, Any]) -> None:
    document["positions"][0]["topic"] = "other"


def beyond_the_end(document: dict[str, Any]) -> None:
    document["positions"][0]["offset"] = 11


def of_another_cluster(document: dict[str, Any]) -> None:
    document["cluster_id"] = "other"


def of_another_topic_id(document: dict[str, Any]) -> None:
    document["topic_ids"] = dict.fromkeys(document["topic_ids"], "other")


def negative(document: dict[str, Any]) -> None:
    document["positions"][0]["offset"] = -1


@pytest.mark.parametrize(
    ("change", "code", "values"),
    [
        (without_a_partition, Code.POSITIONS_FILE, ["{topic}[1]"]),
        (of_another_topic, Code.POSITIONS_FILE, ["other[0]", "{topic}[0]"]),
        (beyond_the_end, Code.POSITIONS_FILE, ["{topic}[0]", 11, 0, 10]),
        (of_another_cluster, Code.OTHER_POSITIONS, ["cluster", "other"]),
        (of_another_topic_id, Code.OTHER_POSITIONS, ["{topic}", "other"]),
        (negative, Code.POSITIONS_FILE, ["positions.json", "positions.0.offset"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_positions_that_do_not_fit_are_refused(
    old: Flow, new: Flow, change: Callable[[dict[str, Any]], None], code: Code, values: list[object]
) -> None:
    document = exported(old)
    change(document)
    refused = imported(new, document)
    assert refused.exit_code == 2
    says(refused.stderr, code, *(str(value).format(topic=old.topic) for value in values))
    assert new.positions() == {}


def test_positions_below_the_log_start_are_refused(old: Flow, new: Flow) -> None:
    document = exported(old)
    old.delete_records(old.topic, 5, partition=1)
    refused = imported(new, document)
    assert refused.exit_code == 2
    says(refused.stderr, Code.POSITIONS_FILE, f"{old.topic}[1]", 0, 5, 10)
    assert new.positions() == {}


def test_a_pipeline_that_has_published_keeps_its_positions(old: Flow) -> None:
    before, published = old.positions(), old.events(DataComplete)
    refused = imported(old, exported(old))
    assert refused.exit_code == 2
    says(refused.stderr, Code.HAS_PUBLISHED, old.name)
    assert (old.positions(), old.events(DataComplete)) == (before, published)


def test_a_pipeline_that_has_not_published_has_nothing_to_export(new: Flow) -> None:
    refused = positions(new, "export")
    assert refused.exit_code == 2
    says(refused.stderr, Code.NOT_RUN_YET, new.name)
