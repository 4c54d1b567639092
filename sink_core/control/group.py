"""The offsets of a group: of the source group positions, whose metadata names their last publish, and with which nobody
consumes; and of groups that others consume with.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import reported
from calve.sink_core.offsets import Position, Positions, TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.timing import Deadline

TIMEOUT_S = 60.0
_RETRY_S = 0.1
_HAS_MEMBERS = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
}
"""What the coordinator answers, by the group's protocol and state, to whoever is no member."""


class SourceGroup:
    """Reads a group's offsets, and names the group to a transaction, through a consumer that never subscribes.

    Not through an AdminClient: librdkafka 2.16 crashes the process when its `ListConsumerGroupOffsets` meets a pending
    transaction or a coordinator that is moving.
    """

    def __init__(self, settings: clients.Settings, name: str, rules: Rules = ALL, *, waits: bool = True) -> None:
        """`waits`: for transactions that are pending on an offset; else it is read as it was before them."""
        self._settings = settings
        self._isolation = {} if waits and rules.offsets_are_stable else clients.UNCOMMITTED
        self.name = name
        self._consumer: Consumer | None = None

    def positions(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, Position]:
        """The offsets of `partitions` that have one, once no transaction is pending on them (`require_stable`).

        Raises Unreachable if a transaction stays pending for `timeout_s`.
        """
        wanted = [KafkaTopicPartition(*at) for at in partitions]
        if not wanted:
            return {}
        deadline = Deadline.after(timeout_s)
        while True:
            try:
                with reported(f"reading the positions of group {self.name}"):
                    return self._committed(wanted, max(1.0, deadline.left_s))
            except Unreachable:
                # A coordinator that is starting or moving says so at once.
                if deadline.left_s < _RETRY_S:
                    raise
                time.sleep(_RETRY_S)

    def put(self, positions: Positions) -> bool:
        """Commit offsets without being a member; False if the group has some: the offsets are theirs then.

        `positions` must have been asked for: that finds the group's coordinator.
        """
        try:
            answers = self._opened().commit(offsets=to_kafka(positions), asynchronous=False)
            if error := next((each.error for each in answers or () if each.error is not None), None):
                raise KafkaException(error)
        except KafkaException as raised:
            if raised.args[0].code() in _HAS_MEMBERS:
                return False
            with reported(f"committing offsets of group {self.name}"):
                raise
        return True

    def metadata(self) -> object:
        """What `send_offsets_to_transaction` wants to know of the group."""
        return self._opened().consumer_group_metadata()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _committed(self, wanted: list[KafkaTopicPartition], timeout_s: float) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        for tp in self._opened().committed(wanted, timeout_s):
            if tp.error is not None:
                raise KafkaException(tp.error)
            if tp.offset >= 0:
                found[TopicPartition(tp.topic, tp.partition)] = Position(tp.offset, tp.metadata or "")
        return found

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = clients.reader(self._settings, group=self.name, **self._isolation)
        return self._consumer


def to_kafka(positions: Positions) -> list[KafkaTopicPartition]:
    """As librdkafka wants offsets for a transaction: next offset to read, with metadata."""
    return [
        KafkaTopicPartition(at.topic, at.partition, position.offset, metadata=position.metadata)
        for at, position in sorted(positions.items())
    ]
