"""Which topics a pipeline reads, and from where on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import AwareDatetime, Discriminator, Field, Tag, model_validator

from calve.sink_core.config.connections import KafkaChoice
from calve.sink_core.config.fields import PipelineName, Regex, TopicName
from calve.sink_core.config.model import Model, refusal
from calve.sink_core.config.routing import compiled


def _start_kind(given: object) -> str:
    if isinstance(given, StartAtGroup) or (isinstance(given, Mapping) and "group" in cast(Mapping[str, object], given)):
        return "<group>"
    return "<timestamp>" if isinstance(given, Mapping | StartAtTimestamp) else "<word>"


class StartAtTimestamp(Model):
    """Begin at the first record at or after a time."""

    timestamp: AwareDatetime
    """ISO 8601 with a zone, such as `2026-01-31T00:00:00Z`."""


class StartAtGroup(Model):
    """Begin where another consumer group stands."""

    group: str = Field(min_length=1)
    """The consumer group whose committed offsets are taken over once."""


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("<word>")]
    | Annotated[StartAtTimestamp, Tag("<timestamp>")]
    | Annotated[StartAtGroup, Tag("<group>")],
    Discriminator(_start_kind),
]


def covers(topic: str, names: Collection[str], pattern: str | None) -> bool:
    """Whether a topic is one of `names`, or all of its name matches."""
    return topic in names or bool(pattern and compiled(pattern).fullmatch(topic))


class Topics(Model):
    """Topics of a cluster, and where a new pipeline begins in them."""

    kafka: KafkaChoice
    """A name from `connections.yaml`, or a mapping of librdkafka's keys."""

    topics: tuple[TopicName, ...] = ()
    """The topics to read, each once."""

    topics_regex: Regex | None = None
    """Read all topics whose whole name matches, a regular expression of RE2, beside those of `topics`. Looked for again
    before each batch: a new one is read from its beginning; one that is gone keeps its position. Named groups, such as
    `shop\\.(?P<entity>\\w+)`, can stand in names of `tables`. Topics of Kafka and of Calve (`__…`,
    `calve.….control`) never match."""

    start: Start = "earliest"
    """Where a new pipeline begins: `earliest`, `latest`, `{timestamp: …}` or `{group: …}`. Read once, at first use; a
    partition that appears later starts at its beginning."""

    fed_by: tuple[PipelineName, ...] = ()
    """Pipelines that write these topics, by name. Dagster then shows one lineage: each topic follows from the topic of
    its name that such a pipeline writes, and all from its copy. Nothing else rests on it."""

    @model_validator(mode="after")
    def _some_topics(self) -> Self:
        if not self.topics and self.topics_regex is None:
            raise refusal("needs topics, or topics_regex; neither given")
        return self

    def has(self, topic: str) -> bool:
        """Whether a topic is read, if it is there."""
        return covers(topic, self.topics, self.topics_regex)
