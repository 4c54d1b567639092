"""The questions of a sink to its Kafka, which has the source and the control topic."""

from __future__ import annotations

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking.acls import READ_SOURCE
from calve.sink_core.control.checking.checklist import Check
from calve.sink_core.control.checking.cluster import TIMEOUT_S, ClusterChecks, count
from calve.sink_core.kafka.source import (
    SAMPLE_RECORDS,
    describe_topics,
    end_offsets,
    largest_batch,
    sample_values,
    topics_like,
)
from calve.sink_core.sink.checks.acls import WRITE_LETTERS
from calve.sink_core.tables.log.fold import SINK


class KafkaChecks(ClusterChecks):
    """Adds what is asked of topics."""

    def __init__(self, pipeline: SinkPipeline, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(pipeline.kafka, pipeline.group, timeout_s=timeout_s)
        self._pipeline = pipeline

    def checks(self) -> tuple[Check, ...]:
        name, letters = self._pipeline.control_topic, self._pipeline.dead_letter_topic
        return (
            Check("kafka", self.cluster),
            Check("topics", self.topics, needs=("kafka",)),
            Check("control topic", lambda: self.control_topic(name, SINK), needs=("kafka",)),
            *([Check("dead-letter topic", self.dead_letter_topic, needs=("kafka",))] if letters else ()),
            Check("source group", self.source_group, needs=("kafka",)),
            Check("shared groups", self.shared_groups, needs=("kafka",)),
            Check("transactions", self.transactions, needs=("kafka",)),
            Check("offsets retention", self.offsets_retention, needs=("kafka",)),
        )

    def topics(self) -> str:
        """Their partitions and records, permission to read them, and the tables that their names give.

        Raises ConfigError for two topics that give one table.
        """
        pattern = self._pipeline.config.source.topics_regex
        if pattern is not None:
            found = topics_like(self.admin, pattern, timeout_s=self._timeout_s)
            self._pipeline = self._pipeline.having(found, self._pipeline.known_tables)
        names = self._pipeline.topics
        if not names:
            return f"no topic matches {pattern} yet"
        topics = describe_topics(self.admin, names, timeout_s=self._timeout_s)
        self.require_on_topics(names, READ_SOURCE)
        partitions = [at for topic in topics.values() for at in topic.all_partitions]
        ends = end_offsets(self.admin, partitions, timeout_s=self._timeout_s)
        counts = ", ".join(f"{topic.name} ({count(topic.partitions, 'partition')})" for topic in topics.values())
        given = [table.name for table in self._pipeline.tables if not table.explicit]
        tables = f"; they give {count(len(given), 'table')}: {', '.join(given)}" if given else ""
        return f"{counts}, end offsets sum up to {sum(ends.values()):,}{tables}"

    def dead_letter_topic(self) -> str:
        """It must be there, and take what a producer writes."""
        name = self._pipeline.dead_letter_topic or ""
        described = describe_topics(self.admin, [name], timeout_s=self._timeout_s)[name]
        self.require_on_topics([name], WRITE_LETTERS)
        most = largest_batch(self.admin, name, timeout_s=self._timeout_s)
        return f"{name} ({count(described.partitions, 'partition')}) takes messages of up to {most:,} bytes"

    def sample_values(self) -> dict[str, list[bytes]]:
        """By topic the values of a few records, to infer columns from."""
        settings, topics = self._pipeline.kafka.properties, self._pipeline.topics
        return sample_values(settings, topics, SAMPLE_RECORDS, timeout_s=self._timeout_s)
