"""Which snapshots are of other pipelines, and when two pipelines put the same records into one table."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.iceberg.commit.other_pipelines import Coverage, read_twice
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.tables.history.record import others_in, to_summary
from tests.unit.iceberg.commit.build import KEYS, own
from tests.unit.tables.log.build import TABLE, TOPIC, at

THEIRS = "calve.dev.europe.departures"
READING = Coverage({TOPIC: "id-1"}, {at(0): 100})


def summary_of(group: str, **more: str) -> dict[str, str]:
    name = group.rpartition(".")[2]
    offsets = f"kafka.connect.offsets.{group}.control.{group}"
    return {offsets: '{"0": 4}', f"calve.{name}.batches": "b1", f"calve.{name}.cluster-id": "cluster-2", **more}


def test_a_pipeline_is_known_by_the_group_in_its_snapshots() -> None:
    assert others_in(KEYS, summary_of(THEIRS)) == {THEIRS: "cluster-2"}


def test_the_same_name_in_another_deployment_is_another_pipeline() -> None:
    assert others_in(KEYS, summary_of("calve.dev.flights")) == {"calve.dev.flights": "cluster-2"}


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param(to_summary(KEYS, own(4)), id="our own"),
        pytest.param({"kafka.connect.offsets.control-iceberg.cg": "{}", "calve.cg.batches": ""}, id="the connector's"),
        pytest.param({"kafka.connect.offsets.calve.dev.x.control.calve.dev.x": "{}"}, id="without batches"),
    ],
)
def test_other_snapshots_are_of_no_other_pipeline(summary: dict[str, str]) -> None:
    assert others_in(KEYS, summary) == {}


def row(start: int, end: int, **changes: Any) -> dict[str, Any]:
    values = {"topic_id": "id-1", "partition": 0, "start_offset": start, "end_offset": end, "written": [(TABLE, 1)]}
    return values | changes


@pytest.mark.parametrize(
    ("theirs", "common"),
    [
        pytest.param(row(100, 150), (100, 150), id="what we read"),
        pytest.param(row(90, 150), (100, 150), id="a range across our beginning"),
        pytest.param(row(0, 100), None, id="what lies before our beginning"),
        pytest.param(row(100, 150, topic_id="id-2"), None, id="another topic, or one of that name before"),
        pytest.param(row(100, 150, written=[("air.other", 1)]), None, id="into another table"),
        pytest.param(row(100, 150, written=[(TABLE, 0)]), None, id="no record of it"),
        pytest.param(row(100, 150, written=None), None, id="nothing written"),
    ],
)
def test_records_are_there_twice_if_both_write_them_to_the_table(
    theirs: dict[str, Any], common: tuple[int, int] | None
) -> None:
    expected = OffsetRange(TOPIC, 0, *common) if common else None
    assert read_twice(READING, TABLE, [row(0, 50), theirs]) == expected


def test_a_partition_that_appears_later_is_read_from_its_beginning() -> None:
    assert read_twice(READING, TABLE, [row(0, 5, partition=7)]) == OffsetRange(TOPIC, 7, 0, 5)
