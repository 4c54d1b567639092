"""A mirror with both clusters that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calve.sink_core.config.assemble import kafka_settings, spark_settings
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.effective import KafkaSettings, SlotPipeline
from calve.sink_core.config.mirror import CLUSTER, TOPIC, MirrorConfig
from calve.sink_core.config.references import redact
from calve.sink_core.config.routing import is_internal

_LOOKS_INTERNAL = re.compile(r".*[.-]internal|(.*\.)?heartbeats|mm2-.*")


@dataclass(frozen=True)
class MirrorPipeline(SlotPipeline):
    """A pipeline of kind `mirror`; `kafka` is the target, which has its control topic and its group, and `source` the
    cluster that is read.

    Positions are kept by remote topic, as the target takes none for a topic that it hasn't: for each of its partitions
    the group holds the next offset of the source topic's partition of that number.
    """

    config: MirrorConfig
    source: KafkaSettings

    @classmethod
    def of(cls, config: MirrorConfig, connections: Connections, path: Path) -> MirrorPipeline:
        """With the connections that the file names, all of which are there."""
        return cls(
            config=config,
            deployment=connections.deployment,
            kafka=kafka_settings(config.target.kafka, connections),
            source=kafka_settings(config.source.kafka, connections),
            spark=spark_settings(config.spark, connections),
            path=path,
        )

    def remote_of(self, topic: str) -> str:
        """What the remote topic of a source topic is called."""
        return self.config.target.names.replace(CLUSTER, self.config.source_alias).replace(TOPIC, topic)

    def source_of(self, remote: str) -> str | None:
        """The source topic of a remote topic, None if by its name it is none."""
        before, _, after = self.config.target.names.replace(CLUSTER, self.config.source_alias).partition(TOPIC)
        fits = remote.startswith(before) and remote.endswith(after) and len(remote) > len(before) + len(after)
        return remote[len(before) : len(remote) - len(after)] if fits else None

    def came_from_target(self, topic: str) -> bool:
        """Whether a source topic is, over whatever clusters, one of the target's."""
        return self.config.target_alias in topic.split(".")[:-1]

    def selected(self, topics: Iterable[str]) -> list[str]:
        """The topics to copy of those that the source has, sorted."""
        return sorted(topic for topic in set(topics) if self.config.source.has(topic) and not self.refused(topic))

    def refused(self, topic: str) -> str:
        """Why a topic is never copied; empty if it may be. One that looks internal may, if the file names it."""
        if is_internal(topic):
            return "a topic of Kafka's or Calve's own"
        if self.came_from_target(topic):
            return f"by its name it came from {self.config.target_alias}"
        if topic not in self.config.source.topics and _LOOKS_INTERNAL.fullmatch(topic):
            return "by its name a topic of Connect's or MirrorMaker's own: source.topics may name it"
        if self.remote_of(topic) in self.looked_into:
            return f"MirrorMaker 2's client looks into {self.remote_of(topic)}"
        return ""

    def left_out(self, topics: Iterable[str]) -> dict[str, str]:
        """Of the topics that the source has, those that its pattern matches and that are not copied, with why. Topics
        of Kafka itself, which nobody misses, are not among them.
        """
        had = sorted(topic for topic in topics if self.config.source.has(topic) and not topic.startswith("__"))
        return {topic: why for topic in had if (why := self.refused(topic))}

    @property
    def looked_into(self) -> tuple[str, str]:
        """The target's topics that MirrorMaker 2's client looks into: that of checkpoints, and that of heartbeats."""
        alias = self.config.source_alias
        return f"{alias}.checkpoints.internal", f"{alias}.heartbeats"

    def _connections(self) -> dict[str, Any]:
        shown = super()._connections()
        return {**shown, "kafka": {self.source.name: redact(self.source.properties), **shown["kafka"]}}
