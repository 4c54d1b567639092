"""Where a new pipeline begins to read, by `source.start` of its file."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.config.topics import Start, StartAtTimestamp
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.errors import ConfigError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S, Settings
from calve.sink_core.kafka.source import offsets_at
from calve.sink_core.offsets import Offsets, TopicPartition


def start_offsets(
    start: Start, *, log_starts: Offsets, ends: Offsets, admin: AdminClient, settings: Settings
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition of `ends`, which are LSOs of the cluster of `admin` and `settings`.

    Raises ConfigError for a group that has no offsets there.
    """
    if start == "earliest":
        return dict(log_starts)
    if start == "latest":
        return dict(ends)
    if isinstance(start, StartAtTimestamp):
        timestamp_ms = int(start.timestamp.timestamp() * 1000)
        return offsets_at(admin, list(ends), timestamp_ms, timeout_s=ADMIN_TIMEOUT_S)
    return _from_group(start.group, log_starts, ends, settings)


def _from_group(group: str, log_starts: Offsets, ends: Offsets, settings: Settings) -> dict[TopicPartition, int]:
    with closing(SourceGroup(settings, group)) as other:
        found = other.positions(ends)
    if not found:
        raise ConfigError(
            f"source.start: group {group} has no offsets for {_topics(ends)}",
            hint="name a group that has committed offsets on this cluster, or use earliest or latest",
            code=Code.START_GROUP,
        )
    return {at: found[at].offset if at in found else log_starts[at] for at in ends}


def _topics(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(dict.fromkeys(at.topic for at in partitions))
