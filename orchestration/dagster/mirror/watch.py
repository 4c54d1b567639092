"""What the sensor of a mirror looks at: the source on one cluster, the control log on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient

from calve.orchestration.dagster.common.watch import LogWatch
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.config.topics import Topics
from calve.sink_core.control import checks
from calve.sink_core.finding import Finding
from calve.sink_core.kafka.failures import reported
from calve.sink_core.mirror.state import MIRROR, MirrorState
from calve.sink_core.offsets import Offsets, TopicPartition


class MirrorWatch(LogWatch[MirrorPipeline, MirrorState]):
    """Positions are kept by remote topic."""

    def __init__(self, pipeline: MirrorPipeline) -> None:
        super().__init__(pipeline, MIRROR, pipeline.source)

    def selected(self, admin: AdminClient, timeout_s: float) -> Sequence[str]:
        source = self._pipeline.config.source
        if source.topics_regex is None:
            return self._pipeline.selected(source.topics)
        with reported("listing topics"):
            there = admin.list_topics(timeout=timeout_s).topics
        return self._pipeline.selected([*there, *source.topics])

    def positions(self, state: MirrorState) -> Offsets:
        sources = {at: self._pipeline.source_of(at.topic) for at in state.partitions}
        return {TopicPartition(topic, at.partition): state.partitions[at] for at, topic in sources.items() if topic}

    def recreated(self, state: MirrorState, topic_ids: Mapping[str, str]) -> Finding | None:
        return checks.topic_changed(state.upstream_ids, topic_ids, state.rules)

    def observed(self) -> Topics:
        return self._pipeline.config.source
