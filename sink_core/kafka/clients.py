"""Opening Kafka clients: the one place where librdkafka settings are put together and references are resolved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from calve.sink_core.config.references import resolve
from calve.sink_core.kafka.compat import TIMED_OUT
from calve.sink_core.timing import apart

LOGGER = logging.getLogger("calve.librdkafka")
LOGGER.addHandler(logging.NullHandler())

TRANSACTION_TIMEOUT_MS = 60_000
"""How long a dead publisher can hold back readers of the control topic; the next publisher's fence ends it at once."""

GRACE_S = 5.0
"""A call that keeps its time-out comes back in this."""

ADMIN_TIMEOUT_S = 30.0
"""For each bounded question to a cluster."""

RECEIVE_BYTES = 256 * 1024 * 1024
"""The largest answer a reader accepts, and to how much a zstd batch may unpack; a connection may set another.

librdkafka's own 100 MB are less than what a broker with default settings lets a producer send in one record.
"""

UNCOMMITTED = {"isolation.level": "read_uncommitted"}
"""Has a reader see what no transaction has committed, and offsets that one may still change. For the simulation."""

Settings = Mapping[str, object]
"""librdkafka keys as in `connections.yaml`, references not yet resolved."""


def admin(settings: Settings) -> AdminClient:
    return AdminClient(_base(settings), logger=LOGGER)


def reader(settings: Settings, *, group: str, **overrides: object) -> Consumer:
    """A consumer that is assigned, never subscribed: it sees committed records only and stops at unknown offsets."""
    return Consumer(reader_settings(settings, group=group, **overrides), logger=LOGGER)


def reader_settings(settings: Settings, *, group: str, **overrides: object) -> dict[str, Any]:
    """What a reader sets, references resolved."""
    return {
        "receive.message.max.bytes": RECEIVE_BYTES,
        # Reading ahead stops at bytes of keys and values, of which headers are no part, or at this number: at the
        # default of 100,000 a topic of large headers fills the memory. One fetch ahead is as fast, if the next does
        # not wait for a second after the queue was full, which is the default too.
        "queued.min.messages": 1,
        "fetch.queue.backoff.ms": 5,
        # A partition's end shows in an empty fetch, which the broker holds back this long.
        "fetch.wait.max.ms": 20,
        **_base(settings),
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        **overrides,
    }


def receive(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """What a reader has queued, up to `most` messages; none only if nothing came for `timeout_s`.

    Waiting for `most` would gather messages of any size in memory; what is queued is bounded.
    """
    first = consumer.consume(1, timeout_s)
    return first + consumer.consume(most - 1, 0) if first and most > 1 else first


def producer(settings: Settings, **overrides: object) -> Producer:
    """A plain idempotent producer, for events that are harmless twice."""
    return Producer({**_base(settings), "enable.idempotence": True, "linger.ms": 0, **overrides}, logger=LOGGER)


def transactional_producer(settings: Settings, transactional_id: str, **overrides: object) -> Producer:
    """A producer that fences every earlier holder of `transactional_id` once `init_transactions` returns."""
    conf = {
        **_base(settings),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "linger.ms": 0,
        **overrides,
    }
    return BoundedProducer(conf, logger=LOGGER)


class BoundedProducer(Producer):
    """One whose calls come back. librdkafka waits for ever in this one once the group's coordinator is gone, whatever
    its time-out says (confluentinc/librdkafka#5456, #5511).
    """

    # The types of confluent_kafka name the arguments otherwise.
    def send_offsets_to_transaction(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, positions: list[TopicPartition], group_metadata: object, timeout: float
    ) -> None:
        """Raises KafkaException for a transaction that can only be aborted, which is left to the next fence."""
        in_time(
            lambda: super(BoundedProducer, self).send_offsets_to_transaction(positions, group_metadata, timeout),
            timeout,
        )


def in_time(call: Callable[[], None], timeout_s: float) -> None:
    """Make a call that may not come back. Raises KafkaException `_TIMED_OUT` some seconds after `timeout_s`."""
    answer = apart(call, "calve-bounded")
    try:
        error = answer.exception(timeout=timeout_s + GRACE_S)
    except TimeoutError:
        told = f"no answer in {timeout_s:.0f} s"
        raise KafkaException(KafkaError(TIMED_OUT, told, txn_requires_abort=True)) from None
    if error is not None:
        try:
            raise error
        finally:
            # They would hold their frame, and that the producer.
            del answer, error


def await_broker(producer: Producer, topic: str, timeout_s: float) -> None:
    """Wait until a producer can ask a broker for its id; without that it may wait half a second between two tries.

    Raises KafkaException after `timeout_s`.
    """
    # The first answer may come from a bootstrap connection, which ends as soon as the brokers are known.
    for _ in range(2):
        producer.list_topics(topic, timeout=timeout_s)


def _base(settings: Settings) -> dict[str, Any]:
    return {
        "client.id": "calve",
        # Errors come back from the calls; librdkafka's warnings about starting coordinators would only frighten.
        "log_level": 3,
        # Each client connects twice at its start, to a bootstrap server and to the broker that it turns out to be. The
        # default has it wait 50 ms between. It doubles up to 10 s where nothing answers.
        "reconnect.backoff.ms": 10,
        **resolve(settings),
    }
