"""Which topic a mirror the other way had its records from, and where its groups were there."""

from __future__ import annotations

import pytest

from calve.sink_core.mirror.fail_back import back, same_topic
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.offsets import TopicPartition

AT = TopicPartition("orders", 0)


def state(names: dict[str, str]) -> MirrorState:
    """Of a mirror that has copied topics to others; ids are those of the names."""
    found = MirrorState()
    found.upstream_ids = {topic: f"id of {topic}" for topic in names}
    found.topic_ids = dict.fromkeys(names.values(), "id")
    return found


@pytest.mark.parametrize(
    ("names", "topic", "remote", "same"),
    [
        ({"orders": "orders"}, "orders", "orders", True),
        ({"orders": "from-eu-orders", "t": "from-eu-t"}, "from-eu-orders", "orders", True),
        # It came from t, though there is a topic of its name.
        ({"t": "a.t", "a.t": "a.a.t"}, "a.t", "a.t", False),
        ({"orders": "orders"}, "other", "other", False),
    ],
)
def test_groups_go_back_only_to_the_topic_that_records_came_from(
    names: dict[str, str], topic: str, remote: str, *, same: bool
) -> None:
    assert same_topic(state(names), topic, remote, f"id of {remote}") == same
    assert not same_topic(state(names), topic, remote, "another id")
    assert not same_topic(state(names), topic, remote, None)


def test_behind_the_last_record_a_group_goes_back_to_the_position_though_the_log_was_trimmed() -> None:
    other = MirrorState()
    other.target_ends, other.partitions = {AT: 8}, {AT: 12}
    assert back(other, AT, 8) == 12
    assert back(other, AT, 9) == 12
    assert back(other, AT, 7) is None
