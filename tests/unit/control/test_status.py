from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.control.state import LogState
from calve.sink_core.control.status import (
    EVENTS_A_SECOND,
    LONG_READ_S,
    control_topic_of,
    long_log,
    partition_statuses,
    topic_statuses,
)
from calve.sink_core.offsets import Position, TopicPartition
from tests.codes import names

A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)


def test_lag_counts_from_the_position_or_the_log_start_to_the_last_stable_offset() -> None:
    statuses = list(partition_statuses({A: Position(120, "b1")}, {A: 100, B: 40}, {A: 150, B: 60}))
    assert [(s.position, s.lag, s.until_loss) for s in statuses] == [(120, 30, 20), (None, 20, 0)]


def test_a_topic_sums_its_lag_and_shows_the_nearest_loss_among_unread_partitions() -> None:
    partitions = tuple(
        partition_statuses({A: Position(120, "b1"), B: Position(60, "b1")}, {A: 100, B: 59}, {A: 150, B: 60})
    )
    (topic,) = topic_statuses(partitions)
    assert (topic.lag, topic.partitions, topic.until_loss) == (30, 2, 20)


def test_records_already_lost_show_as_a_negative_distance() -> None:
    (partition,) = partition_statuses({A: Position(80, "b1")}, {A: 100}, {A: 150})
    assert partition.until_loss == -20


@pytest.mark.parametrize(("seconds", "told"), [(LONG_READ_S, 0), (2 * LONG_READ_S, 1)])
def test_a_control_log_is_named_once_reading_it_holds_up_whoever_does(seconds: float, told: int) -> None:
    events = round(seconds * EVENTS_A_SECOND)
    log = control_topic_of("c", LogState[Any, Any](log_start=7, next_offset=7 + events, oldest_ms=5_000), 9_000)
    assert (log.events, log.read_s) == (events, seconds)
    blockers = list(long_log(log, "p.yaml"))
    assert [(each.where, each.since_ms) for each in blockers] == [("control topic c", 5_000)] * told
    for each in blockers:
        names(str(each), f"{events:,}", f"{seconds:.0f} s", "calve maintain p.yaml trim")
    assert list(long_log(None, "p.yaml")) == []
