"""Reading the control topic for the proof, independently of the fold that commits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from calve.sink_core.control.events import Event, decode
from calve.sink_core.control.log import PARTITION, READ_TIMEOUT_S, Trimmed, is_out_of_range
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import classify
from calve.sink_core.offsets import after


def read_events(settings: clients.Settings, topic: str, start: int, end: int) -> Iterator[tuple[int, Event]]:
    """The committed events `[start, end)` of a control topic with their offsets.

    Raises Unreachable if nothing comes for a minute, ProtocolError for what is not an event, Trimmed if events were
    deleted before they were read.
    """
    with closing(clients.reader(settings, group=f"{topic}.reader")) as consumer:
        consumer.assign([KafkaTopicPartition(topic, PARTITION, start)])
        at, deadline = start, time.monotonic() + READ_TIMEOUT_S
        while at < end:
            if time.monotonic() > deadline:
                raise Unreachable(f"{topic}: read up to {at}, not to {end}", hint="is the broker reachable?")
            for message in clients.receive(consumer, 500, 0.2):
                offset, error = message.offset() or 0, message.error()
                deadline = time.monotonic() + READ_TIMEOUT_S
                if error is None:
                    at = after(offset)
                    if offset < end:
                        yield offset, decode(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    at = max(at, offset)
                elif is_out_of_range(error):
                    raise Trimmed
                elif not error.retriable():
                    raise classify(error, f"reading {topic}")
