"""The clients of confluent_kafka, as far as Calve uses them, over the modelled cluster.

Every request is an effect: others may go first. Its reply may be lost, before or after what it asked for has happened,
or it may arrive late; `Network` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec

from tests.simulation.broker import At, Cluster, refused
from tests.simulation.scheduler import Scheduler

POLL_S = 0.1


class Network:
    """Between clients and cluster. `lossy` says what happens to a request: "", "lost", "unanswered" or "late"."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster, lossy: Callable[[str], str]) -> None:
        self.scheduler = scheduler
        self.cluster = cluster
        self._lossy = lossy

    def ask(self, request: Callable[[], Any]) -> Any:
        """A request that changes nothing: it may only have to wait for others."""
        self.scheduler.give_way()
        return request()

    def change(self, name: str, request: Callable[[], Any]) -> Any:
        """A request that changes something. Raises a time-out where the reply is lost."""
        self.scheduler.give_way()
        fate = self._lossy(name)
        if fate == "late":
            self.cluster.pending.append(lambda: _ignoring_refusals(request))
        if fate in ("lost", "late"):
            raise refused(KafkaError._TIMED_OUT, retriable=True)
        answer = request()
        if fate == "unanswered":
            raise refused(KafkaError._TIMED_OUT, retriable=True)
        return answer


def _ignoring_refusals(request: Callable[[], Any]) -> None:
    with suppress(KafkaException):
        request()


@dataclass(frozen=True, slots=True)
class SimMessage:
    """A record, or an error, as a consumer hands it out."""

    at: At
    position: int
    content: object | None = None
    timestamp_ms: int = -1
    failure: KafkaError | None = None

    def __len__(self) -> int:
        """Bytes of the value."""
        return 10

    def error(self) -> KafkaError | None:
        return self.failure

    def value(self) -> object | None:
        return self.content

    def key(self) -> None:
        return None

    def offset(self) -> int:
        return self.position

    def partition(self) -> int:
        return self.at[1]

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, self.timestamp_ms


class SimConsumer:
    """Assigned, never subscribed; reads what is committed, unless `uncommitted`."""

    def __init__(self, network: Network, group: str, *, uncommitted: bool = False) -> None:
        self._network = network
        self._cluster = network.cluster
        self._group = group
        self._uncommitted = uncommitted
        self._next: dict[At, int] = {}
        self._told_end: dict[At, int] = {}

    def assign(self, partitions: Sequence[KafkaPartition]) -> None:
        self._next = {
            (p.topic, p.partition): self._cluster.log((p.topic, p.partition)).start
            if p.offset == OFFSET_BEGINNING
            else p.offset
            for p in partitions
        }

    def consume(self, number: int, timeout: float) -> list[SimMessage]:
        taken: list[SimMessage] = []
        for at in self._next:
            taken += self._read(at, number - len(taken))
        if not taken and timeout > 0:
            self._network.scheduler.sleep(timeout)
        return taken

    def _read(self, at: At, number: int) -> list[SimMessage]:
        log, taken = self._cluster.log(at), list[SimMessage]()
        end = log.end if self._uncommitted else log.last_stable
        while len(taken) < number:
            here = self._next[at]
            if not log.start <= here <= log.end:
                return [*taken, SimMessage(at, here, failure=KafkaError(KafkaError._AUTO_OFFSET_RESET))]
            if here >= end:
                if self._told_end.get(at) != here:
                    self._told_end[at] = here
                    taken.append(SimMessage(at, here, failure=KafkaError(KafkaError._PARTITION_EOF)))
                return taken
            self._next[at] = here + 1
            given = log.records[here].value is not None if self._uncommitted else log.committed(here)
            if given:
                taken.append(SimMessage(at, here, log.records[here].value, log.records[here].timestamp_ms))
        return taken

    def committed(self, partitions: Sequence[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        """Waits for stable offsets, unless `uncommitted`."""
        wanted = [(p.topic, p.partition) for p in partitions]
        deadline = self._network.scheduler.now_s + timeout
        while not self._network.ask(lambda: self._uncommitted or self._cluster.is_stable(self._group, iter(wanted))):
            if self._network.scheduler.now_s >= deadline:
                raise refused(KafkaError._TIMED_OUT, retriable=True)
            self._network.scheduler.sleep(POLL_S)
        offsets = self._cluster.groups.get(self._group, {})
        return [
            KafkaPartition(*at, offsets[at][0], metadata=offsets[at][1])
            if at in offsets
            else KafkaPartition(*at, -1001)
            for at in wanted
        ]

    def consumer_group_metadata(self) -> str:
        return self._group

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        del timeout
        partitions = dict.fromkeys(range(len(self._cluster.topics[topic].logs)))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def close(self) -> None:
        self._next = {}


class SimProducer:
    """Plain without a transactional id."""

    def __init__(self, network: Network, transactional_id: str | None = None) -> None:
        self._network = network
        self._cluster = network.cluster
        self._id = transactional_id
        self._epoch = 0
        self._buffer: list[tuple[At, object, Callable[..., None] | None]] = []

    def init_transactions(self, timeout: float = 0) -> None:
        del timeout
        id_ = self._of_transactions()
        self._epoch = self._network.change("init_transactions", lambda: self._cluster.init_transactions(id_))

    def list_topics(self, topic: str, timeout: float = 0) -> None:
        """Only waits for a connection."""

    def begin_transaction(self) -> None:
        """A matter of the client alone."""

    def produce(
        self, topic: str, value: object, *, partition: int, headers: object = None, on_delivery: Any = None
    ) -> None:
        del headers
        self._buffer.append(((topic, partition), value, on_delivery))

    def flush(self, timeout: float = 0) -> int:
        """What could not be sent stays in the buffer."""
        del timeout
        while self._buffer:
            at, value, on_delivery = self._buffer[0]
            try:
                offset = self._network.change("produce", lambda at=at, value=value: self._send(at, value))
            except KafkaException as error:
                if error.args[0].fatal() or self._id is None:
                    raise
                return len(self._buffer)
            self._buffer.pop(0)
            if on_delivery is not None:
                on_delivery(None, SimMessage(at, offset, value, self._cluster.log(at).records[offset].timestamp_ms))
        return 0

    def send_offsets_to_transaction(self, offsets: Sequence[KafkaPartition], group: str, timeout: float = 0) -> None:
        del timeout
        id_, wanted = self._of_transactions(), {(p.topic, p.partition): (p.offset, p.metadata or "") for p in offsets}
        self._network.change("add_offsets", lambda: self._cluster.add_offsets(id_, self._epoch, group, wanted))

    def commit_transaction(self, timeout: float = 0) -> None:
        del timeout
        id_ = self._of_transactions()
        self._network.change("commit", lambda: self._cluster.commit(id_, self._epoch))

    def _of_transactions(self) -> str:
        assert self._id is not None
        return self._id

    def _send(self, at: At, value: object) -> int:
        if self._id is None:
            return self._cluster.append(at, value)
        return self._cluster.produce(self._id, self._epoch, at, value)


class SimAdmin:
    """The questions Calve asks, each answered with a future that is done."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._cluster = network.cluster

    def describe_cluster(self, **_options: object) -> Answer:
        return self._answered(lambda: SimpleNamespace(cluster_id=self._cluster.cluster_id))

    def list_topics(self, timeout: float) -> SimpleNamespace:
        del timeout
        return self._network.ask(lambda: SimpleNamespace(topics={t: self._topic(t) for t in self._cluster.topics}))

    def _topic(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(partitions=dict.fromkeys(range(len(self._cluster.topics[name].logs))))

    def create_topics(self, topics: Sequence[NewTopic], **_options: object) -> dict[str, Answer]:
        return {
            t.topic: self._answered(lambda t=t: self._cluster.create_topic(t.topic, t.num_partitions, t.config))
            for t in topics
        }

    def describe_topics(self, names: Any, **_options: object) -> dict[str, Answer]:
        wanted = [str(name) for name in names.topic_names]
        self._network.scheduler.give_way()
        return {name: Answer(lambda name=name: self._described(name)) for name in wanted}

    def describe_configs(self, resources: Iterable[ConfigResource], **_options: object) -> dict[ConfigResource, Answer]:
        return {resource: Answer(lambda r=resource: self._config(r.name)) for resource in resources}

    def list_offsets(
        self,
        wanted: Mapping[KafkaPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **_options: object,
    ) -> dict[KafkaPartition, Answer]:
        self._network.scheduler.give_way()
        return {
            tp: Answer(lambda tp=tp, spec=spec: self._offset((tp.topic, tp.partition), spec, isolation_level))
            for tp, spec in wanted.items()
        }

    def delete_records(self, partitions: Sequence[KafkaPartition], **_options: object) -> dict[Any, Answer]:
        return {p: self._answered(lambda p=p: self._delete(p)) for p in partitions}

    def _delete(self, p: KafkaPartition) -> None:
        self._cluster.delete_records((p.topic, p.partition), p.offset)

    def _described(self, name: str) -> SimpleNamespace:
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topic_id=topic.topic_id, partitions=topic.logs)

    def _config(self, name: str) -> dict[str, SimpleNamespace]:
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return {key: SimpleNamespace(value=value) for key, value in topic.config.items()}

    def _offset(self, at: At, spec: OffsetSpec, isolation: IsolationLevel) -> SimpleNamespace:
        log = self._cluster.log(at)
        if spec is OffsetSpec.earliest():
            return SimpleNamespace(offset=log.start)
        if spec is OffsetSpec.latest():
            return SimpleNamespace(offset=log.last_stable if isolation == IsolationLevel.READ_COMMITTED else log.end)
        young = (o for o in range(log.start, log.end) if log.records[o].timestamp_ms >= spec._value)
        return SimpleNamespace(offset=next(young, -1))

    def _answered(self, request: Callable[[], Any]) -> Answer:
        self._network.scheduler.give_way()
        return Answer(request)


class Answer:
    """A future that is done."""

    def __init__(self, request: Callable[[], Any]) -> None:
        self._value, self._error = None, None
        try:
            self._value = request()
        except KafkaException as error:
            self._error = error

    def exception(self, timeout: float = 0) -> KafkaException | None:
        del timeout
        return self._error

    def result(self, timeout: float = 0) -> Any:
        del timeout
        if self._error is not None:
            raise self._error
        return self._value
