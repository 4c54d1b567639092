"""One task on a real broker: what becomes of each record of its ranges, counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.loop.writing import task_spec
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import run_task
from tests.pipelines import Flow, record
from tests.support import Produce, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic())


def spec(flow: Flow) -> IngestSpec:
    return task_spec("b1", flow.pipeline, flow.loaded(), instant_ms=0)


def test_records_that_are_dead_letters_already_stay_there_and_are_counted_as_that(flow: Flow, produce: Produce) -> None:
    produce(flow.topic, [record(0), b"{", record(2), None, record(4)])
    skipping = replace(spec(flow), stop_on_bad_record=True, skip={TopicPartition(flow.topic, 0): (1, 2)})
    result = run_task(skipping, [OffsetRange(flow.topic, 0, 0, 5)], 0)
    [counts] = result.counts
    assert (counts.records, counts.tombstones, counts.dead_lettered, counts.written) == (5, 1, 2, {flow.table: 2})
    assert sum(file.rows for file in result.files[flow.table]) == 2
    assert result.files[flow.pipeline.dead_letter_table] == ()


def test_attempts_of_one_task_share_no_file(flow: Flow) -> None:
    flow.produce(range(5))
    given = spec(flow)
    paths = [
        file.path
        for _attempt in range(2)
        for file in run_task(given, [OffsetRange(flow.topic, 0, 0, 5)], 0).files[flow.table]
    ]
    assert len({*paths}) == len(paths) == 2


def test_records_beyond_the_range_are_left_for_the_next_batch(flow: Flow) -> None:
    flow.produce(range(5))
    [counts] = run_task(spec(flow), [OffsetRange(flow.topic, 0, 1, 3)], 0).counts
    assert (counts.records, counts.gaps, counts.written) == (2, 0, {flow.table: 2})
