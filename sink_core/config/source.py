"""The pipeline file of a source: a system of records or rows, read into topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import KafkaChoice, Name
from calve.sink_core.config.fields import TOPIC_NAME, TopicName
from calve.sink_core.config.mirror import MOST_PIECE_S
from calve.sink_core.config.model import Location, Model, Property, Text, refuse_at
from calve.sink_core.config.source_systems import (
    SCHEMA,
    TABLE,
    AnyTableName,
    ClassSource,
    DatabaseSource,
    SourceSystem,
    TopicNames,
)
from calve.sink_core.config.units import MIB, SECOND, Bytes, Duration


class Value(Model):
    """What the records of rows look like."""

    type: Literal["json", "avro"] = "json"
    """`json`, or `avro` with a schema registry, for keys and values."""

    shape: Literal["debezium", "row"] = "debezium"
    """`debezium`: a change event as Debezium makes it, with `before`, `after`, `op` and `source`, and a tombstone
    behind each delete. `row`: the row alone, and a tombstone for a delete. Only a database's log has changes: all else
    is `row`."""

    registry: Name | None = None
    """A schema registry, by its name in `connections.yaml`. Required for `avro`."""


class SourceTarget(Model):
    """The cluster that is written to."""

    kafka: KafkaChoice
    """A name from `connections.yaml`, or a mapping of librdkafka's keys. Control topic, offsets and group are there."""

    topics: Text | None = None
    """What the topic of a database's table is called, with `{schema}` and `{table}` in it. Default:
    `PIPELINE.{schema}.{table}`."""

    topic_by_table: dict[AnyTableName, TopicName] = Field(default={})
    """Topics of single tables, by `schema.table`, in place of what `topics` makes: of those whose names no topic can
    have."""

    value: Value | None = None
    """What the records of a database's rows look like. Default: `{type: json}`."""

    partitions: int | None = Field(default=None, ge=1)
    """Of topics that are created. Default: what the source asks for, else the cluster's own."""

    replication_factor: int | None = Field(default=None, ge=1)
    """Of topics that are created. Default: the cluster's own."""

    config: dict[str, Property] = Field(default={})
    """Configuration of topics that are created; it wins over what the source asks for."""

    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    """How records are compressed on their way to the cluster, which stores them so unless its topic says otherwise."""


class Offsets(Model):
    """Where source offsets are stored, in the form of Kafka Connect."""

    topic: TopicName | None = None
    """A compacted topic, which may be shared with others. Default: one of the pipeline's own, its control topic's name
    with `.offsets` in place of `.control`."""

    migrate_from: TopicName | None = None
    """A topic on the same cluster whose source offsets are copied, once, before the first generation reads: of this
    pipeline, or of the connector in `connect`. Nothing is copied where `topic` has offsets of its own already."""


class Connect(Model):
    """A connector of Kafka Connect that this pipeline and a Connect worker can each go on for."""

    group: Text
    """The workers' `group.id`."""

    connector: Text
    """What the connector is called: in the keys of source offsets, and in the transactional ids of its tasks."""

    tasks: int = Field(default=1, ge=1)
    """The most tasks that it has or had. A generation fences so many, and has at most so many slots: Connect then
    fences them all."""


class SourceTransaction(Model):
    """How much of a task's work becomes visible at a time."""

    boundary: Literal["poll", "interval"] = "poll"
    """`poll`: what the source gives at a time is a transaction. `interval`: a transaction gathers until `interval` has
    passed. Either ends one at `max_bytes`."""

    interval: Duration = Field(default=10 * SECOND, gt=0, le=MOST_PIECE_S)
    """How long a transaction gathers with `boundary: interval`. At most 30 s."""

    max_bytes: Bytes = Field(default=64 * MIB, gt=0)
    """A transaction ends once it has records of so many bytes. The cluster must take as much in a minute."""


class DeadLetterTopic(Model):
    """Where rows go of which no record can be made."""

    topic: TopicName
    """A topic, made if it is missing."""


class SourceConfig(PipelineConfig):
    """A pipeline file of a source."""

    # Narrower than in every file: a value that nobody changes may be.
    kind: Literal["source"] = "source"  # pyright: ignore[reportIncompatibleVariableOverride]
    """`source`: a system of records or rows to Kafka."""

    source: SourceSystem
    """What is read."""

    target: SourceTarget
    """The cluster that is written to."""

    offsets: Offsets = Offsets()
    """Where source offsets are stored, in the form of Kafka Connect."""

    connect: Connect | None = None
    """A connector of Kafka Connect that this pipeline and a Connect worker can each go on for; `offsets.topic` is then
    the workers' `offset.storage.topic`, or the connector's own `offsets.storage.topic`. Default: none."""

    transaction: SourceTransaction = SourceTransaction()
    """How much of a task's work becomes visible at a time."""

    exactly_once: Literal["required", "requested"] = "required"
    """`required`: a source that does not give every record exactly once is refused, with its reason. `requested`: it is
    run all the same."""

    dead_letters: DeadLetterTopic | None = None
    """Where rows go of which no record can be made. Default: such a row stops the pipeline."""

    @property
    def topic_names(self) -> TopicNames:
        """What the topic of a database's table is called."""
        pattern = self.target.topics or f"{self.first_name}.{SCHEMA}.{TABLE}"
        return TopicNames(pattern, self.target.topic_by_table)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        target, problems = self.target, list[tuple[Location, str, object]]()
        if not isinstance(self.source, DatabaseSource):
            text = "is for databases: the topics and records of this source are its own"
            if target.topics is not None:
                problems.append((("target", "topics"), text, target.topics))
            if target.topic_by_table:
                problems.append((("target", "topic_by_table"), text, "topic_by_table"))
            if target.value is not None and isinstance(self.source, ClassSource):
                problems.append((("target", "value"), text, "value"))
        elif TABLE not in self.topic_names.pattern:
            text = "would put rows of all tables into one topic; write {schema} and {table} where their names belong"
            problems.append((("target", "topics"), text, target.topics))
        else:
            problems += self._wrong_topics(self.source)
        if target.value is not None:
            if (target.value.type == "avro") != (target.value.registry is not None):
                text = "type: avro needs a registry" if target.value.registry is None else "type: json takes none"
                problems.append((("target", "value", "registry"), text, target.value.type))
            by_log = isinstance(self.source, DatabaseSource) and self.source.log is not None
            if target.value.type == "avro" and not by_log:
                problems.append((("target", "value", "type"), "is json, but for a database's log", "avro"))
        if self.connect is not None and self.offsets.topic is None:
            text = "connect needs it: the workers' offset.storage.topic, or the connector's own offsets.storage.topic"
            problems.append((("offsets", "topic"), text, None))
        if self.offsets.migrate_from is not None and self.offsets.migrate_from == self.offsets.topic:
            problems.append((("offsets", "migrate_from"), "is offsets.topic itself", self.offsets.migrate_from))
        refuse_at("SourceConfig", problems)
        return self

    def _wrong_topics(self, source: DatabaseSource) -> Iterator[tuple[Location, str, object]]:
        """Tables by query that no topic can be called after, or that would share one."""
        tables = dict[str, str]()
        for number, each in enumerate(source.tables):
            at = ("source", "tables", number, "table")
            topic = self.topic_names.of(*each.table.split(".", 1))
            if not re.match(TOPIC_NAME, topic) or topic in (".", ".."):
                yield at, f"no topic can be called {topic!r}: set target.topic_by_table for it", each.table
            elif (other := tables.setdefault(topic, each.table)) != each.table:
                text = f"{topic} is the topic of {other}: set target.topic_by_table for one of them"
                yield at, text, each.table

    def connections(self) -> Iterator[tuple[Location, object]]:
        yield ("target", "kafka"), self.target.kafka
        if isinstance(self.source, DatabaseSource):
            yield ("source", "database"), self.source.database
        if self.target.value is not None:
            yield ("target", "value", "registry"), self.target.value.registry
        yield from super().connections()
