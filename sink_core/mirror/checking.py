"""What `calve check` asks of both clusters of a mirror, and of its control topic."""

from __future__ import annotations

from functools import partial

from calve.sink_core.codes import Code
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.checking import acls
from calve.sink_core.control.checking.checklist import Check, Note
from calve.sink_core.control.checking.cluster import TIMEOUT_S, ClusterChecks, count
from calve.sink_core.control.checking.kernels import reading_check
from calve.sink_core.errors import ConfigError
from calve.sink_core.kafka.compat import AclOperation, NewTopic
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.source import Topic, describe_topics, end_offsets, existing_topic_ids
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.acls import checkpoint_topics, group_beginnings, remote_operations
from calve.sink_core.mirror.cycle import check_no_cycle
from calve.sink_core.mirror.groups import is_selected, states
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.state import MIRROR
from calve.sink_core.mirror.topic_config import differences, topic_configs, wanted

SHOWN = 5


class MirrorChecks:
    """The questions, in their order."""

    def __init__(self, pipeline: MirrorPipeline, *, timeout_s: float = TIMEOUT_S) -> None:
        self._pipeline, self._timeout_s = pipeline, timeout_s
        self._source = ClusterChecks(pipeline.source, pipeline.group, timeout_s=timeout_s)
        self._target = ClusterChecks(pipeline.kafka, pipeline.group, timeout_s=timeout_s)
        self._topics: dict[str, Topic] = {}

    def checks(self) -> tuple[Check, ...]:
        source, target = (f"kafka {each}" for each in self._names)
        control_topic = partial(self._target.control_topic, self._pipeline.control_topic, MIRROR)
        return (
            Check(source, self._source.cluster),
            Check(target, self._target.cluster),
            Check("two clusters", self.two_clusters, needs=(source, target)),
            Check("topics", self.topics, needs=(source,)),
            Check("reading groups", self.reading_groups, needs=(source,)),
            Check("remote topics", self.remote_topics, needs=("topics", target)),
            Check("cycle", self.cycle, needs=("topics", target)),
            *([Check("groups", self.groups, needs=(source, target))] if self._pipeline.config.groups.include else ()),
            Check("control topic", control_topic, needs=(target,)),
            Check("source group", self._target.source_group, needs=(target,)),
            Check("transactions", self._target.transactions, needs=(target,)),
            Check("offsets retention", self._target.offsets_retention, needs=(target,)),
            reading_check(),
            Check("pipeline", self.state, needs=("two clusters", "topics", "control topic", "source group")),
        )

    def two_clusters(self) -> str:
        """Their ids differ, whatever their addresses are."""
        found = self._source.described.cluster_id, self._target.described.cluster_id
        if found[0] == found[1]:
            source, target = self._names
            raise ConfigError(
                f"{source} and {target} are one cluster, {found[0]}",
                hint="correct source.kafka or target.kafka",
                code=Code.ONE_CLUSTER,
            )
        return f"{found[0]} and {found[1]}"

    def topics(self) -> str:
        """Those to copy, with their partitions and records, and permission to read them."""
        source = self._pipeline.config.source
        topics.check_names(self._pipeline)
        with reported("listing the topics of the source"):
            there = self._source.admin.list_topics(timeout=self._timeout_s).topics
        # One that may not be described is not among those listed; asked for by name, it says so.
        names = self._pipeline.selected([*there, *source.topics])
        self._topics = describe_topics(self._source.admin, names, timeout_s=self._timeout_s)
        self._source.require_on_topics(names, acls.READ_SOURCE)
        if not names:
            return f"no topic matches {source.topics_regex} yet"
        partitions = [at for topic in self._topics.values() for at in topic.all_partitions]
        ends = end_offsets(self._source.admin, partitions, timeout_s=self._timeout_s)
        shown = _listed([f"{topic.name} ({count(topic.partitions, 'partition')})" for topic in self._topics.values()])
        return f"{shown}, end offsets sum up to {sum(ends.values()):,}"

    def reading_groups(self) -> str:
        """Tasks read with the pipeline's group, sampling with one that never comes to exist; Kafka wants DESCRIBE."""
        self._source.describe_group(self._pipeline.group, acls.READ_WITH_GROUP)
        return f"{self._pipeline.group} may be described; {self._source.shared_groups()}"

    def remote_topics(self) -> str | Note:
        """Those that are there may be written and have the configuration; the others may be created as they shall be.

        Raises ConfigError for what the target refuses, as a replication factor above its number of brokers.
        """
        target = self._pipeline.config.target
        brokers = len(self._target.described.nodes)
        if target.replication_factor is not None and target.replication_factor > brokers:
            raise ConfigError(
                f"target.replication_factor is {target.replication_factor}, {self._names[1]} has "
                f"{count(brokers, 'broker')}",
                hint="lower it, or leave it out",
                code=Code.TOO_FEW_BROKERS,
            )
        remotes = {topic: self._pipeline.remote_of(topic) for topic in self._topics}
        there = existing_topic_ids(self._target.admin, remotes.values(), timeout_s=self._timeout_s)
        existing = {topic: remote for topic, remote in remotes.items() if remote in there}
        # CREATE is asked of the cluster or a prefix, so it isn't among the topic's own operations.
        operations = [o for o in remote_operations(self._pipeline) if o is not AclOperation.CREATE]
        self._target.require_on_topics([*existing.values()], operations)
        sources = topic_configs(self._source.admin, remotes)
        for topic, remote in remotes.items():
            if topic not in existing:
                config, number = wanted(sources[topic], target), self._topics[topic].partitions
                self._target.may_create(NewTopic(remote, number, target.replication_factor or -1, config=config))
        found = topic_configs(self._target.admin, existing.values())
        other = {remote: differences(sources[topic], found[remote], target) for topic, remote in existing.items()}
        told = _listed([f"{remote} ({', '.join(sorted(keys))})" for remote, keys in sorted(other.items()) if keys])
        numbers = f"{count(len(existing), 'remote topic')} there, {len(remotes) - len(existing)} to be created"
        if told:
            done = "the next run sets it" if target.sync_config else "set target.sync_config, or set it by hand"
            return Note(f"{numbers}; configured otherwise than the source topic: {told}", done)
        return numbers

    def groups(self) -> str:
        """Those of the source may be read, and put in place on the target, and checkpoints written there."""
        for begins in group_beginnings(self._pipeline):
            # A name that no group has: what may be done with the pattern's groups may be done with it.
            self._source.describe_group(f"{begins}calve-check", acls.READ_WITH_GROUP)
            self._target.describe_group(f"{begins}calve-check", acls.USE_GROUP)
        for topic, needed in checkpoint_topics(self._pipeline).items():
            if existing_topic_ids(self._target.admin, [topic], timeout_s=self._timeout_s):
                self._target.require_on_topics([topic], [o for o in needed if o is not AclOperation.CREATE])
            else:
                self._target.may_create(NewTopic(topic, 1, self._pipeline.config.target.replication_factor or -1))
        selected = [name for name in states(self._source.admin) if is_selected(self._pipeline, name)]
        return f"{count(len(selected), 'group')} of {self._names[0]} may be put in place on {self._names[1]}"

    def cycle(self) -> str:
        """Raises ConfigError as `check_no_cycle`."""
        check_no_cycle(self._pipeline, self._source.admin, str(self._target.described.cluster_id), self._topics)
        return "no mirror on the source copies back what this one copies"

    def state(self) -> str | Note:
        """What a run would find. Raises what a run would raise."""
        with MirrorPlane(self._pipeline) as plane:
            if not plane.read_only():
                return "has not run yet"
            plane.check_bound()
            state, seen = plane.log.state, topics.look(plane)
            if state.last_batch_id is None:
                return "has copied nothing yet"
            found = topics.remote_ids(plane, seen.topics, timeout_s=self._timeout_s)
            topics.stop_on(plane, topics.recreated(state, found))
            if state.paused is not None:
                return Note(f"{state.paused}: runs copy nothing", "calve resume FILE ends the pause")
            return f"{sum(state.records.values()):,} records copied, and nothing stands against the next batch"

    @property
    def _names(self) -> tuple[str, str]:
        config = self._pipeline.config
        return config.source_alias, config.target_alias


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
