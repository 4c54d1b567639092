"""Calls of a transactional producer that never come back."""

from __future__ import annotations

from threading import Event

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import TIMED_OUT

SETTINGS = {"bootstrap.servers": "127.0.0.1:1"}


def test_a_call_that_does_not_come_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "GRACE_S", 0.1)
    released = Event()
    with pytest.raises(KafkaException) as raised:
        clients.in_time(lambda: bool(released.wait()) or None, 0.1)
    released.set()
    error = raised.value.args[0]
    # Nothing of the transaction is there, and only the next fence can end it.
    assert (error.code(), error.txn_requires_abort(), error.fatal()) == (TIMED_OUT, True, False)


def test_what_a_call_raises_is_raised() -> None:
    def fails() -> None:
        raise ValueError("itself")

    with pytest.raises(ValueError, match="itself"):
        clients.in_time(fails, 1)


def test_every_transactional_producer_is_bounded() -> None:
    producer = clients.transactional_producer(SETTINGS, "bounded")
    assert isinstance(producer, clients.BoundedProducer)
    group = Consumer({**SETTINGS, "group.id": "bounded"})
    # It says what the client says: that there is no transaction.
    with pytest.raises(KafkaException, match="Operation not valid in state Init"):
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], group.consumer_group_metadata(), 1)
    group.close()
