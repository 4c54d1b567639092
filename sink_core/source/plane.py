"""The opened parts of a source: its control plane on the cluster that is written to, and the system that is read."""

from __future__ import annotations

from functools import cached_property

from calve.sink_core import findings
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.control.checkpoint import Kept, Needed
from calve.sink_core.control.maintenance_report import OnProgress
from calve.sink_core.control.plane import ControlPlane
from calve.sink_core.control.slots.events import GenerationEnded, PositionsKept
from calve.sink_core.control.slots.leading import Leader, Led, Wanted
from calve.sink_core.control.slots.slot import SlotSpec
from calve.sink_core.kafka.compat import NewTopic
from calve.sink_core.kafka.creation import create_missing
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.source.offsets_topic import OffsetsTopic
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.send import PRODUCER
from calve.sink_core.source.state import SOURCE, SourceState, source_checkpoint_of
from calve.sink_core.tasks import InProcessTasks, Tasks

HIDDEN_S = 3.0
"""So long a living slot may take to commit an event that it has written; a dead one is fenced then."""


class SourcePlane(ControlPlane[SourcePipeline, SourceState]):
    """`source` is the system that is read, opened when it is asked first. `tasks` runs the slots."""

    elsewhere = findings.OTHER_SYSTEM

    def __init__(
        self, pipeline: SourcePipeline, rules: Rules = ALL, *, tasks: Tasks | None = None, made_by: str = ""
    ) -> None:
        """Connect to the cluster. Raises as every control plane does."""
        super().__init__(pipeline, SOURCE, rules, made_by=made_by)
        # Whoever leads can end the transaction that hides the log's end.
        self.log.patience_s = HIDDEN_S
        self.tasks: Tasks = tasks or InProcessTasks()
        settings = pipeline.kafka.properties
        self.leader = Leader(
            settings,
            publisher=self.publisher,
            group=self.group,
            log=self.log,
            slot_id=pipeline.slot_id,
            rules=rules,
        )
        self.offsets = OffsetsTopic(
            settings, pipeline.offsets_topic, pipeline.connector, admin=self.admin, group=pipeline.group
        )

    @property
    def spec(self) -> SourceSpec:
        system = self.pipeline.config.source
        return SourceSpec(system.type, system.options)

    @property
    def reserved(self) -> tuple[str, ...]:
        """Topics that no record of the source may go to."""
        return (self.pipeline.offsets_topic, self.pipeline.control_topic)

    @cached_property
    def source(self) -> OpenedSource:
        """Raises ConfigError for a class or options that can't be used, and what opening it raises."""
        return OpenedSource(self.spec, reserved=self.reserved)

    @property
    def fingerprint(self) -> str:
        return self.source.fingerprint

    def source_partitions(self) -> list[TopicPartition]:
        """None: source offsets are in the offsets topic."""
        return []

    def close(self) -> None:
        if "source" in self.__dict__:
            self.source.close()
        super().close()

    def ensure_offsets_topic(self) -> None:
        factor = self.pipeline.config.target.replication_factor or -1
        create_missing(self.admin, [NewTopic(self.offsets.topic, 1, factor, config={"cleanup.policy": "compact"})])

    def slot_spec(self, slot: int, generation: str) -> SlotSpec:
        """What a slot of a generation needs to write."""
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
        return Needed(kept, lambda below: [source_checkpoint_of(self.log.state, delete_below=below)])

    def keep_alive(self) -> int:
        """Commit the token again, in a generation of its own."""
        led = self.lead_for("keep-alive")
        if led is None:
            return 0
        kept = PositionsKept(pipeline_id=self.pipeline_id, batch_id=led.generation)
        return int(self.leader.move(led, [kept], {}))

    def give_up(self) -> tuple[str, ...]:
        """A generation that has nothing to do fences those before it."""
        outstanding = tuple(logged.event.batch_id for logged in self.log.refresh().outstanding())
        return outstanding if outstanding and self.lead_for("given up") else ()

    def lead_for(self, why: str) -> Led[SourceState] | None:
        """A generation that sends nothing, and has ended. None if another run is faster."""
        led = self.leader.lead(lambda _state: Wanted(self.pipeline_id, 0, {}, {}, {}))
        if led is not None:
            self.end(led.generation, why)
        return led

    def end(self, generation: str, why: str) -> None:
        """Say, for people, that a generation has no task left."""
        self.log.append(GenerationEnded(pipeline_id=self.pipeline_id, batch_id=generation, why=why))
