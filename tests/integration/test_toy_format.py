"""A format that stands in one file outside the product goes the whole way, and its bad records to the dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.formats import FORMATS
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory
from tests.toy_format import PAIRS


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setitem(FORMATS, PAIRS.name, PAIRS)
    source = {"value": {"type": PAIRS.name}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create={}, extra={"source": source})


def test_its_records_become_rows_of_columns_that_it_names(flow: Flow, produce: Produce) -> None:
    produce(flow.topic, [b"id=1 text=a", b"no pair", b"text=b id=2"])
    flow.run()
    assert [(row["id"], row["text"]) for row in flow.rows()] == [("1", "a"), ("2", "b")]
    assert [row["error"] for row in flow.rows(flow.pipeline.dead_letter_table)] == ["no pairs"]
