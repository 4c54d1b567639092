"""The pipeline file of a mirror: topics of one cluster, copied to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import KafkaChoice
from calve.sink_core.config.fields import Regex
from calve.sink_core.config.maintenance import Maintenance, Trim
from calve.sink_core.config.model import Location, Matching, Model, Property, refuse_at
from calve.sink_core.config.topics import StartAtGroup, StartAtTimestamp, Topics, covers
from calve.sink_core.config.units import DAY, MIB, MINUTE, SECOND, Bytes, Duration

CLUSTER, TOPIC = "{cluster}", "{topic}"
"""The placeholders of `target.names`."""

MOST_PIECE_S = 30.0
"""Half of the time after which the target would abort a transaction by itself."""

Alias = Annotated[str, Matching(r"^[A-Za-z0-9_-]{1,60}$", "a short name of a cluster; use letters, digits, _ and -")]


class StartAtMirror(Model):
    """Begin behind the last record that a mirror the other way wrote."""

    mirror: str = Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """The name of the pipeline that wrote into the topics which are now read."""


def _start_kind(given: object) -> str:
    for key, cls in (("group", StartAtGroup), ("mirror", StartAtMirror)):
        if isinstance(given, cls) or (isinstance(given, Mapping) and key in cast(Mapping[str, object], given)):
            return f"<{key}>"
    return "<timestamp>" if isinstance(given, Mapping | StartAtTimestamp) else "<word>"


MirrorStart = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("<word>")]
    | Annotated[StartAtTimestamp, Tag("<timestamp>")]
    | Annotated[StartAtGroup, Tag("<group>")]
    | Annotated[StartAtMirror, Tag("<mirror>")],
    Discriminator(_start_kind),
]


class MirrorSource(Topics):
    """The cluster and the topics that are copied."""

    cluster: Alias | None = None
    """What the cluster is called in names of remote topics. Default: the name of its connection."""

    exclude: tuple[Regex, ...] = ()
    """Topics whose whole name matches one of these are not copied, even if they are named. Topics of Kafka and of Calve
    (`__…`, `calve.….control`), and those that came from the target never are: a run refuses a file that names one.
    Topics that look like Connect's (`….internal`, `…-internal`, heartbeats, `mm2-…`) are if `topics` names them."""

    # Wider than elsewhere: a mirror may also begin where another one ended.
    start: MirrorStart = "earliest"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Where a new mirror begins: `earliest`, `latest`, `{timestamp: …}`, `{group: …}`, or `{mirror: NAME}`, behind the
    last record that the mirror NAME wrote into these topics. Read once for each partition that is there at first use;
    one that appears later is copied from its beginning."""

    def has(self, topic: str) -> bool:
        return super().has(topic) and not any(covers(topic, (), pattern) for pattern in self.exclude)


class MirrorTarget(Model):
    """The cluster that is written to, and its topics: the remote topics."""

    kafka: KafkaChoice
    """A name from `connections.yaml`, or a mapping of librdkafka's keys. The pipeline's control topic and its group are
    there."""

    cluster: Alias | None = None
    """What the target is called in names of remote topics, by which a topic is known that came from it. Default: the
    name of its connection."""

    names: str = f"{CLUSTER}.{TOPIC}"
    """What a remote topic is called: `{cluster}.{topic}`, with the source's `cluster`, or `{topic}`."""

    replication_factor: int | None = Field(default=None, ge=1)
    """Of remote topics that are created. Default: the target's own."""

    config: dict[str, Property] = Field(default={})
    """Configuration of remote topics that wins over the source topic's."""

    sync_config: bool = True
    """Whether later changes of a source topic's configuration are made to its remote topic."""

    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    """How records are compressed on their way to the target, which stores them so unless its topic says otherwise."""

    @model_validator(mode="after")
    def _names_topics(self) -> Self:
        left = self.names.replace(CLUSTER, "").replace(TOPIC, "", 1)
        if TOPIC not in self.names or not all(c.isalnum() or c in "._-" for c in left):
            text = "can't name a topic; write {cluster}.{topic}, {topic}, or another name with {topic} once"
            refuse_at("MirrorTarget", [(("names",), text, self.names)])
        return self


class Groups(Model):
    """Consumer groups whose positions go to the target as well."""

    include: tuple[Regex, ...] = ()
    """Groups of the source whose whole name matches one of these. Default: none."""

    exclude: tuple[Regex, ...] = ()
    """Groups that are left out of them. Those of Calve's pipelines always are: positions mean something for one cluster
    only."""

    every: Duration = Field(default=1 * MINUTE, gt=0)
    """The least time between two translations while a run goes on; each run makes one at its end."""

    checkpoints: bool = True
    """Whether positions are written to `CLUSTER.checkpoints.internal` on the target too, where MirrorMaker 2's own
    client looks for them."""

    def has(self, group: str) -> bool:
        return any(covers(group, (), p) for p in self.include) and not any(covers(group, (), p) for p in self.exclude)


class Transaction(Model):
    """How much of a slot's work becomes visible at a time."""

    max_bytes: Bytes = Field(default=64 * MIB, gt=0)
    """A transaction ends once it has records of so many bytes. The target must take as much in a minute."""

    max_duration: Duration = Field(default=10 * SECOND, gt=0, le=MOST_PIECE_S)
    """A transaction ends after so long; readers of remote topics see its records then. At most 30 s."""


class MirrorTrim(Trim):
    """Delete events of the control topic that are no longer needed."""

    older_than: Duration = 7 * DAY
    """Events younger than this stay. By them positions of consumer groups are translated, and `calve verify --deep`
    knows what was copied: what was copied earlier is neither translated nor read again."""


class MirrorMaintenance(Maintenance):
    """Maintenance of the control topic and of the positions."""

    # Of a mirror the events serve longer.
    trim: MirrorTrim = MirrorTrim()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Delete events of the control topic that are no longer needed."""


class MirrorConfig(PipelineConfig):
    """A pipeline file of a mirror."""

    # Narrower than in every file: a value that nobody changes may be.
    kind: Literal["mirror"] = "mirror"  # pyright: ignore[reportIncompatibleVariableOverride]
    """`mirror`: Kafka to another Kafka."""

    source: MirrorSource
    """The cluster and the topics that are copied."""

    target: MirrorTarget
    """The cluster that is written to, and its topics: the remote topics."""

    groups: Groups = Groups()
    """Consumer groups whose positions go to the target as well."""

    transaction: Transaction = Transaction()
    """How much of a slot's work becomes visible at a time."""

    on_uncarriable: Literal["stop", "adjust"] = "stop"
    """What happens to a record that librdkafka can't send as it is (timestamp 0, a header whose name is not UTF-8): its
    topic stands still in front of it and all others go on, or the mirror copies it with timestamp 1, or without its
    headers, and counts it."""

    maintenance: MirrorMaintenance = MirrorMaintenance()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Maintenance of the control topic and of the positions."""

    def connections(self) -> Iterator[tuple[Location, object]]:
        yield ("source", "kafka"), self.source.kafka
        yield ("target", "kafka"), self.target.kafka
        yield from super().connections()

    @model_validator(mode="after")
    def _clusters_have_names(self) -> Self:
        sides = (("source", self.source.cluster, self.source.kafka), ("target", self.target.cluster, self.target.kafka))
        wrong = [
            ((side, "cluster"), "a connection written inline has no name; say what the cluster is called", None)
            for side, alias, kafka in sides
            if alias is None and not isinstance(kafka, str)
        ]
        if not wrong and self.source_alias == self.target_alias:
            wrong = [(("target", "cluster"), f"source and target are both called {self.source_alias}", None)]
        refuse_at("MirrorConfig", wrong)
        return self

    @property
    def source_alias(self) -> str:
        return self.source.cluster or str(self.source.kafka)

    @property
    def target_alias(self) -> str:
        return self.target.cluster or str(self.target.kafka)
