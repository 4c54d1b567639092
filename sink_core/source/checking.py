"""What `calve check` asks of a source: its cluster, its class, its system, its topics and its control topic."""

from __future__ import annotations

from functools import cached_property, partial

from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.control.checking.acls import READ_WITH_GROUP, SHARED_GROUPS, USE_TRANSACTIONS, Acl, lines, of_home
from calve.sink_core.control.checking.checklist import Check, Note
from calve.sink_core.control.checking.cluster import TIMEOUT_S, ClusterChecks, count
from calve.sink_core.kafka.compat import AclOperation, NewTopic
from calve.sink_core.kafka.source import describe_topics, existing_topic_ids
from calve.sink_core.source.base import Waiting
from calve.sink_core.source.batches import refuse_unless_exactly_once
from calve.sink_core.source.opening import OpenedSource
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.state import SOURCE
from calve.sink_core.source.systems import spec_of

WRITE_TOPIC = (
    AclOperation.CREATE,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
)
READ_OFFSETS = (AclOperation.READ, AclOperation.DESCRIBE)
USE_OFFSETS = (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


class SourceChecks:
    """The questions, in their order."""

    def __init__(self, pipeline: SourcePipeline, *, timeout_s: float = TIMEOUT_S) -> None:
        self._pipeline, self._timeout_s = pipeline, timeout_s
        self._cluster = ClusterChecks(pipeline.kafka, pipeline.group, timeout_s=timeout_s)

    def checks(self) -> tuple[Check, ...]:
        control_topic = partial(self._cluster.control_topic, self._pipeline.control_topic, SOURCE)
        return (
            Check("kafka", self._cluster.cluster),
            Check("source", self.source),
            Check("exactly once", self.exactly_once, needs=("source",)),
            Check("topics", self.topics, needs=("kafka", "source")),
            Check("source offsets", self.offsets, needs=("kafka",)),
            Check("control topic", control_topic, needs=("kafka",)),
            Check("source group", self._cluster.source_group, needs=("kafka",)),
            Check("shared groups", self._cluster.shared_groups, needs=("kafka",)),
            Check("transactions", self._cluster.transactions, needs=("kafka",)),
            Check("offsets retention", self._cluster.offsets_retention, needs=("kafka",)),
            Check("pipeline", self.state, needs=("source", "control topic", "source group")),
        )

    @cached_property
    def _source(self) -> OpenedSource:
        return OpenedSource(spec_of(self._pipeline))

    def close(self) -> None:
        """Let go of the source, if it was asked."""
        if "_source" in self.__dict__:
            self._source.close()

    def source(self) -> str | Note:
        """Its class is there, takes the options, and its system answers and lets it read."""
        waiting = self._source.waiting({})
        self._source.check()
        return self._seen(waiting, f"{self._source.fingerprint}: {waiting.what} from its beginning")

    def exactly_once(self) -> str | Note:
        support = self._source.exactly_once()
        if support.exactly_once:
            return "every record exactly once"
        note = Note(f"not exactly once: {support.why_not}", "docs/sources.md says what that means")
        if self._pipeline.config.exactly_once == "requested":
            return note
        refuse_unless_exactly_once(self._pipeline, support)
        return note

    def topics(self) -> str:
        """Those that are there may be written, the others created."""
        names = [topic.name for topic in self._source.topics()]
        if letters := self._pipeline.config.dead_letters:
            names.append(letters.topic)
        there = self._written(names)
        return f"{count(len(there), 'topic')} there, {len(set(names)) - len(there)} to be created"

    def offsets(self) -> str:
        """The topic of source offsets may be read and written, or created."""
        topic, origin = self._pipeline.offsets_topic, self._pipeline.config.offsets.migrate_from
        if origin is not None:
            describe_topics(self._cluster.admin, [origin], timeout_s=self._timeout_s)
            self._cluster.require_on_topics([origin], READ_OFFSETS)
        return f"{topic} is there" if self._written([topic], USE_OFFSETS) else f"{topic} will be created"

    def state(self) -> str | Note:
        """What a run would find. Raises what a run would raise."""
        with SourcePlane(self._pipeline) as plane:
            if not plane.read_only():
                return "has not run yet"
            plane.check_bound()
            state = plane.log.state
            if state.paused is not None:
                return Note(f"{state.paused}: runs read nothing", "calve resume FILE ends the pause")
            waiting = plane.source.waiting(state.offsets)
            return self._seen(waiting, f"{state.records:,} records sent; {waiting.what} wait")

    def _seen(self, waiting: Waiting, text: str) -> str | Note:
        """What is said of a source; a note of the first that is blocked. Raises the FindingError of a contradiction."""
        if waiting.contradiction is not None:
            raise waiting.contradiction
        if not waiting.blockers:
            return text
        first, others = waiting.blockers[0], len(waiting.blockers) - 1
        more = f"; {others:,} more in calve status" if others else ""
        return Note(f"{text}; blocked is {first.where}: {first.why}{more}", first.hint)

    def _written(self, names: list[str], operations: tuple[AclOperation, ...] = WRITE_TOPIC) -> dict[str, str]:
        there = existing_topic_ids(self._cluster.admin, names, timeout_s=self._timeout_s)
        asked = [operation for operation in operations if operation is not AclOperation.CREATE]
        if there:
            self._cluster.require_on_topics(list(there), asked)
        for name in names:
            if name not in there:
                self._cluster.may_create(NewTopic(name, -1, self._pipeline.config.target.replication_factor or -1))
        return there


def kafka_acls_lines(pipeline: SourcePipeline) -> list[str]:
    """The lines that grant what a source does. Its topics are known once it is opened."""
    with OpenedSource(spec_of(pipeline)) as source:
        names = [topic.name for topic in source.topics()]
    if letters := pipeline.config.dead_letters:
        names.append(letters.topic)
    connect = pipeline.config.connect
    acls = (
        *(Acl("topic", name, WRITE_TOPIC) for name in names),
        Acl("topic", pipeline.offsets_topic, USE_OFFSETS),
        *([Acl("topic", origin, READ_OFFSETS)] if (origin := pipeline.config.offsets.migrate_from) else ()),
        *([Acl("transactional-id", pipeline.slot_id(0)[:-1], USE_TRANSACTIONS, prefixed=True)] if connect else ()),
        *of_home(pipeline.group, pipeline.control_topic),
        # `verify --deep` reads what was sent.
        Acl("group", SHARED_GROUPS, READ_WITH_GROUP, prefixed=True),
    )
    return lines(pipeline.kafka.properties, acls)
