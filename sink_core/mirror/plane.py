"""The opened parts of a mirror: its control plane on the target, and beside it the cluster that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from confluent_kafka.admin import AdminClient

from calve.sink_core import findings
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.slots.events import PositionsSet
from calve.sink_core.control.slots.leading import Led
from calve.sink_core.control.slots.plane import SlotPlane
from calve.sink_core.control.slots.slot import BULK
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.first_contact import PATIENT_S, cluster
from calve.sink_core.mirror.events import MirrorCheckpoint
from calve.sink_core.mirror.state import MIRROR, MirrorState, mirror_checkpoint_of
from calve.sink_core.offsets import Offsets, Position, TopicPartition, offsets_to_dense
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tasks import Tasks

SOURCE_CLUSTER = "source cluster "
"""How the fingerprint of a mirror begins, before the cluster's id."""


class MirrorPlane(SlotPlane[MirrorPipeline, MirrorState]):
    """`admin` asks the target, `source_admin` the source. `tasks` runs the slots."""

    elsewhere = findings.OTHER_SOURCE

    def __init__(
        self, pipeline: MirrorPipeline, rules: Rules = ALL, *, tasks: Tasks | None = None, made_by: str = ""
    ) -> None:
        """Connect to the target. Raises as every control plane does."""
        super().__init__(pipeline, MIRROR, rules, tasks=tasks, made_by=made_by)

    @cached_property
    def source_admin(self) -> AdminClient:
        return clients.admin(self.pipeline.source.properties)

    @cached_property
    def source_cluster_id(self) -> str:
        """Raises Unreachable, naming the addresses of the source."""
        silent_s = PATIENT_S if self.made_by else 0.0
        return str(cluster(self.source_admin, self.pipeline.source.properties, silent_s=silent_s).cluster_id)

    @property
    def fingerprint(self) -> str:
        return SOURCE_CLUSTER + self.source_cluster_id

    def source_partitions(self) -> list[TopicPartition]:
        """Those of remote topics that are there, by which positions are kept."""
        with reported("listing topics"):
            source = self.source_admin.list_topics(timeout=clients.ADMIN_TIMEOUT_S).topics
            there = self.admin.list_topics(timeout=clients.ADMIN_TIMEOUT_S).topics
        remotes = (self.pipeline.remote_of(topic) for topic in self.pipeline.selected(source))
        return [TopicPartition(r, partition) for r in remotes if r in there for partition in there[r].partitions]

    @property
    def producer_settings(self) -> Mapping[str, object]:
        return {**BULK, "compression.type": self.pipeline.config.target.compression}

    def checkpoint_of(self, *, delete_below: int) -> MirrorCheckpoint:
        return mirror_checkpoint_of(self.log.state, delete_below=delete_below)

    def set_positions(
        self,
        led: Led[MirrorState],
        offsets: Offsets,
        *,
        by: str,
        reason: str,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        upstream_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Move positions in one transaction with an event that says so; False if another generation leads by now.

        Ids are of topics that were made anew, which the mirror goes on with.
        """
        event = PositionsSet(
            pipeline_id=self.pipeline_id,
            batch_id=led.generation,
            by=by,
            reason=reason,
            positions=offsets_to_dense(offsets),
            topic_ids=dict(topic_ids),
            upstream_ids=dict(upstream_ids),
        )
        positions = {at: Position(offset, led.generation) for at, offset in offsets.items()}
        return self.leader.move(led, [event], positions)
