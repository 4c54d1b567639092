"""Checkpoints in the binary form of Kafka's `Checkpoint`."""

from __future__ import annotations

from calve.sink_core.mirror.checkpoints import key, value
from calve.sink_core.mirror.groups import GroupOffset

PLACE = GroupOffset("gr\u00fc\u00dfe", "t", 7, "eu.t", 258, 0, metadata="m", target_offset=1)


def test_a_key_is_group_topic_and_partition() -> None:
    assert key(PLACE) == b"\x00\x07gr\xc3\xbc\xc3\x9fe" + b"\x00\x04eu.t" + b"\x00\x00\x00\x07"


def test_a_value_is_a_version_both_offsets_and_the_metadata() -> None:
    assert value(PLACE) == b"\x00\x00" + b"\x00" * 6 + b"\x01\x02" + b"\x00" * 7 + b"\x01" + b"\x00\x01m"
