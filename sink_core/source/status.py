"""Where a source stands, from its system, the offsets topic and the control log. Reads only, and guesses nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from calve.sink_core.control.status import (
    Blocker,
    ControlTopicStatus,
    InFlight,
    Pause,
    control_topic_of,
    in_flight,
    iso,
    lines_before,
    lines_behind,
    long_log,
    pause_of,
)
from calve.sink_core.errors import FindingError
from calve.sink_core.report import Line, Shown, long_table, records
from calve.sink_core.source.base import Limits, Waiting, Work
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.state import SourceState
from calve.sink_core.tasks import WrittenBy
from calve.sink_core.wording import by_text, bytes_text, counted


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """A source partition and the offset that was stored last, both as they are in JSON."""

    partition: dict[str, Any]
    offset: dict[str, Any]

    @property
    def cells(self) -> list[str]:
        both = (self.partition, self.offset)
        return [", ".join(f"{name} {value}" for name, value in each.items()) for each in both]


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last generation: what its slots have committed, and how it ended; `ended` is None while it is at work, or if
    it died without a word.
    """

    batch_id: str
    started_at: str
    slots: int
    transactions: int
    records: int
    dropped: int
    dead_letters: int
    ended: str | None
    written_by: WrittenBy | None = None

    def __str__(self) -> str:
        by = f"{counted(self.slots, 'slot', 'slots')}, {counted(self.transactions, 'transaction', 'transactions')}"
        ended = f"ended: {self.ended}" if self.ended else "has not ended"
        sent = f"{records(self.records)} by {by}"
        return f"{self.batch_id} of {self.started_at}: {sent}; {ended}{by_text(self.written_by)}"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Where a source stands. Times are ISO 8601 in UTC, ages in seconds by this host's clock.

    `lag` counts records that wait, as far as the source knows, `waiting` says it in its words. `oldest_age_s` is the
    age of the oldest of them, None where nothing waits; where the source doesn't know it (`age_is_bound`), the time
    since the last generation began, which was to take all that waited then. `held_bytes` is what the system keeps for
    this source, None where it keeps nothing. `records` and `dead_letters` are all that were ever sent.
    """

    pipeline: str
    source: str
    target: str
    bootstrapped: bool
    lag: int
    waiting: str
    oldest_age_s: float | None
    age_is_bound: bool
    held_bytes: int | None
    records: int
    dead_letters: int
    offsets: tuple[PartitionOffset, ...]
    paused: Pause | None
    last_batch: LastBatch | None
    in_flight: tuple[InFlight, ...]
    control_topic: ControlTopicStatus | None
    blockers: tuple[Blocker, ...]
    findings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[Shown]:
        started = "" if self.bootstrapped else ", has not run yet"
        held = f", the system holds {bytes_text(self.held_bytes)} for it" if self.held_bytes is not None else ""
        at_most = "at most " if self.age_is_bound else ""
        age = f" for {at_most}{self.oldest_age_s:,.0f} s" if self.oldest_age_s is not None else ""
        yield Line(
            f"pipeline {self.pipeline}, {self.source} to {self.target}{started}: {self.waiting} waiting{age}{held}"
        )
        last = (f"last batch {self.last_batch}",) if self.last_batch else ()
        yield from lines_before(self.paused, last, self.in_flight, self.control_topic)
        letters = f", {counted(self.dead_letters, 'row', 'rows')} to the dead letters" if self.dead_letters else ""
        yield Line(f"{records(self.records)} sent in all{letters}")
        columns = ["source partition", "offset"]
        yield from long_table("source offsets", columns, self.offsets, lambda each: each.cells)
        yield from lines_behind(self.blockers, self.findings)


def status(plane: SourcePlane) -> SourceStatus:
    """Look at everything once. Raises Unreachable or ConfigError; findings are in the report."""
    ran = plane.read_only()
    waiting = _look(plane)
    if waiting.contradiction is not None:
        # A run may have moved on between the look at the log and that at the system.
        plane.log.refresh()
        waiting = _look(plane)
    state, now_ms = plane.log.state, time.time_ns() // 1_000_000
    other = plane.other_binding() if ran else None
    wrong = [other.error(str(plane.pipeline.path)) if other else None, waiting.contradiction]
    since_ms = waiting.since_ms if waiting.since_ms is not None else _last_look_ms(state)
    control_topic = control_topic_of(plane.log.topic, state, now_ms) if ran else None
    return SourceStatus(
        pipeline=plane.pipeline.name,
        source=plane.pipeline.reads,
        target=plane.pipeline.kafka.name,
        bootstrapped=state.last_batch_id is not None,
        lag=waiting.records,
        waiting=waiting.what,
        oldest_age_s=max(0, now_ms - since_ms) / 1000 if waiting.records and since_ms is not None else None,
        age_is_bound=waiting.since_ms is None,
        held_bytes=waiting.held_bytes,
        records=state.records,
        dead_letters=state.dead_letters,
        offsets=offsets_of(state),
        paused=pause_of(state),
        last_batch=last_batch(state),
        in_flight=tuple(in_flight(state, now_ms)),
        control_topic=control_topic,
        blockers=(*waiting.blockers, *long_log(control_topic, str(plane.pipeline.path))),
        findings=(*(str(each) for each in wrong if each), *state.breaks),
    )


@dataclass(frozen=True, slots=True)
class SourcePreview:
    """What the next generation would read."""

    pipeline: str
    bootstrapped: bool
    work: tuple[Work, ...]

    def to_json(self) -> dict[str, Any]:
        parts = [
            {
                "partition": dict(each.partition),
                "from": dict(each.start) if each.start is not None else None,
                "to": dict(each.bound),
                "records": each.size,
            }
            for each in self.work
        ]
        return {"bootstrapped": self.bootstrapped, "batch": parts or None}

    def lines(self) -> Iterator[Shown]:
        if not self.bootstrapped:
            yield Line(f"pipeline {self.pipeline} has not run yet: the first run begins at the source's beginning")
        if not self.work:
            yield Line("nothing to read")
            return
        yield Line(f"next batch: about {records(sum(each.size for each in self.work))}")
        columns = ["source partition", "from", "to", "records"]
        yield from long_table("parts", columns, self.work, _cells)


def _cells(work: Work) -> list[str]:
    start = work.start.json if work.start is not None else "-"
    return [work.partition.json, start, work.bound.json, f"{work.size:,}"]


def preview(plane: SourcePlane) -> SourcePreview:
    """Ask the source. Writes nothing."""
    ran, batch = plane.read_only(), plane.pipeline.config.batch
    work = plane.source.plan(plane.log.state.offsets, Limits(batch.max_records, batch.max_bytes))
    return SourcePreview(plane.pipeline.name, ran, tuple(work))


def offsets_of(state: SourceState) -> tuple[PartitionOffset, ...]:
    """Those that the log knows, sorted by partition."""
    return tuple(PartitionOffset(_plain(partition), _plain(at)) for partition, at in sorted(state.offsets.items()))


def last_batch(state: SourceState) -> LastBatch | None:
    """None before the first one, and where only a checkpoint tells of it."""
    logged = state.generation
    if logged is None:
        return None
    sent = state.of_generation()
    letters = sum(event.dead_letters for event in sent)
    return LastBatch(
        batch_id=logged.event.batch_id,
        started_at=iso(logged.event.written_at_ms),
        slots=logged.event.slots,
        transactions=len(sent),
        records=sum(each.records for event in sent for each in event.written) - letters,
        dropped=sum(event.dropped for event in sent),
        dead_letters=letters,
        ended=state.ended.why if state.ended else None,
        written_by=WrittenBy.from_map(state.ended.written_by) if state.ended else None,
    )


def _look(plane: SourcePlane) -> Waiting:
    """What is pending; where the system contradicts what is stored so that nobody can say, that alone."""
    try:
        return plane.source.waiting(plane.log.state.offsets)
    except FindingError as error:
        return Waiting(0, "unknown", contradiction=error)


def _last_look_ms(state: SourceState) -> int | None:
    return state.generation.event.written_at_ms if state.generation is not None else None


def _plain(values: FlatMap) -> dict[str, Any]:
    return dict(values)
