"""A slot's producer on a real broker: what becomes of a task that was fenced, and of records that are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.slots.leading import Wanted
from calve.sink_core.control.slots.slot import Overtaken, Slot
from tests import mirrors
from tests.codes import raises
from tests.support import Produce, TopicFactory


@pytest.mark.parametrize("sent", [False, True], ids=["before its first record", "after its first record"])
def test_a_task_that_is_fenced_with_records_on_their_way_was_overtaken(
    broker: Broker, kafka_topic: TopicFactory, tmp_path: Path, sent: bool
) -> None:
    topic = kafka_topic(1)
    with mirrors.mirror(broker, broker, tmp_path, [topic]).plane() as plane:
        plane.bind()
        led = plane.leader.lead(lambda _state: Wanted(plane.pipeline_id, 1, {}, {}, {}))
        assert led is not None
        with Slot(plane.slot_spec(0, led.generation)) as slot:
            slot.check([])
            slot.begin()
            if sent:
                slot.producer.produce(topic, b"0", partition=0)
                slot.flush()
            plane.leader.fence(1)
            # Which has a callback, as the first and the last record of a partition have.
            slot.producer.produce(topic, b"1", partition=0, on_delivery=lambda _error, _message: None)
            with pytest.raises(Overtaken):
                slot.flush()
            with pytest.raises(Overtaken):
                slot.begin()


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_record_that_the_target_refuses_is_named_so_and_nothing_of_it_is_there(
    at: int, broker: Broker, other_broker: Broker, kafka_topic: TopicFactory, produce: Produce, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    produce(topic, [os.urandom(5_000) if i == at else b"%d" % i for i in range(10)])
    target = {"config": {"max.message.bytes": 2_000}}
    mirror = mirrors.mirror(broker, other_broker, tmp_path, [topic], target=target)
    with raises(Code.REFUSED, "MSG_SIZE_TOO_LARGE"):
        mirror.run()
    assert mirror.copied(topic) == []
