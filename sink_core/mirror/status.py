"""Where a mirror stands, from both clusters and the control log. Reads only, and guesses nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calve.sink_core.control import checks
from calve.sink_core.control.status import (
    Blocker,
    ControlTopicStatus,
    InFlight,
    PartitionStatus,
    Pause,
    TopicStatus,
    age_s,
    control_topic_of,
    in_flight,
    iso,
    lines_before,
    lines_behind,
    long_log,
    partition_statuses,
    pause_of,
    topic_statuses,
)
from calve.sink_core.errors import Unreachable
from calve.sink_core.finding import Finding
from calve.sink_core.kafka.pending import first_timestamps
from calve.sink_core.kafka.source import Silent
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.mirror.topics import Seen
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.report import BAD, WARNING, Line, Shown, Table, number, records
from calve.sink_core.tasks import WrittenBy
from calve.sink_core.wording import by_text, bytes_text, counted

OLDEST_S = 3.0
"""For the first pending records; a source that has not given them by then is slow."""

# A living slot's transaction is open for some seconds at most.
_PENDING_S = 3.0


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """A source topic and its remote topic. `until_loss` is the least of its partitions that have a lag, None if none
    has.

    `records` are all that were copied of it, `bytes` those of keys and values that the control topic still tells of.
    `oldest_age_s` is the age of its oldest pending record, None without one, or if it was not to be had in a moment.
    `foreign` counts partitions of the remote topic in which somebody else's record stands behind the last copied one.
    """

    topic: str
    remote: str
    exists: bool
    partitions: int
    lag: int
    until_loss: int | None
    records: int
    bytes: int
    adjusted: int
    oldest_age_s: float | None
    foreign: int

    @property
    def cells(self) -> list[str]:
        age = "-" if self.oldest_age_s is None else f"{self.oldest_age_s:,.0f} s"
        left = "-" if self.until_loss is None else f"{self.until_loss:,} records"
        remote = self.remote if self.exists else f"{self.remote} (not created yet)"
        return [self.topic, remote, *map(number, (self.partitions, self.records, self.lag)), age, left]


@dataclass(frozen=True, slots=True)
class LastGeneration:
    """The last batch: what its slots have committed, and how it ended; `ended` is None while it is at work, or if it
    died without a word.
    """

    batch_id: str
    started_at: str
    slots: int
    transactions: int
    records: int
    bytes: int
    ended: str | None
    written_by: WrittenBy | None = None

    def __str__(self) -> str:
        by = f"{counted(self.slots, 'slot', 'slots')}, {counted(self.transactions, 'transaction', 'transactions')}"
        ended = f"ended: {self.ended}" if self.ended else "has not ended"
        copied = f"{records(self.records)}, {bytes_text(self.bytes)} by {by}"
        return f"{self.batch_id} of {self.started_at}: {copied}; {ended}{by_text(self.written_by)}"


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Where a mirror stands. Times are ISO 8601 in UTC, ages in seconds by this host's clock.

    `left_out` are topics that `topics_regex` matches and that are not copied, by name with why.
    `positions_pending`: a slot holds a transaction open, or died in one; the positions are then not held against the
    control topic. The next generation's fence, or the transaction's time-out, decides it.
    """

    pipeline: str
    source: str
    target: str
    bootstrapped: bool
    lag: int
    records: int
    bytes: int
    topics: tuple[CopiedTopic, ...]
    partitions: tuple[PartitionStatus, ...]
    paused: Pause | None
    last_generation: LastGeneration | None
    in_flight: tuple[InFlight, ...]
    control_topic: ControlTopicStatus | None
    positions_pending: bool
    left_out: Mapping[str, str]
    blockers: tuple[Blocker, ...]
    findings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[Shown]:
        started = "" if self.bootstrapped else ", has not run yet"
        yield Line(f"pipeline {self.pipeline}, {self.source} to {self.target}{started}: lag {self.lag:,}")
        last = (f"last batch {self.last_generation}",) if self.last_generation else ()
        yield from lines_before(self.paused, last, self.in_flight, self.control_topic)
        size = bytes_text(self.bytes)
        yield Line(f"{records(self.records)} copied in all, {size} of them by what the control topic still tells")
        columns = ["topic", "remote topic", "partitions", "copied", "lag", "oldest pending", "until retention"]
        yield Table("topics", columns, [topic.cells for topic in self.topics])
        for topic in self.topics:
            if topic.foreign:
                partitions = counted(topic.foreign, "partition", "partitions")
                yield Line(f"others have written to {partitions} of {topic.remote}", BAD)
        if self.positions_pending:
            text = "a slot holds a transaction open: the positions are not held against the control topic"
            yield Line(text, WARNING)
        yield from (Line(f"not copied: {topic}: {why}") for topic, why in self.left_out.items())
        yield from lines_behind(self.blockers, self.findings)


def status(plane: MirrorPlane) -> MirrorStatus:
    """Look at everything once. Raises Unreachable or ConfigError; findings are in the report."""
    ran, config = plane.read_only(), plane.pipeline.config
    seen = topics.described(plane, Silent())
    state, now_ms = plane.log.state, time.time_ns() // 1_000_000
    remote = seen.remote
    remotes = topics.remote_ids(plane, seen.topics)
    there = {name for name, topic_id in remotes.items() if topic_id is not None}
    found, pending = _moved(plane, seen) if ran else (None, False)
    positions = {at: Position(state.partitions[r], "") for at, r in remote.items() if r in state.partitions}
    partitions = tuple(partition_statuses(positions, seen.starts, seen.ends))
    ages, foreign = _ages_s(plane, partitions, now_ms), _foreign(plane, there)
    copied = tuple(
        _topic(plane, there, each, ages.get(each.topic), foreign.get(plane.pipeline.remote_of(each.topic), 0))
        for each in topic_statuses(partitions)
    )
    findings = (
        plane.other_binding() if ran else None,
        checks.topic_changed(state.upstream_ids, seen.topic_ids, plane.rules),
        topics.recreated(state, remotes),
        found,
        checks.against_log(positions, seen.starts, seen.ends),
    )
    control_topic = control_topic_of(plane.log.topic, state, now_ms) if ran else None
    return MirrorStatus(
        pipeline=plane.pipeline.name,
        source=config.source_alias,
        target=config.target_alias,
        bootstrapped=state.last_batch_id is not None,
        lag=sum(p.lag for p in partitions),
        records=sum(state.records.values()),
        bytes=sum(each.bytes for each in copied),
        topics=copied,
        partitions=partitions,
        paused=pause_of(state),
        last_generation=last_generation(state),
        in_flight=tuple(in_flight(state, now_ms)),
        control_topic=control_topic,
        positions_pending=pending,
        left_out=topics.left_out(plane),
        blockers=(*topics.blockers(plane, seen), *long_log(control_topic, str(plane.pipeline.path))),
        findings=tuple(str(f.error(str(plane.pipeline.path))) for f in findings if f is not None),
    )


def last_generation(state: MirrorState) -> LastGeneration | None:
    """None before the first one, and where only a checkpoint tells of it."""
    logged = state.generation
    if logged is None:
        return None
    ranges = state.of_generation()
    return LastGeneration(
        batch_id=logged.event.batch_id,
        started_at=iso(logged.event.written_at_ms),
        slots=logged.event.slots,
        transactions=len(state.commits),
        records=sum(part.records for part in ranges),
        bytes=sum(part.bytes for part in ranges),
        ended=state.ended.why if state.ended else None,
        written_by=WrittenBy.from_map(state.ended.written_by) if state.ended else None,
    )


def _moved(plane: MirrorPlane, seen: Seen) -> tuple[Finding | None, bool]:
    """What contradicts the log in the positions, unless a slot moves them meanwhile; True while one may."""
    wanted = set(seen.remote.values())
    before = plane.log.state.next_offset
    expected = {at: offset for at, offset in plane.log.state.partitions.items() if at in wanted}
    try:
        found = plane.group.positions(expected, timeout_s=_PENDING_S)
    except Unreachable:
        return None, True
    unchanged = plane.log.refresh_to_end().next_offset == before
    return (checks.moved(expected, found) if unchanged else None), False


def _ages_s(plane: MirrorPlane, partitions: tuple[PartitionStatus, ...], now_ms: int) -> dict[str, float]:
    """The age of the oldest pending record of each topic that has one."""
    lagging = {
        TopicPartition(p.topic, p.partition): p.log_start if p.position is None else max(p.position, p.log_start)
        for p in partitions
        if p.lag
    }
    times = first_timestamps(plane.pipeline.source.properties, lagging, timeout_s=OLDEST_S)
    oldest: dict[str, float] = {}
    for at, time_ms in times.items():
        oldest[at.topic] = max(oldest.get(at.topic, 0.0), age_s(time_ms, now_ms))
    return oldest


def _foreign(plane: MirrorPlane, there: Collection[str]) -> dict[str, int]:
    """By remote topic the partitions that have a committed record behind the last one that was copied."""
    before = {at: plane.log.state.target_ends.get(at, 0) for at in plane.log.state.partitions if at.topic in there}
    found = first_timestamps(plane.pipeline.kafka.properties, before, timeout_s=OLDEST_S)
    # A slot may have put them there since the log was read.
    now = plane.log.refresh_to_end().target_ends if found else {}
    return Counter(at.topic for at in found if now.get(at, 0) == before[at])


def _topic(
    plane: MirrorPlane, there: Collection[str], seen: TopicStatus, oldest_age_s: float | None, foreign: int
) -> CopiedTopic:
    state, remote = plane.log.state, plane.pipeline.remote_of(seen.topic)
    ranges = [part for at, parts in state.copied.items() if at.topic == remote for part in parts]
    return CopiedTopic(
        topic=seen.topic,
        remote=remote,
        exists=remote in there,
        partitions=seen.partitions,
        lag=seen.lag,
        until_loss=seen.until_loss,
        records=sum(number for at, number in state.records.items() if at.topic == remote),
        bytes=sum(part.bytes for part in ranges),
        adjusted=sum(part.adjusted for part in ranges),
        oldest_age_s=oldest_age_s,
        foreign=foreign,
    )
