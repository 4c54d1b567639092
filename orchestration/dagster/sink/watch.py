"""What the sensor of a sink looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient

from calve.orchestration.dagster.common.arrivals import Lacks
from calve.orchestration.dagster.common.watch import LogWatch
from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.config.topics import Topics
from calve.sink_core.control import checks
from calve.sink_core.finding import Finding
from calve.sink_core.kafka.source import topics_like
from calve.sink_core.offsets import Offsets
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState


class SinkWatch(LogWatch[SinkPipeline, CommitState]):
    """Source and control log are on one cluster."""

    def __init__(self, pipeline: SinkPipeline) -> None:
        super().__init__(pipeline, SINK, pipeline.kafka)

    def selected(self, admin: AdminClient, timeout_s: float) -> Sequence[str]:
        source = self._pipeline.config.source
        like = source.topics_regex and topics_like(admin, source.topics_regex, timeout_s=timeout_s)
        return [*source.topics, *(like or ())]

    def positions(self, state: CommitState) -> Offsets:
        return state.positions() or {}

    def recreated(self, state: CommitState, topic_ids: Mapping[str, str]) -> Finding | None:
        return checks.topic_recreated(topic_ids, state)

    def behind(self, state: CommitState) -> int:
        lacking = state.tables_with_news() if self._pipeline.config.commit.every == "batch" else ()
        return len({*lacking, *(t.name for t in self._pipeline.tables if _to_be_made_up(t, state))})

    def lacking(self, state: CommitState) -> Mapping[str, Lacks]:
        """A table whose history is still to be read lacks any of it."""

        def first(table: TableSettings) -> int | None:
            return 0 if _to_be_made_up(table, state) else state.lacks_from(table.name)

        return {table.name: Lacks(first(table), table.rule.topics) for table in self._pipeline.tables}

    def observed(self) -> Topics:
        return self._pipeline.config.source


def _to_be_made_up(table: TableSettings, state: CommitState) -> bool:
    """Whether batches went without a table that gets them by range jobs."""
    return table.explicit and table.history == "replay" and state.unfed_batches(table.name) > 0
