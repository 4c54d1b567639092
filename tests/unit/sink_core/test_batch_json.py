"""What is written as JSON comes back equal, and nothing else is accepted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.batch import BatchPlan, ManifestRef, PartitionSummary, TableOutput, ToMerge, WrittenBatch
from calve.sink_core.batch_json import (
    manifest_from_json,
    manifest_to_json,
    plan_from_json,
    plan_to_json,
    table_from_json,
    table_to_json,
    written_from_json,
    written_to_json,
)
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import ProtocolError
from calve.sink_core.offsets import OffsetRange

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNT = st.integers(0, 2**63 - 1)
BYTES = st.binary(max_size=24)
RANGES = st.lists(
    st.builds(
        lambda topic, partition, offsets: OffsetRange(topic, partition, *sorted(offsets)),
        st.sampled_from(["flights", "weather", "größe"]),
        st.integers(0, 50),
        st.tuples(COUNT, COUNT),
    ),
    max_size=6,
).map(tuple)
PLANS = st.builds(
    BatchPlan,
    batch_id=TEXT,
    predecessor=TEXT,
    ranges=RANGES,
    tasks=st.lists(RANGES, max_size=3).map(tuple),
    topic_ids=st.dictionaries(TEXT, TEXT, max_size=3),
    broker_time_ms=COUNT,
    estimated_bytes=COUNT,
)
SUMMARIES = st.builds(
    PartitionSummary,
    contains_null=st.booleans(),
    contains_nan=st.none() | st.booleans(),
    lower_bound=st.none() | BYTES,
    upper_bound=st.none() | BYTES,
)
MANIFESTS = st.builds(
    ManifestRef,
    path=TEXT,
    length=COUNT,
    sha256=TEXT,
    content=st.sampled_from([0, 1]),
    spec_id=st.integers(0, 9),
    files=COUNT,
    rows=COUNT,
    data_bytes=COUNT,
    partitions=st.lists(SUMMARIES, max_size=3).map(tuple),
)
TABLES = st.builds(
    TableOutput,
    table=TEXT,
    table_uuid=TEXT,
    schema_id=COUNT,
    manifests=st.lists(MANIFESTS, max_size=3).map(tuple),
    to_merge=st.none() | st.builds(ToMerge, st.lists(COUNT, max_size=2).map(tuple), st.none() | COUNT, st.booleans()),
)
COUNTS = st.builds(
    PartitionCounts,
    topic=TEXT,
    partition=COUNT,
    start=COUNT,
    end=COUNT,
    max_timestamp_ms=st.integers(-1, 2**63 - 1),
    written=st.dictionaries(TEXT, COUNT, max_size=3),
)
WRITTEN = st.builds(
    WrittenBatch,
    plan=PLANS,
    tables=st.lists(TABLES, max_size=3).map(tuple),
    counts=st.lists(COUNTS, max_size=3).map(tuple),
)
PLAN = BatchPlan(
    batch_id="b2",
    predecessor="b1",
    ranges=(OffsetRange("flights", 0, 5, 9), OffsetRange("flights", 1, 7, 7), OffsetRange("weather", 0, 0, 1)),
    tasks=((OffsetRange("flights", 0, 5, 9),), (OffsetRange("weather", 0, 0, 1),)),
    topic_ids={"flights": "x", "weather": "y"},
    broker_time_ms=1_700_000_000_000,
    estimated_bytes=500,
)


def through_text(value: dict[str, object]) -> dict[str, object]:
    return json.loads(json.dumps(value))


@given(PLANS)
def test_a_plan_comes_back_equal(plan: BatchPlan) -> None:
    assert plan_from_json(through_text(plan_to_json(plan))) == plan


@given(WRITTEN)
def test_a_written_batch_comes_back_equal(written: WrittenBatch) -> None:
    assert written_from_json(through_text(written_to_json(written))) == written


@given(TABLES)
def test_a_table_output_comes_back_equal(table: TableOutput) -> None:
    assert table_from_json(through_text(table_to_json(table))) == table


@given(MANIFESTS)
def test_a_manifest_comes_back_equal_with_its_bounds(manifest: ManifestRef) -> None:
    assert manifest_from_json(through_text(manifest_to_json(manifest))) == manifest


def test_ranges_are_grouped_by_topic() -> None:
    assert plan_to_json(PLAN)["ranges"] == [["flights", [[0, 5, 9], [1, 7, 7]]], ["weather", [[0, 0, 1]]]]


def test_ten_thousand_partitions_stay_below_a_megabyte() -> None:
    ranges = tuple(OffsetRange("a-topic-with-a-long-name", p, 10**9, 10**9 + 10**5) for p in range(10_000))
    text = json.dumps(plan_to_json(replace(PLAN, ranges=ranges, tasks=(ranges,))), separators=(",", ":"))
    assert len(text) < 1_000_000


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "blue"},
        {"estimated_bytes": "500"},
        {"batch_id": None},
        {"ranges": [["flights", [[0, 9, 5]]]]},
        {"ranges": [["flights", [[0, 5]]]]},
        {"ranges": {"flights": [[0, 5, 9]]}},
        {"topic_ids": {"flights": b"x"}},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        plan_from_json(plan_to_json(PLAN) | change)


def test_a_missing_key_is_named() -> None:
    value = plan_to_json(PLAN)
    del value["predecessor"]
    with pytest.raises(ProtocolError, match="predecessor"):
        plan_from_json(value)


def test_an_unknown_key_inside_a_table_is_named() -> None:
    written = WrittenBatch(PLAN, (TableOutput("air.flights", "u", 0),), ())
    value = written_to_json(written)
    value["tables"][0]["shape"] = "round"
    with pytest.raises(ProtocolError, match="shape"):
        written_from_json(value)
