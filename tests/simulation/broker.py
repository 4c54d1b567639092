"""A model of a Kafka cluster: logs, transactions, groups and the fencing between transactional producers.

Only what the protocol can notice is here. A decided transaction becomes visible in two more steps, one for the logs and
one for the group, which `pending` holds until somebody runs them: between them the last stable offset lags behind, and
readers of the group that ask for stable offsets wait. `tests/simulation/test_models.py` holds the model against a real
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import KafkaError, KafkaException

At = tuple[str, int]
"""Topic and partition."""


class Outcome(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """`marked` and `visible`: its markers are in the logs, its offsets in the group."""

    transactional_id: str
    epoch: int
    outcome: Outcome = Outcome.OPEN
    logs: set[At] = field(default_factory=set[At])
    offsets: dict[str, dict[At, tuple[int, str]]] = field(default_factory=dict[str, dict[At, tuple[int, str]]])
    marked: bool = False
    visible: bool = False


@dataclass(slots=True)
class Stored:
    """A record of a log. `value` None: a control record, which no consumer is given."""

    value: object | None
    timestamp_ms: int
    transaction: Transaction | None = None


@dataclass
class Log:
    """One partition. `start` is the first offset still held."""

    records: list[Stored] = field(default_factory=list[Stored])
    start: int = 0

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.records)

    @property
    def last_stable(self) -> int:
        """Below it every transaction is decided, and its marker there."""
        for offset in range(self.start, self.end):
            transaction = self.records[offset].transaction
            if transaction is not None and not transaction.marked:
                return offset
        return self.end

    def committed(self, offset: int) -> bool:
        """Whether readers of committed records are given what is at `offset`."""
        record = self.records[offset]
        if record.value is None:
            return False
        return record.transaction is None or record.transaction.outcome is Outcome.COMMITTED


@dataclass
class Topic:
    """A topic of one incarnation."""

    topic_id: str
    logs: list[Log]
    config: Mapping[str, str]


class Cluster:
    """The brokers' state. Methods are requests as they arrive: each happens at once or raises KafkaException."""

    def __init__(self, new_id: Callable[[], str], now_ms: Callable[[], int]) -> None:
        self._new_id = new_id
        self.now_ms = now_ms
        self.cluster_id = new_id()
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, dict[At, tuple[int, str]]] = {}
        self.epochs: dict[str, int] = {}
        self.transactions: dict[str, Transaction] = {}
        self.pending: list[Callable[[], None]] = []
        self.decided: Callable[[Transaction], None] = lambda _transaction: None

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        if name in self.topics:
            raise refused(KafkaError.TOPIC_ALREADY_EXISTS)
        self.topics[name] = Topic(self._new_id(), [Log() for _ in range(partitions)], dict(config))
        return self.topics[name]

    def create_partitions(self, name: str, number: int) -> None:
        """Up to `number` of them in all."""
        logs = self.topics[name].logs
        if number <= len(logs):
            raise refused(KafkaError.INVALID_PARTITIONS)
        logs += [Log() for _ in range(number - len(logs))]

    def delete_topic(self, name: str) -> None:
        """With the offsets that groups have for it, as the broker does."""
        del self.topics[name]
        for offsets in self.groups.values():
            for at in [at for at in offsets if at[0] == name]:
                del offsets[at]

    def log(self, at: At) -> Log:
        topic = self.topics.get(at[0])
        if topic is None or at[1] >= len(topic.logs):
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return topic.logs[at[1]]

    def append(self, at: At, value: object, transaction: Transaction | None = None) -> int:
        """The record's offset."""
        log = self.log(at)
        log.records.append(Stored(value, self.now_ms(), transaction))
        return log.end - 1

    def delete_records(self, at: At, below: int) -> None:
        log = self.log(at)
        if below > log.end:
            raise refused(KafkaError.OFFSET_OUT_OF_RANGE)
        log.start = max(log.start, below)

    def init_transactions(self, transactional_id: str) -> int:
        """A new epoch; what the id has left open is aborted, and what is decided is finished first."""
        last = self.transactions.get(transactional_id)
        if last is not None:
            if last.outcome is Outcome.OPEN:
                self._decide(last, Outcome.ABORTED)
            self._mark(last)
            self._show(last)
        self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        return self.epochs[transactional_id]

    def begin(self, transactional_id: str, epoch: int) -> Transaction:
        """The open transaction of a producer, a new one if it has none."""
        self._check(transactional_id, epoch)
        last = self.transactions.get(transactional_id)
        if last is not None:
            if last.outcome is Outcome.OPEN:
                return last
            self._mark(last)
            self._show(last)
        self.transactions[transactional_id] = Transaction(transactional_id, epoch)
        return self.transactions[transactional_id]

    def produce(self, transactional_id: str, epoch: int, at: At, value: object) -> int:
        transaction = self.begin(transactional_id, epoch)
        offset = self.append(at, value, transaction)
        transaction.logs.add(at)
        return offset

    def add_offsets(self, transactional_id: str, epoch: int, group: str, offsets: Mapping[At, tuple[int, str]]) -> None:
        for topic, _ in offsets:
            if topic not in self.topics:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self.begin(transactional_id, epoch).offsets.setdefault(group, {}).update(offsets)

    def commit(self, transactional_id: str, epoch: int) -> None:
        """Decided when this returns; visible later."""
        self._check(transactional_id, epoch)
        last = self.transactions.get(transactional_id)
        if last is not None and last.outcome is Outcome.OPEN:
            self._decide(last, Outcome.COMMITTED)

    def abort(self, transactional_id: str, epoch: int) -> None:
        """Decided when this returns. One that is committed can't be aborted any more."""
        self._check(transactional_id, epoch)
        last = self.transactions.get(transactional_id)
        if last is not None and last.outcome is Outcome.COMMITTED and not last.visible:
            raise refused(KafkaError.INVALID_TXN_STATE)
        if last is not None and last.outcome is Outcome.OPEN:
            self._decide(last, Outcome.ABORTED)

    def time_out(self) -> bool:
        """Abort the open transactions, as the coordinator does after their time-out; False if there is none."""
        found = [t for t in self.transactions.values() if t.outcome is Outcome.OPEN]
        for transaction in found:
            self.epochs[transaction.transactional_id] += 1
            self._decide(transaction, Outcome.ABORTED)
        return bool(found)

    def is_stable(self, group: str, wanted: Iterator[At]) -> bool:
        """Whether no transaction holds offsets for `wanted` that are not decided or not visible yet."""
        asked = set(wanted)
        return not any(
            not t.visible and not asked.isdisjoint(t.offsets.get(group, {})) for t in self.transactions.values()
        )

    def run_pending(self, number: int = 0) -> None:
        if self.pending:
            self.pending.pop(number % len(self.pending))()

    def settle(self) -> None:
        """All that brokers still have to do."""
        while self.pending:
            self.run_pending()

    def _check(self, transactional_id: str, epoch: int) -> None:
        if self.epochs.get(transactional_id) != epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "a newer producer has taken over", fatal=True))

    def _decide(self, transaction: Transaction, outcome: Outcome) -> None:
        transaction.outcome = outcome
        self.decided(transaction)
        self.pending += [lambda: self._mark(transaction), lambda: self._show(transaction)]

    def _mark(self, transaction: Transaction) -> None:
        """The control record that ends the transaction in each of its logs."""
        if transaction.marked or transaction.outcome is Outcome.OPEN:
            return
        transaction.marked = True
        for at in sorted(transaction.logs):
            if at[0] in self.topics:
                self.log(at).records.append(Stored(None, self.now_ms()))

    def _show(self, transaction: Transaction) -> None:
        if transaction.visible or transaction.outcome is Outcome.OPEN:
            return
        transaction.visible = True
        if transaction.outcome is Outcome.COMMITTED:
            for group, offsets in transaction.offsets.items():
                kept = {at: offset for at, offset in offsets.items() if at[0] in self.topics}
                self.groups.setdefault(group, {}).update(kept)


def refused(code: int, *, retriable: bool = False) -> KafkaException:
    """What librdkafka raises for an error code."""
    return KafkaException(KafkaError(code, "refused by the simulated cluster", retriable=retriable))
