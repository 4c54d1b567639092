"""What `status` says of a pipeline of any kind: partitions, pause, batches in progress, control topic. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import CalveError
from calve.sink_core.offsets import Offsets, Positions
from calve.sink_core.report import BAD, WARNING, Line

EVENTS_A_SECOND = 15_000
"""That a process reads of a control log on one core."""

LONG_READ_S = 30.0
"""From here on a control log holds up whoever reads it."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. `position` is None before its first publish; it then begins at `log_start`.

    `lag` counts offsets up to the last stable one (`end`). `until_loss` is the distance of the next offset to read from
    the log start: that many more records, deleted by retention, and unread ones are lost; negative if some are already.
    """

    topic: str
    partition: int
    position: int | None
    log_start: int
    end: int
    lag: int
    until_loss: int


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A source topic. `until_loss` is the least of its partitions that have a lag, None if none has."""

    topic: str
    partitions: int
    lag: int
    until_loss: int | None


@dataclass(frozen=True, slots=True)
class InFlight:
    """A batch that was planned and is not published, and whose turn it still is. Running, or dead without a word."""

    batch_id: str
    age_s: float
    calve_version: str


@dataclass(frozen=True, slots=True)
class ControlTopicStatus:
    """The control log. `events` counts offsets, transaction markers included; `oldest` is the first event's time.
    `read_s` is about what each process takes to read it.
    """

    topic: str
    start: int
    end: int
    events: int
    oldest: str | None
    oldest_age_s: float | None
    read_s: float = 0.0

    def __str__(self) -> str:
        return f"control topic {self.topic}: {self.events:,} events since {self.oldest} (read in {self.read_s:,.1f} s)"


@dataclass(frozen=True, slots=True)
class Blocker:
    """What keeps records from being moved while all others are: nothing is lost, and nothing comes either.

    `where` names the table, file, topic or partition, `why` says what holds its records back, `hint` what to do about
    it. `since_ms` is when that began, None where nobody knows.
    """

    where: str
    why: str
    hint: str = ""
    since_ms: int | None = None

    @classmethod
    def of(cls, where: str, error: CalveError, since_ms: int | None = None) -> Blocker:
        """What stands alone by an error of its own."""
        return cls(where, f"{error.message} [{error.code}]", error.hint, since_ms)

    def __str__(self) -> str:
        since = f", since {iso(self.since_ms)}" if self.since_ms is not None else ""
        return f"{self.where}: {self.why}{since}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when, by whom and why."""

    since: str
    by: str
    reason: str


def partition_statuses(positions: Positions, starts: Offsets, ends: Offsets) -> Iterator[PartitionStatus]:
    for at in sorted(ends):
        position = positions.get(at)
        following = position.offset if position else starts[at]
        yield PartitionStatus(
            topic=at.topic,
            partition=at.partition,
            position=position.offset if position else None,
            log_start=starts[at],
            end=ends[at],
            lag=max(0, ends[at] - following),
            until_loss=following - starts[at],
        )


def topic_statuses(partitions: tuple[PartitionStatus, ...]) -> Iterator[TopicStatus]:
    for topic in dict.fromkeys(p.topic for p in partitions):
        mine = [p for p in partitions if p.topic == topic]
        until_loss = min((p.until_loss for p in mine if p.lag), default=None)
        yield TopicStatus(topic, len(mine), sum(p.lag for p in mine), until_loss)


def in_flight(state: AnyState, now_ms: int) -> Iterator[InFlight]:
    """Batches that were planned and may still be published (see `outstanding` of the kind's state)."""
    for logged in state.outstanding():
        event = logged.event
        yield InFlight(event.batch_id, age_s(event.written_at_ms, now_ms), event.calve_version)


def pause_of(state: AnyState) -> Pause | None:
    event = state.paused
    return Pause(iso(event.written_at_ms), event.by, event.reason) if event else None


def control_topic_of(topic: str, state: AnyState, now_ms: int) -> ControlTopicStatus:
    oldest, events = state.oldest_ms, state.next_offset - state.log_start
    return ControlTopicStatus(
        topic=topic,
        start=state.log_start,
        end=state.next_offset,
        events=events,
        oldest=iso(oldest) if oldest is not None else None,
        oldest_age_s=age_s(oldest, now_ms) if oldest is not None else None,
        read_s=round(events / EVENTS_A_SECOND, 1),
    )


def long_log(log: ControlTopicStatus | None, pipeline_file: str) -> Iterator[Blocker]:
    """A control log that every run and command reads for longer than `LONG_READ_S` before it does anything."""
    if log is not None and log.read_s > LONG_READ_S:
        why = f"it has {log.events:,} events, which each run and each command read first: about {log.read_s:,.0f} s"
        hint = f"calve maintain {pipeline_file} trim deletes what nobody needs, and says what needs the rest"
        since_ms = None if log.oldest is None else round(datetime.fromisoformat(log.oldest).timestamp() * 1000)
        yield Blocker(f"control topic {log.topic}", why, hint, since_ms)


def lines_before(
    paused: Pause | None, last: Iterable[str], flying: Iterable[InFlight], log: ControlTopicStatus | None = None
) -> Iterator[Line]:
    """What a status of any kind says first: a pause, the last batch, batches in flight, and the control log."""
    if paused:
        yield Line(f"paused since {paused.since} by {paused.by}: {paused.reason}", WARNING)
    yield from map(Line, last)
    for batch in flying:
        yield Line(f"in flight: {batch.batch_id}, for {batch.age_s:,.0f} s, by Calve {batch.calve_version}")
    if log and log.oldest:
        yield Line(str(log))


def lines_behind(blockers: Iterable[Blocker], findings: Iterable[str]) -> Iterator[Line]:
    """What it says last."""
    yield from (Line(f"blocked: {blocker}", WARNING) for blocker in blockers)
    yield from (Line(finding, BAD) for finding in findings)


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def age_s(at_ms: int, now_ms: int) -> float:
    return max(0.0, (now_ms - at_ms) / 1000)
