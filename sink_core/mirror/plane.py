"""The opened parts of a mirror: its control plane on the target, and beside it the cluster that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from confluent_kafka.admin import AdminClient

from calve.sink_core import findings
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.checkpoint import Kept, Needed
from calve.sink_core.control.maintenance_report import OnProgress
from calve.sink_core.control.plane import ControlPlane
from calve.sink_core.control.slots.events import GenerationEnded, PositionsKept, PositionsSet
from calve.sink_core.control.slots.leading import Leader, Led, Wanted
from calve.sink_core.control.slots.slot import SlotSpec
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.first_contact import PATIENT_S, cluster
from calve.sink_core.mirror.copy import PRODUCER
from calve.sink_core.mirror.state import MIRROR, MirrorState, mirror_checkpoint_of
from calve.sink_core.offsets import Offsets, Position, TopicPartition, offsets_to_dense
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tasks import InProcessTasks, Tasks

HIDDEN_S = 3.0
"""So long a living slot may take to commit an event that it has written; a dead one is fenced then."""

SOURCE_CLUSTER = "source cluster "
"""How the fingerprint of a mirror begins, before the cluster's id."""


class MirrorPlane(ControlPlane[MirrorPipeline, MirrorState]):
    """`admin` asks the target, `source_admin` the source. `tasks` runs the slots."""

    elsewhere = findings.OTHER_SOURCE

    def __init__(
        self, pipeline: MirrorPipeline, rules: Rules = ALL, *, tasks: Tasks | None = None, made_by: str = ""
    ) -> None:
        """Connect to the target. Raises as every control plane does."""
        super().__init__(pipeline, MIRROR, rules, made_by=made_by)
        # Whoever leads can end the transaction that hides the log's end.
        self.log.patience_s = HIDDEN_S
        self.tasks: Tasks = tasks or InProcessTasks()
        self.leader = Leader(
            pipeline.kafka.properties,
            publisher=self.publisher,
            group=self.group,
            log=self.log,
            slot_id=pipeline.slot_id,
            rules=rules,
        )

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

    def slot_spec(self, slot: int, generation: str) -> SlotSpec:
        """What a slot of a generation needs to write to the target."""
        return SlotSpec(
            settings=self.pipeline.kafka.properties,
            transactional_id=self.pipeline.slot_id(slot),
            group=self.pipeline.group,
            token=self.publisher.token,
            control_topic=self.pipeline.control_topic,
            generation=generation,
            producer={**PRODUCER, "compression.type": self.pipeline.config.target.compression},
            rules=self.rules,
        )

    def needed(self, tell: OnProgress) -> Needed:  # noqa: ARG002 - the log alone tells
        kept = [
            Kept(logged.offset, f"generation {logged.event.batch_id} is at work")
            for logged in self.log.state.outstanding()
        ]
        return Needed(kept, lambda below: [mirror_checkpoint_of(self.log.state, delete_below=below)])

    def keep_alive(self) -> int:
        """Commit every position again, in a generation of its own: a slot may move them until it is fenced."""
        led = self.lead_for("keep-alive")
        return self.keep_positions(led) if led is not None else 0

    def keep_positions(self, led: Led[MirrorState]) -> int:
        """Commit every position again, before any slot of the generation is at work; how many there are."""
        kept = PositionsKept(pipeline_id=self.pipeline_id, batch_id=led.generation)
        return len(led.positions) + 1 if self.leader.move(led, [kept], led.positions) else 0

    def give_up(self) -> tuple[str, ...]:
        """A generation that has nothing to do fences those before it."""
        outstanding = tuple(logged.event.batch_id for logged in self.log.refresh().outstanding())
        return outstanding if outstanding and self.lead_for("given up") else ()

    def lead_for(self, why: str) -> Led[MirrorState] | None:
        """A generation that copies nothing, and has ended."""
        led = self.lead_empty()
        if led is not None:
            self.end(led.generation, why)
        return led

    def lead_empty(self) -> Led[MirrorState] | None:
        """A generation that copies nothing: no slot is at work from then on. None if another run is faster."""
        return self.leader.lead(lambda _state: Wanted(self.pipeline_id, 0, {}, {}, {}))

    def end(self, generation: str, why: str) -> None:
        """Say, for people, that a generation has no task left."""
        self.log.append(GenerationEnded(pipeline_id=self.pipeline_id, batch_id=generation, why=why))

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
