from __future__ import annotations

from calve.sink_core.control.status import partition_statuses, topic_statuses
from calve.sink_core.offsets import Position, TopicPartition

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
