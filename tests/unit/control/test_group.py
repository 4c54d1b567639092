"""Positions on their way from the protocol to the source group."""

from __future__ import annotations

from calve.sink_core.control.group import to_kafka
from calve.sink_core.offsets import Position
from tests.unit.tables.log.build import TOPIC, at


def test_kafka_gets_the_next_offset_with_the_batch_id_as_metadata() -> None:
    sent = to_kafka({at(1): Position(20, ""), at(0): Position(10, "b1")})
    assert [(tp.topic, tp.partition, tp.offset) for tp in sent] == [(TOPIC, 0, 10), (TOPIC, 1, 20)]
    assert [tp.metadata for tp in sent] == ["b1", ""]
