"""The opened parts of a source: its control plane on the cluster that is written to, and the system that is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from calve.sink_core import findings
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.control.slots.plane import SlotPlane
from calve.sink_core.control.slots.slot import BULK
from calve.sink_core.kafka.compat import NewTopic
from calve.sink_core.kafka.creation import create_missing
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.source.events import SourceCheckpoint
from calve.sink_core.source.offsets_topic import OffsetsTopic
from calve.sink_core.source.opening import OpenedSource
from calve.sink_core.source.state import SOURCE, SourceState, source_checkpoint_of
from calve.sink_core.source.systems import spec_of
from calve.sink_core.tasks import Tasks


class SourcePlane(SlotPlane[SourcePipeline, SourceState]):
    """`source` is the system that is read, opened when it is asked first. `tasks` runs the slots."""

    elsewhere = findings.OTHER_SYSTEM

    def __init__(
        self, pipeline: SourcePipeline, rules: Rules = ALL, *, tasks: Tasks | None = None, made_by: str = ""
    ) -> None:
        """Connect to the cluster. Raises as every control plane does."""
        super().__init__(pipeline, SOURCE, rules, tasks=tasks, made_by=made_by)
        self.offsets = OffsetsTopic(
            pipeline.kafka.properties,
            pipeline.offsets_topic,
            pipeline.connector,
            admin=self.admin,
            group=pipeline.group,
        )

    @cached_property
    def source(self) -> OpenedSource:
        """Raises ConfigError for a class or options that can't be used, and what opening it raises."""
        return OpenedSource(spec_of(self.pipeline))

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

    @property
    def producer_settings(self) -> Mapping[str, object]:
        # Records go where Java's producer would put them: Connect looks for source offsets there, and so do consumers
        # that join topics by key.
        partitioner = {"partitioner": "murmur2_random"}
        return {**BULK, **partitioner, "compression.type": self.pipeline.config.target.compression}

    def checkpoint_of(self, *, delete_below: int) -> SourceCheckpoint:
        return source_checkpoint_of(self.log.state, delete_below=delete_below)
