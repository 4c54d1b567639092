"""Each promise of the plan, on arbitrary positions, ends, record sizes and limits."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.codes import Code
from calve.sink_core.control.shares import Limits
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.loop.plan import plan_batch
from calve.sink_core.tables.batch import BatchPlan
from tests.codes import raises

TOPICS = ("a", "b", "c")
WIDE = Limits(max_records=10**9, max_bytes=10**15, max_tasks=1000, min_task_bytes=1)

SIZES = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.floats(0, 5_000)))
LAGS = st.just(0) | st.integers(0, 20) | st.integers(0, 100_000)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 30))
SOURCES = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 10**12), LAGS), min_size=1, max_size=25)
LIMITS = st.builds(
    Limits,
    max_records=st.integers(1, 60) | st.integers(1, 10**6),
    max_bytes=st.integers(1, 10_000) | st.integers(1, 10**9),
    max_tasks=st.integers(1, 40),
    min_task_bytes=st.integers(1, 10**6),
)
Source = Mapping[TopicPartition, tuple[int, int]]


def plan(source: Source, sizes: Mapping[str, float], limits: Limits = WIDE) -> BatchPlan | None:
    """The plan for partitions given as (position, lag)."""
    return plan_batch(
        batch_id="b2",
        predecessor="b1",
        starts={at: start for at, (start, _) in source.items()},
        ends={at: start + lag for at, (start, lag) in source.items()},
        bytes_per_record=sizes,
        limits=limits,
        topic_ids=dict.fromkeys(TOPICS, "id"),
        broker_time_ms=1,
    )


def planned(source: Source, sizes: Mapping[str, float], limits: Limits = WIDE) -> BatchPlan:
    """The plan of a source that has a lag; one is added to a source without."""
    if not any(lag for _, lag in source.values()):
        source = {**source, TopicPartition("a", 99): (0, 7)}
    batch = plan(source, sizes, limits)
    assert batch is not None
    return batch


def cost(topic: str, sizes: Mapping[str, float]) -> int:
    return max(1, math.ceil(sizes[topic]))


def size(ranges: tuple[OffsetRange, ...], sizes: Mapping[str, float]) -> int:
    return sum(r.span * cost(r.topic, sizes) for r in ranges)


@given(SOURCES, SIZES, LIMITS)
def test_ranges_hold_every_partition_once_start_at_its_position_and_stay_below_its_end(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    batch = plan(source, sizes, limits)
    if batch is None:
        assert all(lag == 0 for _, lag in source.values())
        return
    assert [r.at for r in batch.ranges] == sorted(source)
    for r in batch.ranges:
        start, lag = source[r.at]
        assert r.start == start <= r.end <= start + lag


@given(SOURCES, SIZES, LIMITS)
def test_limits_hold_except_for_the_one_offset_that_is_progress(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    batch = planned(source, sizes, limits)
    assert 1 <= batch.offsets <= limits.max_records
    assert batch.estimated_bytes == size(batch.ranges, sizes)
    assert batch.estimated_bytes <= limits.max_bytes or batch.offsets == 1


@given(SOURCES, SIZES)
def test_everything_is_read_when_no_limit_binds(source: Source, sizes: Mapping[str, float]) -> None:
    batch = plan(source, sizes)
    assert sum(lag for _, lag in source.values()) == (batch.offsets if batch else 0)


@given(SOURCES, SIZES, LIMITS)
def test_a_limit_that_binds_is_used_up(source: Source, sizes: Mapping[str, float], limits: Limits) -> None:
    batch = planned(source, sizes, limits)
    left = {r.at: sum(source.get(r.at, (0, 7))) - r.end for r in batch.ranges}
    if any(left.values()) and batch.offsets < limits.max_records:
        assert limits.max_bytes - batch.estimated_bytes < max(cost(at.topic, sizes) for at in left)


@given(SOURCES, SIZES, LIMITS)
def test_no_partition_starves_while_one_offset_of_each_fits(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    batch = planned(source, sizes, limits)
    lagging = [at for at, (_, lag) in source.items() if lag]
    if len(lagging) <= limits.max_records and sum(cost(at.topic, sizes) for at in lagging) <= limits.max_bytes:
        assert all(r.span for r in batch.ranges if r.at in lagging)


@given(SOURCES, SIZES, LIMITS)
def test_within_a_topic_the_larger_lag_gets_the_larger_share(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    shares = sorted((r.topic, source.get(r.at, (0, 7))[1], r.span) for r in planned(source, sizes, limits).ranges)
    for (topic, lag, share), (next_topic, next_lag, next_share) in pairwise(shares):
        if topic == next_topic and lag < next_lag:
            assert share <= next_share + 1


def test_shares_are_in_proportion_to_the_lag_in_bytes() -> None:
    source = {
        TopicPartition("a", 0): (0, 900_000),
        TopicPartition("a", 1): (0, 90_000),
        TopicPartition("b", 0): (0, 10),
    }
    batch = planned(source, {"a": 100, "b": 100}, Limits(100_000, 10**12, 8, 1))
    assert batch.offsets == 100_000
    assert [round(r.span / 100_000, 2) for r in batch.ranges] == [0.91, 0.09, 0.0]
    assert batch.ranges[2].span >= 1


@given(SOURCES, SIZES, LIMITS)
def test_tasks_cover_the_ranges_exactly(source: Source, sizes: Mapping[str, float], limits: Limits) -> None:
    batch = planned(source, sizes, limits)
    reached = {r.at: r.start for r in batch.ranges}
    for piece in (r for task in batch.tasks for r in task):
        assert reached[piece.at] == piece.start < piece.end
        reached[piece.at] = piece.end
    assert reached == {r.at: r.end for r in batch.ranges}


@given(SOURCES, SIZES, LIMITS)
def test_tasks_are_not_empty_few_enough_and_name_a_partition_once(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    batch = planned(source, sizes, limits)
    assert 1 <= len(batch.tasks) <= min(limits.max_tasks, math.ceil(batch.estimated_bytes / limits.min_task_bytes))
    for task in batch.tasks:
        assert task
        assert len({r.at for r in task}) == len(task)


@given(SOURCES, SIZES, LIMITS)
def test_no_task_exceeds_its_even_share_by_more_than_a_record(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    batch = planned(source, sizes, limits)
    pieces = min(limits.max_tasks, math.ceil(batch.estimated_bytes / limits.min_task_bytes))
    largest = max(cost(r.topic, sizes) for r in batch.ranges if r.span)
    even = math.ceil(batch.estimated_bytes / pieces)
    assert all(size(task, sizes) <= even + largest for task in batch.tasks)


@given(st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 2_000))
def test_a_hot_partition_is_split_over_all_tasks(lag: int, max_tasks: int, record: int) -> None:
    source = {TopicPartition("a", 0): (5, lag), TopicPartition("a", 1): (9, 0)}
    batch = planned(source, {"a": record}, Limits(10**9, 10**15, max_tasks, 1))
    assert len(batch.tasks) == min(max_tasks, lag)
    spans = [r.span for task in batch.tasks for r in task]
    assert max(spans) - min(spans) <= 1


@given(SOURCES, SIZES, LIMITS, st.randoms(use_true_random=False))
def test_the_order_of_the_partitions_does_not_matter(
    source: Source, sizes: Mapping[str, float], limits: Limits, shuffle: random.Random
) -> None:
    items = list(source.items())
    shuffle.shuffle(items)
    assert plan(dict(items), sizes, limits) == plan(source, sizes, limits)


@given(
    st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 99), st.integers(0, 300)), min_size=1, max_size=8),
    SIZES,
    st.builds(Limits, st.integers(20, 500), st.integers(50_000, 10**6), st.integers(1, 4), st.integers(1, 10**5)),
)
def test_planning_again_and_again_drains_any_backlog(
    source: Source, sizes: Mapping[str, float], limits: Limits
) -> None:
    left = dict(source)
    read = {at: start for at, (start, _) in source.items()}
    while batch := plan(left, sizes, limits):
        for r in batch.ranges:
            assert r.start == read[r.at]
            read[r.at] = r.end
            left[r.at] = (r.end, sum(source[r.at]) - r.end)
    assert read == {at: start + lag for at, (start, lag) in source.items()}


def test_a_record_above_the_byte_limit_is_read_alone() -> None:
    batch = planned({TopicPartition("a", 0): (0, 3)}, {"a": 10_000}, Limits(100, 1, 8, 1))
    assert batch.ranges == (OffsetRange("a", 0, 0, 1),)


def test_a_quiet_partition_is_served_next_to_a_hot_one() -> None:
    source = {TopicPartition("a", 0): (0, 10**9), TopicPartition("a", 1): (0, 1)}
    assert [r.span for r in planned(source, {"a": 1}, Limits(1000, 10**9, 1, 1)).ranges] == [999, 1]


def test_small_batches_are_not_cut() -> None:
    batch = planned({TopicPartition("a", p): (0, 10) for p in range(8)}, {"a": 100}, Limits(10**6, 10**9, 8, 16 << 20))
    assert len(batch.tasks) == 1


def test_ten_thousand_partitions_are_planned_whole() -> None:
    lag = random.Random(1)
    source = {TopicPartition("a", p): (lag.randrange(10**9), int(100 * lag.paretovariate(0.8))) for p in range(10_000)}
    batch = planned(source, {"a": 270}, Limits(10_000_000, 4 << 30, 64, 16 << 20))
    assert len(batch.ranges) == 10_000
    assert batch.offsets == 10_000_000
    assert len(batch.tasks) == 64


def test_what_is_given_is_carried_along() -> None:
    batch = planned({TopicPartition("a", 0): (3, 4)}, {"a": 2})
    assert {k: v for k, v in asdict(batch).items() if k not in ("ranges", "tasks")} == {
        "batch_id": "b2",
        "predecessor": "b1",
        "topic_ids": dict.fromkeys(TOPICS, "id"),
        "broker_time_ms": 1,
        "estimated_bytes": 8,
        "instant_ms": 0,
    }


def test_a_position_beyond_the_end_names_both() -> None:
    with raises(Code.BEYOND_END, "a[0]", 9, 4):
        plan({TopicPartition("a", 0): (9, -5)}, {"a": 1})


def test_a_partition_without_an_end_is_named() -> None:
    with raises(Code.PARTITIONS_ADDED, "a[1]", 5):
        plan_batch(
            batch_id="b2",
            predecessor="b1",
            starts={TopicPartition("a", 0): 0, TopicPartition("a", 1): 5},
            ends={TopicPartition("a", 0): 1},
            bytes_per_record={"a": 1},
            limits=WIDE,
            topic_ids={},
            broker_time_ms=1,
        )


@pytest.mark.parametrize("estimates", [{}, {"a": math.nan}, {"a": math.inf}, {"a": -1}])
def test_a_lag_without_a_usable_estimate_names_the_topic(estimates: Mapping[str, float]) -> None:
    with raises(Code.FAULT):
        plan({TopicPartition("a", 0): (0, 1)}, estimates)


def test_a_topic_without_lag_needs_no_estimate() -> None:
    assert plan({TopicPartition("a", 0): (4, 0)}, {}) is None


@pytest.mark.parametrize("name", ["max_records", "max_bytes", "max_tasks", "min_task_bytes"])
def test_a_limit_below_one_names_the_setting(name: str) -> None:
    with raises(Code.LEAST_ONE, name, 0):
        Limits(**{**asdict(WIDE), name: 0})
