"""Is a cluster there, and does it let a pipeline do what every kind does? Nothing asked disturbs one that runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, TopicCollection
from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import KafkaSettings
from calve.sink_core.config.units import DAY
from calve.sink_core.control.checking import acls
from calve.sink_core.control.checking.checklist import MissingPermission, Note
from calve.sink_core.control.fold import Fold
from calve.sink_core.control.log import CREATED_CONFIG, ControlLog
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import AclOperation, ConfigResource, DescribeClusterResult, NewTopic, ResourceType
from calve.sink_core.kafka.failures import answered, reported, said
from calve.sink_core.kafka.first_contact import cluster
from calve.sink_core.timing import Deadline

TIMEOUT_S = 10.0
RETENTION_MINUTES_NEEDED = int(DAY // 60)
"""The keep-alive runs at a quarter of the retention; below a day a missed one or two lose the positions."""

_BETWEEN_S = 0.2
_RETENTION = "offsets.retention.minutes"
_NO_COORDINATOR_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_WITHOUT_MEMBERS = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


class ClusterChecks:
    """The questions to one cluster, as one who publishes or reads with the group `group`."""

    def __init__(self, kafka: KafkaSettings, group: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._kafka = kafka
        self._group = group
        self._timeout_s = timeout_s

    @cached_property
    def admin(self) -> AdminClient:
        return clients.admin(self._kafka.properties)

    @cached_property
    def described(self) -> DescribeClusterResult:
        """Raises Unreachable."""
        return cluster(self.admin, self._kafka.properties)

    def cluster(self) -> str:
        """Id and size. Raises Unreachable."""
        return f"cluster {self.described.cluster_id}, {count(len(self.described.nodes), 'broker')}"

    def control_topic(self, name: str, fold: Fold[Any]) -> str:
        """Its settings, or the right to create it."""
        if ControlLog(self._kafka.properties, name, fold, admin=self.admin).open(create=False):
            # CREATE is asked of the cluster or a prefix, so it isn't among the topic's own operations.
            self.require_on_topics([name], [o for o in acls.USE_CONTROL if o is not AclOperation.CREATE])
            return f"{name} keeps every event"
        self.may_create(NewTopic(name, num_partitions=1, config=dict(CREATED_CONFIG)))
        return f"{name} will be created by the first run"

    def source_group(self) -> str:
        """It must have no members: Calve alone moves its offsets, and no consumer of it ever joins."""
        group = self._group
        found = self.describe_group(group, acls.USE_GROUP)
        if found is None or found.state in _WITHOUT_MEMBERS:
            return f"{group} has no members"
        members = sorted({f"{member.client_id} on {member.host}" for member in found.members})
        raise ConfigError(
            f"group {group} is {found.state.name.lower()}, with members {', '.join(members) or 'unknown'}; "
            "expected none",
            hint="stop those consumers or give them another group.id: Calve alone moves this group's offsets",
            code=Code.GROUP_IN_USE,
        )

    def shared_groups(self) -> str:
        """Sampling and `verify --deep` read with groups that never come to exist; Kafka wants DESCRIBE all the same."""
        self.describe_group(f"{acls.SHARED_GROUPS}check", acls.READ_WITH_GROUP)
        return f"groups beginning with {acls.SHARED_GROUPS} may be described"

    def transactions(self) -> str:
        """Whether transactions work: with a throw-away id, since the real one would fence a running publisher."""
        transactional_id = f"{self._group}.check"
        producer = clients.transactional_producer(self._kafka.properties, transactional_id)
        with reported(f"initialising transactions as {transactional_id}"):
            producer.init_transactions(self._timeout_s)
        return f"ids beginning with {self._group}. may be used"

    def offsets_retention(self) -> str | Note:
        """How long the broker keeps the offsets of a group without members, which the source group is."""
        minutes = self.broker_setting(_RETENTION)
        if minutes is None:
            return Note(f"{_RETENTION} may not be read", "grant DescribeConfigs on the cluster to have it checked")
        days = f"{int(minutes) / (24 * 60):.3g} days"
        if int(minutes) < RETENTION_MINUTES_NEEDED:
            raise ConfigError(
                f"{_RETENTION} is {minutes} ({days}); positions of idle partitions would be forgotten",
                hint=f"set it to 10080 on the brokers, to {RETENTION_MINUTES_NEEDED} at least",
                code=Code.OFFSETS_RETENTION,
            )
        return f"{days} for idle partitions"

    def may_create(self, new: NewTopic) -> None:
        """Raises ConfigError if the topic may not be created, or the cluster would refuse it as it is."""
        doing = f"asking whether topic {new.topic} may be created"
        with reported(doing):
            made = self.admin.create_topics([new], validate_only=True, request_timeout=self._timeout_s)
        answered(made[new.topic], doing, self._timeout_s)

    def describe_group(self, group: str, needed: Iterable[AclOperation]) -> Any:
        """The group with what we may do with it, None if there is none yet. Raises MissingPermission."""
        try:
            found = self._ask_coordinator(group)
        except CalveError as error:
            if said(error, KafkaError.GROUP_ID_NOT_FOUND):
                return None
            raise
        _require(f"group {group}", needed, found.authorized_operations)
        return found

    def require_on_topics(self, names: Sequence[str], operations: Iterable[AclOperation]) -> None:
        """Raises MissingPermission for what the principal may not do with one of them."""
        doing = "asking what may be done with topics"
        with reported(doing):
            asked = self.admin.describe_topics(
                TopicCollection(list(names)), include_authorized_operations=True, request_timeout=self._timeout_s
            )
        allowed = {name: answered(asked[name], doing, self._timeout_s).authorized_operations for name in names}
        for name in names:
            _require(f"topic {name}", operations, allowed[name])

    def broker_setting(self, name: str) -> str | None:
        """None if it may not be read."""
        doing = "describing the cluster"
        brokers = answered(self.admin.describe_cluster(request_timeout=self._timeout_s), doing, self._timeout_s).nodes
        resource = ConfigResource(ResourceType.BROKER, str(brokers[0].id))
        asked = self.admin.describe_configs([resource], request_timeout=self._timeout_s)
        try:
            entry = answered(asked[resource], doing, self._timeout_s).get(name)
        except CalveError as error:
            if said(error, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                return None
            raise
        return entry.value if entry else None

    def _ask_coordinator(self, group: str) -> Any:
        """Brokers that have just started, or never had a group, make one a coordinator once they are asked."""
        deadline = Deadline.after(self._timeout_s)
        while True:
            asked = self.admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self._timeout_s
            )
            try:
                return answered(asked[group], f"describing group {group}", self._timeout_s)
            except CalveError as error:
                if not said(error, *_NO_COORDINATOR_YET) or deadline.passed:
                    raise
            time.sleep(_BETWEEN_S)


def _require(what: str, operations: Iterable[AclOperation], allowed: Iterable[AclOperation] | None) -> None:
    # None where the broker has no authorizer or is too old to tell.
    if allowed is None:
        return
    granted = set(allowed)
    if lacking := [operation.name for operation in operations if operation not in granted]:
        raise MissingPermission(
            f"{what}: not granted: {', '.join(lacking)}", hint="grant the ACLs below to this pipeline's principal"
        )


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
