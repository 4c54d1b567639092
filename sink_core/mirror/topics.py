"""Both clusters as they are: source topics and what is in them, remote topics, made and grown as they are needed.

Crash points, and what the next run finds:

    topics.after-create  an empty remote topic, which it takes as it is
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

from calve.sink_core.codes import Code
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control import checks
from calve.sink_core.control.blockers import open_transactions, silent_ones
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.failpoints import reach
from calve.sink_core.finding import Finding
from calve.sink_core.findings import REMOTE_TOPIC_RECREATED
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import NewPartitions, NewTopic
from calve.sink_core.kafka.creation import add_partitions, create_each
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.source import Silent, Topic, describe_topics, end_offsets, existing_topic_ids, log_starts
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.refused import Refusal
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.mirror.topic_config import alter, differences, topic_configs, wanted
from calve.sink_core.offsets import Offsets, TopicPartition
from calve.sink_core.timing import Deadline

_KNOWN_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """The source at one moment: its topics by name, and of all their partitions log start and LSO.

    `remote` is by partition that of its remote topic. `ends` are where to read up to, which may be before `real_ends`.
    What is `silent` is in none of them but `remote`.
    """

    topics: Mapping[str, Topic]
    remote: Mapping[TopicPartition, TopicPartition]
    starts: Offsets
    real_ends: Offsets
    ends: Offsets
    silent: Silent = field(default_factory=Silent)

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: topic.topic_id for name, topic in self.topics.items()}

    def up_to(self, until: Offsets) -> Seen:
        """The same with nothing to read beyond `until`, or of a partition that has no offset there."""
        return replace(self, ends={at: min(end, until.get(at, 0)) for at, end in self.real_ends.items()})

    def without(self, topics: Collection[str]) -> Seen:
        """The same without some topics."""
        if not topics:
            return self
        return Seen(
            {name: topic for name, topic in self.topics.items() if name not in topics},
            {at: remote for at, remote in self.remote.items() if at.topic not in topics},
            *({at: n for at, n in each.items() if at.topic not in topics} for each in self._offsets),
            silent=self.silent,
        )

    @property
    def _offsets(self) -> tuple[Offsets, Offsets, Offsets]:
        return self.starts, self.real_ends, self.ends


def selected(plane: MirrorPlane, silent: Silent | None = None) -> list[str]:
    """The source topics to copy, as they are now.

    Raises ConfigError for one that is named and is never copied; and, unless `silent` takes it, for one that is named
    and isn't there, or was copied and may no longer be described.
    """
    check_names(plane.pipeline)
    with reported("listing the topics of the source"):
        there = plane.source_admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    lacking = [topic for topic in plane.pipeline.config.source.topics if topic not in there]
    errors = {
        topic: ConfigError(
            f"{plane.pipeline.path}: source.topics: {topic}: not on {plane.pipeline.config.source_alias}",
            hint="correct the name, or leave it out; what was copied of it stays",
            code=Code.NO_SUCH_TOPIC,
        )
        for topic in lacking
    }
    for error in errors.values() if silent is None or not plane.pipeline.selected(there) else ():
        raise error
    if silent is not None:
        silent.topics |= errors
    # One that may no longer be described isn't among them; asked for by name, the brokers say so.
    gone = plane.pipeline.selected(topic for topic in plane.log.state.upstream_ids if topic not in there)
    existing_topic_ids(plane.source_admin, gone, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
    return plane.pipeline.selected(there)


def check_names(pipeline: MirrorPipeline) -> None:
    """Raise ConfigError for topics that the file names and that are never copied."""
    source = pipeline.config.source
    refused = {topic: why for topic in source.topics if source.has(topic) and (why := pipeline.refused(topic))}
    if refused:
        told = "; ".join(f"{topic}: {why}" for topic, why in refused.items())
        raise ConfigError(
            f"{pipeline.path}: source.topics: {told}",
            hint="leave it out; if it came from nowhere, call target.cluster what no part of its name is",
            code=Code.NEVER_COPIED,
        )


def left_out(plane: MirrorPlane) -> dict[str, str]:
    """By topic of the source that `topics_regex` matches, why it is not copied. Those of Kafka itself are not told."""
    if plane.pipeline.config.source.topics_regex is None:
        return {}
    with reported("listing the topics of the source"):
        there = plane.source_admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    return plane.pipeline.left_out(there)


def blockers(plane: MirrorPlane, seen: Seen) -> tuple[Blocker, ...]:
    """What keeps records of the source back: what gives no answer, topics that the target refuses, and open
    transactions.
    """
    since_ms, standing = dict[str, int](), list[Blocker]()
    for remote, event in plane.log.state.refusals.items():
        topic = plane.pipeline.source_of(remote) or ""
        at = TopicPartition(topic, event.partition)
        name = topic if event.partition < 0 else str(at)
        if event.offset < 0 and name in seen.silent.by_name:
            since_ms[name] = event.written_at_ms
        elif topic in seen.topics:
            standing.append(
                Blocker(topic, f"stands still: {event.why} [{event.code}]", event.hint, event.written_at_ms)
            )
    opened = open_transactions(plane.source_admin, plane.pipeline.source.properties, seen.real_ends)
    return *silent_ones(seen.silent, since_ms), *standing, *opened


def look(plane: MirrorPlane, silent: Silent | None = None) -> Seen:
    """The source as it is; raises FindingError for a source topic that was made anew since it was read last. `silent`
    as in `described`.
    """
    seen = described(plane, silent)
    stop_on(plane, checks.topic_changed(plane.log.state.upstream_ids, seen.topic_ids, plane.rules))
    return seen


def described(plane: MirrorPlane, silent: Silent | None = None) -> Seen:
    """The source as it is, whatever it was. With `silent`, of what answered in an earlier look, topics and partitions
    that give no answer are left out, as long as there are others.
    """
    asked = silent.again() if silent is not None else None
    admin, names = plane.source_admin, selected(plane, asked)
    topics = describe_topics(admin, names, timeout_s=ADMIN_TIMEOUT_S, silent=asked)
    partitions = [at for topic in topics.values() for at in topic.all_partitions]
    # In this order a start never lies beyond its end, whatever retention deletes between the two.
    starts = log_starts(admin, partitions, timeout_s=ADMIN_TIMEOUT_S, silent=asked)
    ends = end_offsets(admin, partitions, timeout_s=ADMIN_TIMEOUT_S, silent=asked)
    remote = {at: TopicPartition(plane.pipeline.remote_of(at.topic), at.partition) for at in partitions}
    return Seen(topics, remote, {at: starts[at] for at in ends}, ends, ends, asked or Silent())


def remote_ids(
    plane: MirrorPlane, sources: Iterable[str], *, timeout_s: float = ADMIN_TIMEOUT_S
) -> dict[str, str | None]:
    """By remote topic of some source topics its UUID as it is now, None of one that isn't there."""
    remotes = [plane.pipeline.remote_of(topic) for topic in sources]
    there = existing_topic_ids(plane.admin, remotes, timeout_s=timeout_s)
    return {remote: there.get(remote) for remote in remotes}


def recreated(state: MirrorState, found: Mapping[str, str | None]) -> Finding | None:
    """A remote topic that was copied to, and is now another one or none; `found` as `remote_ids` gives it."""
    for remote, now in sorted(found.items()):
        stored = state.topic_ids.get(remote)
        if stored is not None and stored != now:
            missing = f"topic id {now}" if now else "no such topic"
            return REMOTE_TOPIC_RECREATED.of(remote, stored=f"topic id {stored}", found=missing)
    return None


@dataclass(frozen=True, slots=True)
class Ensured:
    """The UUIDs of remote topics by name; `refusals` are of topics whose remote topic can't be made as it has to be."""

    topic_ids: Mapping[str, str]
    refusals: tuple[Refusal, ...]

    @property
    def all_ids(self) -> dict[str, str]:
        """Raises the first refusal, if there is one."""
        for refusal in self.refusals:
            raise refusal.error
        return dict(self.topic_ids)


def ensure_remote(plane: MirrorPlane, seen: Seen) -> Ensured:
    """Make remote topics that are missing, and grow those that have too few partitions.

    Raises FindingError for one that was copied to and is another now.
    """
    found = remote_ids(plane, seen.topics)
    stop_on(plane, recreated(plane.log.state, found))
    return _ensured(plane, {name: topic.partitions for name, topic in seen.topics.items()}, found)


def ensure_one(plane: MirrorPlane, topic: str) -> dict[str, str]:
    """The remote topic of one source topic, by name with its UUID, made if there is none; whatever it was before."""
    source = describe_topics(plane.source_admin, [topic], timeout_s=ADMIN_TIMEOUT_S)[topic]
    return _ensured(plane, {topic: source.partitions}, remote_ids(plane, [topic])).all_ids


def _ensured(plane: MirrorPlane, partitions: Mapping[str, int], found: Mapping[str, str | None]) -> Ensured:
    remotes = {topic: plane.pipeline.remote_of(topic) for topic in partitions}
    refused = dict[str, CalveError]()
    missing = {topic: remote for topic, remote in remotes.items() if found[remote] is None}
    if missing:
        configs, target = topic_configs(plane.source_admin, missing), plane.pipeline.config.target
        factor = target.replication_factor or -1
        new = [NewTopic(r, partitions[t], factor, config=wanted(configs[t], target)) for t, r in missing.items()]
        refused |= create_each(plane.admin, new)
        reach("topics.after-create")
    grown = _grown(plane, {r: partitions[topic] for topic, r in remotes.items() if r not in refused}, refused)
    ids = {name: topic.topic_id for name, topic in grown.items()}
    return Ensured(ids, tuple(Refusal.of_topic(t, refused[r]) for t, r in remotes.items() if r in refused))


def sync_configs(plane: MirrorPlane, seen: Seen) -> tuple[Refusal, ...]:
    """Make to remote topics that are there what was changed of their source topics' configurations since; which of
    them can't be changed so.
    """
    target = plane.pipeline.config.target
    if not target.sync_config:
        return ()
    found = remote_ids(plane, seen.topics)
    remotes = {topic: r for topic in seen.topics if found[r := plane.pipeline.remote_of(topic)] is not None}
    now, ours = topic_configs(plane.source_admin, remotes), topic_configs(plane.admin, remotes.values())
    lacking = {remote: differences(now[topic], ours[remote], target) for topic, remote in remotes.items()}
    refused = alter(plane.admin, {remote: changes for remote, changes in lacking.items() if changes})
    return tuple(Refusal.of_topic(topic, refused[r]) for topic, r in remotes.items() if r in refused)


def _grown(plane: MirrorPlane, partitions: Mapping[str, int], refused: dict[str, CalveError]) -> dict[str, Topic]:
    """The remote topics, each with at least so many partitions: where they are lacking they are added. One that can't
    be given them goes to `refused`.
    """
    deadline = Deadline.after(_KNOWN_S)
    asked = False
    while True:
        # Some brokers hear a moment later of a topic, or of partitions, that were just made.
        with suppress(ConfigError) if not deadline.passed else nullcontext():
            there = describe_topics(plane.admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
            few = {remote: number for remote, number in partitions.items() if there[remote].partitions < number}
            if not few:
                return there
            if not asked:
                failed = add_partitions(plane.admin, [NewPartitions(remote, number) for remote, number in few.items()])
                refused |= failed
                partitions = {remote: number for remote, number in partitions.items() if remote not in failed}
                asked = True
        time.sleep(_POLL_S)


def stop_on(plane: MirrorPlane, finding: Finding | None) -> None:
    """Raise FindingError for a finding."""
    if finding is not None:
        raise finding.error(str(plane.pipeline.path))
