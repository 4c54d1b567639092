"""The pipeline file of a source: a system of records or rows, read into topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import KafkaChoice
from calve.sink_core.config.fields import TopicName
from calve.sink_core.config.mirror import MOST_PIECE_S
from calve.sink_core.config.model import Location, Matching, Model, NestedProperty, Property
from calve.sink_core.config.units import MIB, SECOND, Bytes, Duration

ClassPath = Annotated[
    str,
    Matching(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a class; write package.module:Class"),
]


class SourceSystem(Model):
    """What is read."""

    type: ClassPath
    """The class that reads it, `package.module:Class`: one of yours, see docs/sources.md."""

    options: dict[str, NestedProperty] = Field(default={})
    """What the class is made with, by name. `${ENV:NAME}` and `${FILE:PATH}` may stand in texts."""


class SourceTarget(Model):
    """The cluster that is written to."""

    kafka: KafkaChoice
    """A name from `connections.yaml`, or a mapping of librdkafka's keys. Control topic, offsets and group are there."""

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

    transaction: SourceTransaction = SourceTransaction()
    """How much of a task's work becomes visible at a time."""

    exactly_once: Literal["required", "requested"] = "required"
    """`required`: a source that does not give every record exactly once is refused, with its reason. `requested`: it is
    run all the same."""

    dead_letters: DeadLetterTopic | None = None
    """Where rows go of which no record can be made. Default: such a row stops the pipeline."""

    def connections(self) -> Iterator[tuple[Location, object]]:
        yield ("target", "kafka"), self.target.kafka
        yield from super().connections()
