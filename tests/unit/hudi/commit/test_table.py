"""What a commit says of Kafka's offsets."""

from __future__ import annotations

from calve.sink_core.hudi.commit.table import source_offsets
from calve.sink_core.offsets import TopicPartition


def test_source_offsets_are_written_as_hudi_s_own_sink_does() -> None:
    assert source_offsets({TopicPartition("t", 1): 200, TopicPartition("t", 0): 100}) == "0=100,1=200"


def test_of_several_topics_each_is_named() -> None:
    assert source_offsets({TopicPartition("b", 0): 7, TopicPartition("a", 1): 2}) == "a-1=2,b-0=7"
