"""The configuration of remote topics: what they take over from the source, and what a mirror needs of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from calve.sink_core.config.mirror import MirrorTarget
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import CalveError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from calve.sink_core.kafka.creation import config_text, refused
from calve.sink_core.kafka.failures import answered, reported

LARGEST_BATCH = "max.message.bytes"

_ANY_TIME = str(2**63 - 1)
REQUIRED: Mapping[str, str] = {
    # A record keeps the time that it has at the source, however far it is from now.
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _ANY_TIME,
    "message.timestamp.after.max.ms": _ANY_TIME,
}
LEFT_OUT = frozenset(
    {
        # Of the source's brokers and their number, as in MirrorMaker 2.
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        *REQUIRED,
    }
)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configuration: `own` is what is set for the topic itself, `all` what holds for it."""

    own: Mapping[str, str]
    all: Mapping[str, str]

    @property
    def largest_batch(self) -> int:
        return int(self.all[LARGEST_BATCH])


def topic_configs(admin: AdminClient, topics: Iterable[str]) -> dict[str, TopicConfig]:
    """By topic. Raises ConfigError for one that does not exist, or may not be asked for its configuration."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
    if not resources:
        return {}
    with reported("reading topic configurations"):
        futures = admin.describe_configs(resources, request_timeout=ADMIN_TIMEOUT_S)
    found: dict[str, TopicConfig] = {}
    for resource, future in futures.items():
        entries = answered(future, f"reading the configuration of topic {resource.name}", ADMIN_TIMEOUT_S)
        own = {name: e.value for name, e in entries.items() if _is_own(e)}
        found[resource.name] = TopicConfig(own, {name: e.value for name, e in entries.items() if e.value is not None})
    return found


def wanted(source: TopicConfig, target: MirrorTarget) -> dict[str, str]:
    """What a remote topic is to have set: the source topic's own, what a mirror needs, and what the file says."""
    taken = {key: value for key, value in source.own.items() if key not in LEFT_OUT}
    stated = {key: config_text(value) for key, value in resolve(target.config).items()}
    return {**taken, **REQUIRED, LARGEST_BATCH: str(source.largest_batch), **stated}


def differences(source: TopicConfig, remote: TopicConfig, target: MirrorTarget) -> dict[str, str]:
    """What has to be set on a remote topic; what only it has stays, and a larger `max.message.bytes` too."""
    lacking = {key: value for key, value in wanted(source, target).items() if remote.all.get(key) != value}
    if LARGEST_BATCH not in target.config and remote.largest_batch >= source.largest_batch:
        lacking.pop(LARGEST_BATCH, None)
    return lacking


def alter(admin: AdminClient, changes: Mapping[str, Mapping[str, str]]) -> dict[str, CalveError]:
    """Set values of topics, each topic's together; the errors, by topic, of those whose values the brokers refuse."""
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
            ],
        )
        for topic, values in changes.items()
    ]
    if not resources:
        return {}
    with reported("changing topic configurations"):
        futures = admin.incremental_alter_configs(resources, request_timeout=ADMIN_TIMEOUT_S)
    return refused({each.name: future for each, future in futures.items()}, "changing the configuration of topic")


def _is_own(entry: Any) -> bool:
    return entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and not entry.is_sensitive
