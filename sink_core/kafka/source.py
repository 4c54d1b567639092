"""Bounded questions to the source cluster: its topics, their ends and starts, and a sample of their records.

The `AdminClient` is the caller's. Every call takes a `timeout_s` in seconds and raises Unreachable if the cluster did
not answer by then, ConfigError for an unknown topic or a missing permission (more in `sink_core/kafka/failures.py`).
However many partitions are asked about, it is one call; librdkafka sends one request to each leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calve.sink_core.config.routing import left_out, matching
from calve.sink_core.errors import CalveError, ConfigError, RetriableError
from calve.sink_core.kafka.clients import Settings, reader, receive
from calve.sink_core.kafka.compat import NOENT, PARTITION_EOF, ConfigResource, OffsetSpec, ResourceType
from calve.sink_core.kafka.failures import answered, classify, reported, said
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.timing import Deadline, back_off

K = TypeVar("K")

ASSUMED_BYTES_PER_RECORD = 1024.0
SAMPLE_RECORDS = 1_000
"""Of each topic, to infer the columns of a table from."""

# Typed as optional, but filled when confluent_kafka is imported.
_EARLIEST = cast(OffsetSpec, OffsetSpec.earliest())
_LATEST = cast(OffsetSpec, OffsetSpec.latest())

_POLL_S = 0.2
_ELECTION_TRIES = 5
"""How often the brokers are asked while leaders change."""
_KNOWN_TIMEOUT_S = 2.0
"""For partitions that did not answer before."""
# librdkafka wants a group id; without a subscription or a commit the group never comes to exist.
_GROUP = "calve-sample"
_AT_A_TIME = 1_000
_SAMPLE_BYTES = 32 * 1024 * 1024
_SAMPLING: dict[str, object] = {
    # Retention may move a log start between the look-up and the read.
    "auto.offset.reset": "earliest",
    # Small fetches make the partitions take turns and keep a sample of a large topic cheap.
    "max.partition.fetch.bytes": 65536,
    "queued.max.messages.kbytes": 4096,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it.

    `topic_id` is Kafka's text form of its UUID, `partitions` their number, `timestamp_type` 1 = CreateTime or
    2 = LogAppendTime.
    """

    name: str
    topic_id: str
    partitions: int
    timestamp_type: int

    @property
    def all_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(self.name, i) for i in range(self.partitions))


class Sample(NamedTuple):
    """A sampled record; the timestamp is in milliseconds, -1 where there is none."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(slots=True)
class Silent:
    """What of a source gives no answer, each with why: topics that can't be described, partitions that give no offset.

    A question that is given this puts there what it would raise otherwise, and asks no partition that is in it already.
    It raises only where nothing answers at all. `known` did not answer the last time, and are not waited for again.
    """

    known: frozenset[TopicPartition] = frozenset()
    topics: dict[str, CalveError] = field(default_factory=dict[str, CalveError])
    partitions: dict[TopicPartition, CalveError] = field(default_factory=dict[TopicPartition, CalveError])

    def again(self) -> Silent:
        """For another look by the same process."""
        return Silent(frozenset(self.partitions))

    @property
    def by_name(self) -> dict[str, CalveError]:
        """All of it, by the name of the topic or partition."""
        return {**self.topics, **{str(at): error for at, error in self.partitions.items()}}


def _unless_all(errors: dict[K, CalveError], answers: Mapping[K, object]) -> dict[K, CalveError]:
    """The errors without their frames, which hold clients. Raises the first where there is nothing else."""
    for error in errors.values() if not answers else ():
        raise error
    return {name: copy(error) for name, error in errors.items()}


def describe_topics(
    admin: AdminClient, names: Iterable[str], *, timeout_s: float, silent: Silent | None = None
) -> dict[str, Topic]:
    """The topics by name. Raises ConfigError naming the first one that does not exist, unless `silent` takes it."""
    described = _described(admin, names, timeout_s, silent)
    types = _timestamp_types(admin, list(described), timeout_s) if described else {}
    return {name: Topic(name, str(d.topic_id), len(d.partitions), types[name]) for name, d in described.items()}


def topic_ids(admin: AdminClient, names: Iterable[str], *, timeout_s: float) -> dict[str, str]:
    """UUIDs of topics, for half the price. Raises ConfigError naming the first one that does not exist."""
    return {name: str(d.topic_id) for name, d in _described(admin, names, timeout_s).items()}


def _described(
    admin: AdminClient, names: Iterable[str], timeout_s: float, silent: Silent | None = None
) -> dict[str, Any]:
    wanted = sorted(set(names))
    if not wanted:
        return {}
    with reported("describing topics"):
        futures = admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
    described, errors = dict[str, Any](), dict[str, CalveError]()
    for name in wanted:
        try:
            described[name] = answered(futures[name], f"describing topic {name}", timeout_s)
        except CalveError as error:
            if silent is None:
                raise
            errors[name] = error
    if silent is not None:
        silent.topics |= _unless_all(errors, described)
    return described


def existing_topic_ids(
    admin: AdminClient, names: Iterable[str], *, timeout_s: float, silent: Silent | None = None
) -> dict[str, str]:
    """UUIDs of those topics that exist. Raises ConfigError for one that may not be described, as it may exist, unless
    `silent` takes it.
    """
    found: dict[str, str] = {}
    if wanted := sorted(set(names)):
        with reported("describing topics"):
            futures = admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
        for name, future in futures.items():
            try:
                found[name] = str(answered(future, f"describing topic {name}", timeout_s).topic_id)
            except ConfigError as error:
                if said(error, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    continue
                if silent is None:
                    raise
                silent.topics[name] = copy(error)
    return found


def topics_like(admin: AdminClient, pattern: str, *, timeout_s: float) -> list[str]:
    """Names of the topics that match as a whole, internal ones left out."""
    with reported("listing topics"):
        return matching(admin.list_topics(timeout=timeout_s).topics, pattern)


def control_topics_like(admin: AdminClient, pattern: str, *, timeout_s: float) -> list[str]:
    """Names of control topics that match as a whole: `topics_like` leaves them out."""
    with reported("listing topics"):
        return left_out(admin.list_topics(timeout=timeout_s).topics, pattern)


def end_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], *, timeout_s: float, silent: Silent | None = None
) -> dict[TopicPartition, int]:
    """The last stable offset of each partition: whatever lies below it is committed or aborted for good."""
    return _list_offsets(admin, partitions, _LATEST, "reading the end offset", timeout_s, silent=silent)


def high_watermarks(
    admin: AdminClient, partitions: Iterable[TopicPartition], *, timeout_s: float, silent: Silent | None = None
) -> dict[TopicPartition, int]:
    """The end of each partition, records of open transactions included."""
    doing = "reading the high watermark"
    return _list_offsets(admin, partitions, _LATEST, doing, timeout_s, IsolationLevel.READ_UNCOMMITTED, silent)


def log_starts(
    admin: AdminClient, partitions: Iterable[TopicPartition], *, timeout_s: float, silent: Silent | None = None
) -> dict[TopicPartition, int]:
    """The first offset each partition still holds."""
    return _list_offsets(admin, partitions, _EARLIEST, "reading the log start", timeout_s, silent=silent)


def offsets_at(
    admin: AdminClient, partitions: Iterable[TopicPartition], timestamp_ms: int, *, timeout_s: float
) -> dict[TopicPartition, int]:
    """The first offset of each partition whose record is of `timestamp_ms` or later, its end if there is none."""
    wanted = list(partitions)
    # The ends are read first: a record that arrives between the two calls must not be skipped.
    ends = end_offsets(admin, wanted, timeout_s=timeout_s)
    spec = OffsetSpec.for_timestamp(timestamp_ms)
    found = _list_offsets(admin, wanted, spec, f"looking up timestamp {timestamp_ms}", timeout_s)
    return {at: offset if offset >= 0 else ends[at] for at, offset in found.items()}


def sample(
    settings: Settings, topic: str, max_records: int, *, timeout_s: float, starts: Mapping[int, int] | None = None
) -> list[Sample]:
    """Up to `max_records` committed records from the starts of the topic's partitions, reading for at most `timeout_s`.

    With `starts`, from these offsets by partition, and of no other partition. Fewer if the topic holds fewer, these are
    large or the time is up. Joins no group and commits nothing.
    """
    deadline = Deadline.after(timeout_s)
    with reported(f"sampling topic {topic}"), closing(reader(settings, group=_GROUP, **_SAMPLING)) as consumer:
        reading = {p.partition for p in _assign(consumer, topic, timeout_s, starts)}
        taken: list[Sample] = []
        left_bytes = _SAMPLE_BYTES
        while reading and left_bytes > 0 and len(taken) < max_records and (left := deadline.left_s) > 0:
            for message in receive(consumer, max_records - len(taken), min(left, _POLL_S)):
                if message.error() is None:
                    taken.append(_sampled(message))
                    left_bytes -= len(message)
                else:
                    reading.discard(_ended(message, topic))
    return taken


def first_values(settings: Settings, topics: Iterable[str], *, timeout_s: float) -> dict[str, bytes | None]:
    """Of topics of one partition the value of their first committed record; none of one that has none, or may not be
    read.
    """
    deadline = Deadline.after(timeout_s)
    waiting, found = set(topics), dict[str, bytes | None]()
    with reported("reading first records"), closing(reader(settings, group=_GROUP, **_SAMPLING)) as consumer:
        consumer.assign([KafkaPartition(topic, 0, OFFSET_BEGINNING) for topic in waiting])
        while waiting:
            if deadline.passed:
                raise TimeoutError
            seen = {str(m.topic()): m for m in reversed(receive(consumer, _AT_A_TIME, _POLL_S)) if m.topic() in waiting}
            found |= {topic: message.value() for topic, message in seen.items() if message.error() is None}
            consumer.incremental_unassign([KafkaPartition(topic, 0) for topic in seen])
            waiting -= seen.keys()
    return found


def sample_values(
    settings: Settings,
    topics: Iterable[str],
    max_records: int,
    *,
    timeout_s: float,
    starts: Mapping[str, Mapping[int, int]] | None = None,
) -> dict[str, list[bytes]]:
    """By topic the values of up to `max_records` records, tombstones left out; as `sample` reads them."""
    sampled = {
        topic: sample(settings, topic, max_records, timeout_s=timeout_s, starts=starts[topic] if starts else None)
        for topic in topics
    }
    return {topic: [r.value for r in records if r.value is not None] for topic, records in sampled.items()}


def bytes_per_record(sampled: Iterable[Sample]) -> float:
    """Mean bytes of keys and values, `ASSUMED_BYTES_PER_RECORD` if there is no record to go by."""
    sizes = [len(s.key or b"") + len(s.value or b"") for s in sampled]
    return fmean(sizes) if sizes else ASSUMED_BYTES_PER_RECORD


def _assign(consumer: Consumer, topic: str, timeout_s: float, starts: Mapping[int, int] | None) -> list[KafkaPartition]:
    known = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if known.error is not None:
        raise classify(known.error, f"sampling topic {topic}")
    begins = dict.fromkeys(known.partitions, OFFSET_BEGINNING) if starts is None else starts
    partitions = [KafkaPartition(topic, p, offset) for p, offset in begins.items()]
    consumer.assign(partitions)
    return partitions


def _sampled(message: Message) -> Sample:
    _, timestamp_ms = message.timestamp()
    return Sample(message.key(), message.value(), timestamp_ms)


def _ended(message: Message, topic: str) -> int | None:
    """The partition whose end the message reports. Raises if it reports an error instead."""
    error = message.error()
    if error is not None and error.code() != PARTITION_EOF:
        raise classify(error, f"sampling topic {topic}")
    return message.partition()


def _list_offsets(
    admin: AdminClient,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    doing: str,
    timeout_s: float,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    silent: Silent | None = None,
) -> dict[TopicPartition, int]:
    left = [at for at in dict.fromkeys(partitions) if silent is None or at not in silent.partitions]
    known = silent.known.intersection(left) if silent is not None else frozenset[TopicPartition]()
    offsets, errors = dict[TopicPartition, int](), dict[TopicPartition, CalveError]()
    for turn in range(_ELECTION_TRIES if left else 0):
        with reported(doing):
            if turn:
                back_off(turn - 1, first_s=1.0, most_s=4.0)
            if turn or known:
                # The client keeps the leader it knows, or that there is none; this makes it look again.
                admin.list_topics(timeout=timeout_s)
            # A request is answered once all of its leaders are: those that were silent have one of their own.
            asked = [
                (admin.list_offsets(wanted, isolation_level=isolation, request_timeout=limit_s), limit_s)
                for limit_s, wanted in (
                    (timeout_s, {KafkaPartition(*at): spec for at in left if at not in known}),
                    (min(timeout_s, _KNOWN_TIMEOUT_S), {KafkaPartition(*at): spec for at in left if at in known}),
                )
                if wanted
            ]
        errors = {at: error for at, error in errors.items() if at not in left}
        for futures, limit_s in asked:
            for p, future in futures.items():
                at = TopicPartition(p.topic, p.partition)
                try:
                    offsets[at] = _offset(future, f"{doing} of {at}", limit_s)
                except CalveError as error:
                    errors[at] = error
        left = [at for at, error in errors.items() if at not in known and _said_by_a_broker(error)]
        if not left or (silent is None and len(left) < len(errors)):
            break
    if silent is not None:
        silent.partitions |= _unless_all(errors, offsets)
    elif errors:
        raise next(iter(errors.values()))
    return offsets


def _offset(future: Future[Any], doing: str, timeout_s: float) -> int:
    offset: int = answered(future, doing, timeout_s).offset
    if offset == OFFSET_INVALID:
        # A leader that dies under the request leaves an answer with neither an offset nor an error.
        error = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        raise classify(error, doing) from error
    return offset


def _said_by_a_broker(error: CalveError) -> bool:
    """Whether a broker has answered that it can't at the moment, as while a leader is elected; else nobody answered.

    librdkafka's own word for a partition without a leader is by a broker's metadata.
    """
    cause = error.__cause__
    if not isinstance(error, RetriableError) or not isinstance(cause, KafkaException):
        return False
    code = cause.args[0].code()
    return code > 0 or code == NOENT


def largest_batch(admin: AdminClient, topic: str, *, timeout_s: float) -> int:
    """The topic's `max.message.bytes`."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    doing = f"reading the configuration of topic {topic}"
    with reported(doing):
        future = admin.describe_configs([resource], request_timeout=timeout_s)[resource]
    return int(answered(future, doing, timeout_s)["max.message.bytes"].value)


class Takes(NamedTuple):
    """What a topic takes: batches of at most `max_bytes`, and where it is `compacted` no record without a key."""

    max_bytes: int
    compacted: bool


def what_topics_take(admin: AdminClient, topics: Iterable[str], *, timeout_s: float) -> dict[str, Takes]:
    """By topic, without those whose configuration may not be read."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not resources:
        return {}
    doing = "reading topic configurations"
    with reported(doing):
        futures = admin.describe_configs(resources, request_timeout=timeout_s)
    by_topic = dict[str, Takes]()
    for resource, future in futures.items():
        try:
            entries = answered(future, f"{doing}: {resource.name}", timeout_s)
        except ConfigError as error:
            if said(error, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                continue
            raise
        policies = str(entries["cleanup.policy"].value).split(",")
        by_topic[resource.name] = Takes(int(entries["max.message.bytes"].value), "compact" in policies)
    return by_topic


def _timestamp_types(admin: AdminClient, names: Iterable[str], timeout_s: float) -> dict[str, int]:
    """Per topic; CreateTime, which promises less, where the topic's configuration may not be read."""
    with reported("reading topic configurations"):
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = admin.describe_configs(resources, request_timeout=timeout_s)
    return {resource.name: _timestamp_type(resource.name, future, timeout_s) for resource, future in futures.items()}


def _timestamp_type(topic: str, future: Future[Any], timeout_s: float) -> int:
    doing = f"reading the configuration of topic {topic}"
    try:
        entries = answered(future, doing, timeout_s)
    except ConfigError as error:
        if said(error, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            return TIMESTAMP_CREATE_TIME
        raise
    appended = entries["message.timestamp.type"].value == "LogAppendTime"
    return TIMESTAMP_LOG_APPEND_TIME if appended else TIMESTAMP_CREATE_TIME
