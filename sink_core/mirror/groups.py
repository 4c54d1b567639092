"""Consumer groups of the source on the target: where each would go on there, and putting it there.

    offsets on the source → offsets on the target, by what was copied → committed where nobody consumes

Not transactional, and repeatable: nothing rests on it but where consumers begin once they move. A group goes forwards
only, and only while it has no member. What is translated exactly, and what is a bound:

- An offset that was copied is exact: the first record there that the group has not read, or behind the last one.
- One of a range with very many runs is at most some records before that (`MOST_SEGMENTS`), never behind it.
- One that is yet to be copied is put behind the last record there is: what is copied later comes again.
- A mirror that goes back the way another came has that one's log: a group that has not read beyond what that one wrote
  goes on where it would have there. One that has read beyond goes on behind, and has not seen what never got across.

Crash points, and what the next run finds:

    groups.after-sync  groups are where they belong, checkpoints are not written; both are done again
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from calve.sink_core.config.mirror import StartAtMirror
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.rounds import OnProgress, Progress
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import CalveError, ConfigError, RetriableError
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.failures import answered, classify, reported
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.kafka.source import Silent, end_offsets, log_starts
from calve.sink_core.mirror import fail_back, topics
from calve.sink_core.mirror.checkpoints import Checkpoints
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.segments import translate, unbroken
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.offsets import OffsetRange, Offsets, Position, Positions, TopicPartition
from calve.sink_core.timing import Deadline

AT_ONCE = 8
"""Groups that are asked at the same time; each takes clients of its own."""

MOST_MARKERS = 100
"""So many offsets behind the last record are looked at for records: transactions leave one behind each."""

_SETTLED_S = 10.0
_CALVES = "calve."
_IDLE = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group on one partition that it has read at the source.

    `lag` is what it has yet to read there. `target_offset` is where it goes on in the remote topic, None if that can't
    be said; `found` where it was there before. `done` if it is there now, else `why_not`, unless nobody has tried.
    """

    group: str
    topic: str
    partition: int
    remote: str
    source_offset: int
    lag: int
    metadata: str = ""
    target_offset: int | None = None
    found: int | None = None
    done: bool = False
    why_not: str = ""

    @property
    def at(self) -> TopicPartition:
        """Of the remote topic."""
        return TopicPartition(self.remote, self.partition)


@dataclass(frozen=True, slots=True)
class Groups:
    """What the selected groups have read, by group, topic and partition, and those of which that can't be said."""

    offsets: list[GroupOffset] = field(default_factory=list[GroupOffset])
    blockers: list[Blocker] = field(default_factory=list[Blocker])


class GroupSync:
    """The syncs of one run: after a batch if `groups.every` has passed, and at its end. `last` is what the last did."""

    def __init__(self, plane: MirrorPlane, progress: OnProgress = lambda _progress: None) -> None:
        self._plane, self._progress = plane, progress
        self._due = Deadline.after(plane.pipeline.config.groups.every)
        self._checkpoints = Checkpoints(plane)
        self.last = Groups()

    def when_due(self) -> None:
        """What a cluster refuses or doesn't answer here holds up no record; the sync at the end says it."""
        if self._due.passed:
            with suppress(RetriableError, ConfigError):
                self.sync()

    def sync(self) -> Groups:
        """Put every group that was selected where it belongs. What can't be done is said of each, and fails nothing.

        Raises Unreachable and ConfigError for a cluster as a whole, FindingError as `topics.look`.
        """
        config = self._plane.pipeline.config.groups
        if not config.include:
            return self.last
        self._due = Deadline.after(config.every)
        found = look(self._plane)
        names = {each.group for each in found.offsets}
        self._progress(Progress("groups", f"putting {len(names):,} groups in place", offsets=len(names)))
        busy = {name for name, state in states(self._plane.admin).items() if state not in _IDLE}
        self.last = Groups(_each_group(found.offsets, partial(_put, self._plane, busy)), found.blockers)
        reach("groups.after-sync")
        if config.checkpoints:
            self._checkpoints.write(self.last.offsets)
        return self.last

    @property
    def blockers(self) -> Sequence[Blocker]:
        """Groups that the last sync could not look at."""
        return self.last.blockers


def look(plane: MirrorPlane) -> Groups:
    """All that the selected groups have read of what the mirror copies, translated; nothing is written."""
    seen = topics.look(plane, Silent())
    remotes = seen.remote
    names = [name for name in states(plane.source_admin) if is_selected(plane.pipeline, name)]
    answers = dict(zip(names, _at_once(lambda name: _read(plane, name, seen.ends), names), strict=True))
    found = [
        GroupOffset(group, *at, remotes[at].topic, p.offset, max(0, seen.real_ends[at] - p.offset), p.metadata)
        for group, positions in answers.items()
        if not isinstance(positions, CalveError)
        for at, p in sorted(positions.items())
    ]
    there = [at for at in sorted({each.at for each in found}) if at in plane.log.refresh().partitions]
    silent = Silent()
    starts = log_starts(plane.admin, there, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
    ends = end_offsets(plane.admin, [*starts], timeout_s=ADMIN_TIMEOUT_S, silent=silent)
    # Read behind the ends: what lies before them, if the mirror wrote it, is in the log by now.
    translated = _Translation(plane, starts, ends, silent).of(found)
    unread = [Blocker.of(f"group {name}", error) for name, error in answers.items() if isinstance(error, CalveError)]
    return Groups(_each_group(translated, partial(_compared, plane)), unread)


def states(admin: AdminClient) -> dict[str, ConsumerGroupState]:
    """Of all groups of a cluster, sorted by name. Raises if a part of them could not be listed."""
    doing = "listing consumer groups"
    with reported(doing):
        listing = admin.list_consumer_groups(request_timeout=ADMIN_TIMEOUT_S)
    listed = answered(listing, doing, ADMIN_TIMEOUT_S)
    for error in listed.errors or ():
        raise classify(error, doing)
    return {each.group_id: ConsumerGroupState(each.state) for each in sorted(listed.valid, key=lambda g: g.group_id)}


class _Translation:
    """Of many offsets, by one reading of the log. `starts` and `ends` are those of the remote partitions, `silent` has
    why there are none.
    """

    def __init__(self, plane: MirrorPlane, starts: Offsets, ends: Offsets, silent: Silent) -> None:
        self._plane, self._starts, self._ends, self._silent = plane, starts, ends, silent
        self._state = plane.log.refresh_to_end()
        self._other: MirrorState | None = None
        if isinstance(start := plane.pipeline.config.source.start, StartAtMirror):
            # Once the way back is all there is, the other mirror may have been taken away.
            with suppress(ConfigError):
                self._other = fail_back.other_mirror(plane, start.mirror)

    def of(self, found: list[GroupOffset]) -> list[GroupOffset]:
        pairs = [(each, self._placed(each)) for each in found]
        ends = self._behind({each.at for each, (_, why) in pairs if why == _AT_END})
        others = "what the target has of the partition this mirror did not copy"
        at_end = {at: (end, "" if end is not None else others) for at, end in ends.items()}
        both = ((each, *(at_end[each.at] if why == _AT_END else (offset, why))) for each, (offset, why) in pairs)
        return [replace(each, target_offset=offset, why_not=why) for each, offset, why in both]

    def _placed(self, each: GroupOffset) -> tuple[int | None, str]:
        """The offset in the remote topic or why there is none; `_AT_END` if no record follows that was copied."""
        state, remote, offset = self._state, each.at, each.source_offset
        position = state.partitions.get(remote)
        if (error := self._silent.partitions.get(remote)) is not None:
            return None, f"{error.message} [{error.code}]"
        if position is None or remote not in self._ends:
            return None, "nothing of the partition has been copied yet"
        begin = state.begins.get(remote, 0)
        if offset <= begin and (place := self._back(each)) is not None:
            return place, ""
        if offset >= position:
            return None, _AT_END
        if offset < begin:
            lost = ", and the other mirror's log has no longer what was copied there" if self._other else ""
            return None, f"the mirror began behind it, at {begin}{lost}"
        ranges = unbroken(state.copied.get(remote, ()))
        if not ranges or offset < ranges[0].start:
            return None, "the log no longer has what was copied from there"
        place = translate(ranges, offset)
        return (None, _AT_END) if place in (None, state.target_ends.get(remote)) else (place, "")

    def _back(self, each: GroupOffset) -> int | None:
        other, own_id = self._other, self._state.topic_ids.get(each.remote)
        if other is None or not fail_back.same_topic(other, each.topic, each.remote, own_id):
            return None
        return fail_back.back(other, TopicPartition(each.topic, each.partition), each.source_offset)

    def _behind(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Of each partition the offset that no record of the mirror's lies at or behind, as far as it is known: its end
        if there is no record of anybody's between, so that a group has no lag there.
        """
        last = self._state.target_ends
        known = {at: max(last.get(at, 0), self._starts[at]) for at in wanted}
        near = [OffsetRange(*at, known[at], self._ends[at]) for at in wanted if self._ends[at] > known[at]]
        near = [part for part in near if part.span <= MOST_MARKERS]
        full = {part.at for part in self._with_records(near)}
        empty = {at for at in wanted if self._ends[at] <= known[at]} | ({part.at for part in near} - full)
        # The end lies before the mirror's own records while a transaction of others, or its own last one, isn't over.
        behind = {at: max(self._ends[at], known[at]) for at in empty}
        return {at: behind.get(at, known[at] if at in last else None) for at in wanted}

    def _with_records(self, ranges: list[OffsetRange]) -> set[OffsetRange]:
        if not ranges:
            return set()
        pipeline = self._plane.pipeline
        with RangeReader(pipeline.kafka.properties, ranges, group=pipeline.group) as reader:
            for _messages in reader:
                pass
        return {part for part, counts in zip(ranges, reader.counts, strict=True) if counts.records}


_AT_END = "no record that was copied follows"


def is_selected(pipeline: MirrorPipeline, group: str) -> bool:
    """Whether a group's positions are put on the target."""
    return pipeline.config.groups.has(group) and not group.startswith(_CALVES)


def _read(
    plane: MirrorPlane, group: str, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Position] | CalveError:
    """What the group has on the source, without waiting for a transaction that is open: the next sync sees its end.

    An error is that of the group alone: one without the permission, or whose coordinator is away.
    """
    try:
        with closing(SourceGroup(plane.pipeline.source.properties, group, waits=False)) as source:
            return source.positions(partitions, timeout_s=_SETTLED_S)
    except CalveError as error:
        return error


def _compared(plane: MirrorPlane, group: str, places: list[GroupOffset]) -> list[GroupOffset]:
    """With what the group has on the target."""
    with closing(SourceGroup(plane.pipeline.kafka.properties, group)) as target:
        return _beside(places, _found(target, places))


def _put(plane: MirrorPlane, busy: Collection[str], group: str, places: list[GroupOffset]) -> list[GroupOffset]:
    """Commit what lies before its place, if the group has no member."""
    if not any(_is_open(place) for place in places):
        return places
    with closing(SourceGroup(plane.pipeline.kafka.properties, group)) as target:
        places = _beside(places, _found(target, places))
        todo = {p.at: Position(p.target_offset or 0, p.metadata) for p in places if _is_open(p)}
        idle = not todo or (group not in busy and target.put(todo))
    outcome = {"done": True} if idle else {"why_not": "a consumer of the group is at work on the target"}
    return [replace(place, **outcome) if place.at in todo else place for place in places]


def _is_open(place: GroupOffset) -> bool:
    return not place.done and not place.why_not


def _found(target: SourceGroup, places: list[GroupOffset]) -> Positions:
    return target.positions([p.at for p in places if p.target_offset is not None], timeout_s=_SETTLED_S)


def _beside(places: list[GroupOffset], found: Positions) -> list[GroupOffset]:
    return [_against(place, found[place.at].offset) if place.at in found else place for place in places]


def _against(place: GroupOffset, found: int) -> GroupOffset:
    if place.target_offset is None or found < place.target_offset:
        return replace(place, found=found)
    if found == place.target_offset:
        return replace(place, found=found, done=True)
    return replace(place, found=found, why_not=f"it is further on the target, at {found}")


def _each_group(
    found: list[GroupOffset], does: Callable[[str, list[GroupOffset]], list[GroupOffset]]
) -> list[GroupOffset]:
    """What `does` makes of the offsets of each group; an error is that of the group alone."""
    groups: dict[str, list[GroupOffset]] = {}
    for each in found:
        groups.setdefault(each.group, []).append(each)

    def one(group: str) -> list[GroupOffset]:
        try:
            return does(group, groups[group])
        except CalveError as error:
            return [replace(place, why_not=place.why_not or error.message) for place in groups[group]]

    return [place for places in _at_once(one, list(groups)) for place in places]


def _at_once(does: Callable[[T], R], on: list[T]) -> list[R]:
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return list(pool.map(does, on))
