"""Is Kafka there, and does it let the pipeline do what it does? Nothing asked here disturbs a running pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.config.units import DAY
from calve.sink_core.control.log import CREATED_CONFIG, ControlLog
from calve.sink_core.error_codes.kafka import GROUP_IN_USE, OFFSETS_RETENTION
from calve.sink_core.errors import ConfigError
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import AclOperation, ConfigResource, NewTopic, ResourceType
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.first_contact import cluster
from calve.sink_core.kafka.source import describe_topics, end_offsets, largest_batch, sample_values, topics_like
from calve.sink_core.sink.checks import acls
from calve.sink_core.sink.checks.checklist import Check, MissingPermission, Note
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.timing import Deadline

TIMEOUT_S = 10.0
SAMPLE_RECORDS = 1_000
RETENTION_MINUTES_NEEDED = int(DAY // 60)
"""The keep-alive runs at a quarter of the retention; below a day a missed one or two lose the positions."""

_GRACE_S = 2.0
_BETWEEN_S = 0.2
_RETENTION = "offsets.retention.minutes"
_NO_COORDINATOR_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_WITHOUT_MEMBERS = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


class KafkaChecks:
    """The questions to the source cluster, which holds the control topic too."""

    def __init__(self, pipeline: SinkPipeline, *, timeout_s: float = TIMEOUT_S) -> None:
        self._pipeline = pipeline
        self._timeout_s = timeout_s

    def checks(self) -> tuple[Check, ...]:
        return (
            Check("kafka", self.cluster),
            Check("topics", self.topics, needs=("kafka",)),
            Check("control topic", self.control_topic, needs=("kafka",)),
            *(
                [Check("dead-letter topic", self.dead_letter_topic, needs=("kafka",))]
                if self._pipeline.dead_letter_topic
                else ()
            ),
            Check("source group", self.source_group, needs=("kafka",)),
            Check("shared groups", self.shared_groups, needs=("kafka",)),
            Check("transactions", self.transactions, needs=("kafka",)),
            Check("offsets retention", self.offsets_retention, needs=("kafka",)),
        )

    def cluster(self) -> str:
        """Id and size. Raises Unreachable."""
        found = cluster(self._admin, self._pipeline.kafka.properties)
        return f"cluster {found.cluster_id}, {_count(len(found.nodes), 'broker')}"

    def topics(self) -> str:
        """Their partitions and records, permission to read them, and the tables that their names give.

        Raises ConfigError for two topics that give one table.
        """
        pattern = self._pipeline.config.source.topics_regex
        if pattern is not None:
            found = topics_like(self._admin, pattern, timeout_s=self._timeout_s)
            self._pipeline = self._pipeline.having(found, self._pipeline.known_tables)
        names = self._pipeline.topics
        if not names:
            return f"no topic matches {pattern} yet"
        topics = describe_topics(self._admin, names, timeout_s=self._timeout_s)
        self._require_on_topics(names, acls.READ_SOURCE)
        partitions = [at for topic in topics.values() for at in topic.all_partitions]
        ends = end_offsets(self._admin, partitions, timeout_s=self._timeout_s)
        counts = ", ".join(f"{topic.name} ({_count(topic.partitions, 'partition')})" for topic in topics.values())
        given = [table.name for table in self._pipeline.tables if not table.explicit]
        tables = f"; they give {_count(len(given), 'table')}: {', '.join(given)}" if given else ""
        return f"{counts}, end offsets sum up to {sum(ends.values()):,}{tables}"

    def control_topic(self) -> str:
        """Its settings, or the right to create it."""
        name = self._pipeline.control_topic
        if self._log.open(create=False):
            # CREATE is asked of the cluster or a prefix, so it isn't among the topic's own operations.
            self._require_on_topics([name], [o for o in acls.USE_CONTROL if o is not AclOperation.CREATE])
            return f"{name} keeps every event"
        new = NewTopic(name, num_partitions=1, config=dict(CREATED_CONFIG))
        with reported(f"asking whether topic {name} may be created"):
            made = self._admin.create_topics([new], validate_only=True, request_timeout=self._timeout_s)
            self._answer(made[name])
        return f"{name} will be created by the first run"

    def dead_letter_topic(self) -> str:
        """It must be there, and take what a producer writes."""
        name = self._pipeline.dead_letter_topic or ""
        described = describe_topics(self._admin, [name], timeout_s=self._timeout_s)[name]
        self._require_on_topics([name], acls.WRITE_LETTERS)
        most = largest_batch(self._admin, name, timeout_s=self._timeout_s)
        return f"{name} ({_count(described.partitions, 'partition')}) takes messages of up to {most:,} bytes"

    def source_group(self) -> str:
        """It must have no members: Calve alone moves its offsets, and no consumer of it ever joins."""
        group = self._pipeline.group
        found = self._described(group, acls.USE_GROUP)
        if found is None or found.state in _WITHOUT_MEMBERS:
            return f"{group} has no members"
        members = sorted({f"{member.client_id} on {member.host}" for member in found.members})
        raise ConfigError(
            f"group {group} is {found.state.name.lower()}, with members {', '.join(members) or 'unknown'}; "
            "expected none",
            hint="stop those consumers or give them another group.id: Calve alone moves this group's offsets",
            code=GROUP_IN_USE,
        )

    def shared_groups(self) -> str:
        """Sampling and `verify --deep` read with groups that never come to exist; Kafka wants DESCRIBE all the same."""
        self._described(f"{acls.SHARED_GROUPS}check", acls.USE_SHARED_GROUP)
        return f"groups beginning with {acls.SHARED_GROUPS} may be described"

    def transactions(self) -> str:
        """Whether transactions work: with a throw-away id, since the real one would fence a running publisher."""
        transactional_id = f"{self._pipeline.group}.check"
        producer = clients.transactional_producer(self._pipeline.kafka.properties, transactional_id)
        with reported(f"initialising transactions as {transactional_id}"):
            producer.init_transactions(self._timeout_s)
        return f"ids beginning with {self._pipeline.group}. may be used"

    def offsets_retention(self) -> str | Note:
        """How long the broker keeps the offsets of a group without members, which the source group is."""
        minutes = self._broker_setting(_RETENTION)
        if minutes is None:
            return Note(f"{_RETENTION} may not be read", "grant DescribeConfigs on the cluster to have it checked")
        days = f"{int(minutes) / (24 * 60):.3g} days"
        if int(minutes) < RETENTION_MINUTES_NEEDED:
            raise ConfigError(
                f"{_RETENTION} is {minutes} ({days}); positions of idle partitions would be forgotten",
                hint=f"set it to 10080 on the brokers, to {RETENTION_MINUTES_NEEDED} at least",
                code=OFFSETS_RETENTION,
            )
        return f"{days} for idle partitions"

    def sample_values(self) -> dict[str, list[bytes]]:
        """By topic the values of a few records, to infer columns from."""
        settings, topics = self._pipeline.kafka.properties, self._pipeline.topics
        return sample_values(settings, topics, SAMPLE_RECORDS, timeout_s=self._timeout_s)

    @cached_property
    def _admin(self) -> AdminClient:
        return clients.admin(self._pipeline.kafka.properties)

    @cached_property
    def _log(self) -> ControlLog[CommitState]:
        return ControlLog(self._pipeline.kafka.properties, self._pipeline.control_topic, SINK, admin=self._admin)

    def _answer(self, future: Future[Any]) -> Any:
        return future.result(self._timeout_s + _GRACE_S)

    def _described(self, group: str, needed: Iterable[AclOperation]) -> Any:
        """The group with what we may do with it, None if there is none yet. Raises MissingPermission."""
        with reported(f"describing group {group}"):
            try:
                found = self._ask_coordinator(group)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                raise
        _require(f"group {group}", needed, found.authorized_operations)
        return found

    def _ask_coordinator(self, group: str) -> Any:
        """Brokers that have just started, or never had a group, make one a coordinator once they are asked."""
        deadline = Deadline.after(self._timeout_s)
        while True:
            asked = self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self._timeout_s
            )
            try:
                return self._answer(asked[group])
            except KafkaException as error:
                if error.args[0].code() not in _NO_COORDINATOR_YET or deadline.passed:
                    raise
            time.sleep(_BETWEEN_S)

    def _require_on_topics(self, names: Sequence[str], operations: Iterable[AclOperation]) -> None:
        with reported("asking what may be done with topics"):
            asked = self._admin.describe_topics(
                TopicCollection(list(names)), include_authorized_operations=True, request_timeout=self._timeout_s
            )
            allowed = {name: self._answer(asked[name]).authorized_operations for name in names}
        for name in names:
            _require(f"topic {name}", operations, allowed[name])

    def _broker_setting(self, name: str) -> str | None:
        with reported("describing the cluster"):
            brokers = self._answer(self._admin.describe_cluster(request_timeout=self._timeout_s)).nodes
            resource = ConfigResource(ResourceType.BROKER, str(brokers[0].id))
            asked = self._admin.describe_configs([resource], request_timeout=self._timeout_s)
            try:
                entry = self._answer(asked[resource]).get(name)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    return None
                raise
        return entry.value if entry else None


def _require(what: str, operations: Iterable[AclOperation], allowed: Iterable[AclOperation] | None) -> None:
    # None where the broker has no authorizer or is too old to tell.
    if allowed is None:
        return
    granted = set(allowed)
    if lacking := [operation.name for operation in operations if operation not in granted]:
        raise MissingPermission(
            f"{what}: not granted: {', '.join(lacking)}", hint="grant the ACLs below to this pipeline's principal"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
