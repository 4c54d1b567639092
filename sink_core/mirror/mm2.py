"""From MirrorMaker 2 to a mirror, and back: its positions are taken over, or ours written as it has them.

Each way is harmless twice: a try that was interrupted is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.leading import Wanted
from calve.sink_core.errors import ConfigError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import describe_topics, existing_topic_ids, high_watermarks
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.mirror_maker import MirrorMaker
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.topics import Seen
from calve.sink_core.offsets import Offsets, TopicPartition


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What a mirror begins with that goes on where MirrorMaker 2 ended.

    `starts` are by partition of the remote topic; those of `copied` MirrorMaker 2 has copied, the others begin at their
    log start. `others` are topics that it copied too and the mirror does not. `tasks` is how many of its tasks there
    may be. `exactly_once`: whether it ran so; if not, what it copied after its last offset comes again.
    """

    starts: Offsets
    copied: frozenset[TopicPartition]
    others: tuple[str, ...]
    tasks: int
    exactly_once: bool
    seen: Seen = field(repr=False)


def look(plane: MirrorPlane) -> TakeOver:
    """What `take_over` would do, if MirrorMaker 2 stays where it is. Raises ConfigError as it does."""
    plane.read_only()
    return _prepared(plane)


def take_over(plane: MirrorPlane) -> TakeOver:
    """Fence its tasks, and begin a mirror that has never copied behind the records that they copied last.

    Raises ConfigError if the mirror has copied, if MirrorMaker 2 is still there or has no offsets, or if these do not
    fit to what both clusters have.
    """
    tasks = look(plane).tasks
    plane.bind()
    MirrorMaker(plane).fence(tasks)
    found = _prepared(plane, settled=True)
    ids = topics.ensure_remote(plane, found.seen).all_ids
    wanted = Wanted(plane.pipeline_id, 0, ids, found.seen.topic_ids, found.starts)
    led = plane.leader.lead(lambda _state: wanted)
    if led is None:
        raise _has_copied(plane)
    plane.end(led.generation, "it begins where MirrorMaker 2 ended")
    return found


def to_give_back(plane: MirrorPlane) -> dict[TopicPartition, int]:
    """What `give_back` would write, by what the log says. Raises ConfigError as it does."""
    if not plane.read_only() or plane.log.state.last_batch_id is None:
        raise ConfigError(
            f"pipeline {plane.pipeline.name} has not copied anything yet", hint="calve run FILE", code=Code.NOT_RUN_YET
        )
    plane.check_bound()
    if plane.log.state.paused is None:
        raise _refused("the mirror is not paused: it would go on beside MirrorMaker 2", "calve pause FILE --wait")
    _stopped(MirrorMaker(plane))
    return _sources(plane, plane.log.state.partitions)


def give_back(plane: MirrorPlane) -> dict[TopicPartition, int]:
    """End what runs of a paused mirror may have open, and write its positions for MirrorMaker 2: by partition of the
    source the next offset, which it goes on at. Raises ConfigError if the mirror is not paused, or MirrorMaker 2 there.
    """
    to_give_back(plane)
    led = plane.lead_for("given back to MirrorMaker 2")
    if led is None:
        raise _refused("another run leads", "see whether it still runs, then try again")
    positions = _sources(plane, {at: position.offset for at, position in led.positions.items()})
    MirrorMaker(plane).write(positions)
    return positions


def _prepared(plane: MirrorPlane, *, settled: bool = False) -> TakeOver:
    if plane.log.state.last_batch_id is not None:
        raise _has_copied(plane)
    maker = MirrorMaker(plane)
    _stopped(maker)
    behind = maker.positions(settled=settled)
    if not behind:
        raise _refused(
            f"there are no offsets of MirrorMaker 2 in {maker.offsets} on {plane.pipeline.config.target_alias}",
            "call source.cluster what MirrorMaker 2 calls it",
        )
    tasks, exactly_once = maker.tasks()
    seen = topics.look(plane)
    remotes = seen.remote
    _check(plane, seen, remotes, behind)
    return TakeOver(
        {remotes[at]: behind.get(at, start) for at, start in seen.starts.items()},
        frozenset(remotes[at] for at in seen.ends if at in behind),
        tuple(sorted({at.topic for at in behind} - seen.topics.keys())),
        tasks,
        exactly_once,
        seen,
    )


def _check(plane: MirrorPlane, seen: Seen, remotes: Mapping[TopicPartition, TopicPartition], behind: Offsets) -> None:
    """Raise ConfigError if the offsets can't be gone on from: something would be lost or come again."""
    names = existing_topic_ids(plane.admin, {at.topic for at in remotes.values()}, timeout_s=ADMIN_TIMEOUT_S)
    counts = {name: t.partitions for name, t in describe_topics(plane.admin, names, timeout_s=ADMIN_TIMEOUT_S).items()}
    there = [at for at in remotes.values() if at.partition < counts.get(at.topic, 0)]
    ends = high_watermarks(plane.admin, there, timeout_s=ADMIN_TIMEOUT_S)
    for at, remote in sorted(remotes.items()):
        if at not in behind:
            if ends.get(remote):
                raise _refused(
                    f"{remote} has records, and MirrorMaker 2 no offset of {at}: they would be copied again",
                    "leave the topic out of source.topics, or delete the remote topic",
                )
        elif remote not in ends:
            raise _refused(
                f"MirrorMaker 2 has copied {at}, and there is no {remote}", "make target.names what it calls its topics"
            )
        elif not seen.starts[at] <= behind[at] <= seen.real_ends[at]:
            raise _refused(
                f"{at}: MirrorMaker 2 goes on at {behind[at]}, and the topic has {seen.starts[at]} to "
                f"{seen.real_ends[at]}",
                "let MirrorMaker 2 catch up; if records were lost, leave the topic out of source.topics",
            )


def _stopped(maker: MirrorMaker) -> None:
    """Raise ConfigError while it has workers: they would start fenced tasks again, from offsets of their own."""
    if maker.is_at_work():
        raise _refused(
            f"MirrorMaker 2 is at work: its group {maker.group} has members", "stop it, and try again once it is gone"
        )


def _sources(plane: MirrorPlane, positions: Offsets) -> dict[TopicPartition, int]:
    named = ((plane.pipeline.source_of(at.topic), at.partition, offset) for at, offset in sorted(positions.items()))
    return {TopicPartition(topic, partition): offset for topic, partition, offset in named if topic is not None}


def _refused(message: str, hint: str) -> ConfigError:
    return ConfigError(message, hint=hint, code=Code.MIRROR_MAKER)


def _has_copied(plane: MirrorPlane) -> ConfigError:
    return ConfigError(
        f"pipeline {plane.pipeline.name} has copied already: its positions are its own",
        hint="take over by a pipeline of a new name, before its first run",
        code=Code.HAS_PUBLISHED,
    )
