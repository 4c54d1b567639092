"""`Source`: what somebody writes who wants to read from a system of their own, and the values it gives and gets.

Calve calls it like this, and validates all it returns (`opening.py`):

    driver  waiting → prepare → plan → (tasks) → acknowledge
    task    read → update_offsets, before each transaction ends

A source is made on each host by its class and its options, holds what connections it needs, and is closed at the end.
It never writes to Kafka and stores nothing: records and offsets go into one transaction that Calve makes, and the
offset of a source partition is the truth about it. `docs/sources.md` has an example of thirty lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import FindingError
from calve.sink_core.source.flat_map import FlatMap, Primitive

Stored = Mapping[FlatMap, FlatMap]
"""Source offsets by source partition, as they were committed last."""

Update = Mapping[FlatMap, FlatMap | None]
"""Source offsets to store; None takes a partition's offset away, by a tombstone."""


FORGET = FlatMap({"forget": True})
"""The bound of `Work` for which nothing is read: the offset of its partition goes."""


class Record(NamedTuple):
    """A record for Kafka. `partition` None is that of the key, `timestamp_ms` None the time of sending. `where` is the
    place that a dead letter names if the topic does not take it, beside its source partition.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    where: FlatMap | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """What can't be made a record: as it was read, and why. It goes to the dead letters in the same transaction."""

    raw: bytes
    error: str
    where: FlatMap


@dataclass(frozen=True, slots=True)
class Rows:
    """What was read since the last: its records in their order, and the source `offset` behind them.

    `bad` and `dropped` rows, of which there is no record, count as read: their offset moves with the others'. A `Rows`
    without records moves the offset alone.
    """

    offset: FlatMap
    records: Sequence[Record] = ()
    bad: Sequence[BadRow] = ()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What one task reads of a source partition: from behind `start` (None: from its beginning) up to `bound`.

    `bound` is fixed by the plan, in whatever form the source understands; a task that is tried again reads as far.
    `size` estimates records, by which it is decided where tasks run. `whole` work is one transaction, however much it
    is: it is all there or nothing is, and need not read the same again when it is tried again.
    """

    partition: FlatMap
    start: FlatMap | None
    bound: FlatMap
    size: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a plan may ask for: records, and bytes as the source has them, both estimates. `until` is that of
    `Waiting` when the run began, None where there is none: a system that never stops would never be caught up with.
    """

    max_records: int
    max_bytes: int
    until: Primitive = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What there is to read: `records` as far as it is known, `what` says it to people ("3 files", "12 MiB of WAL").

    `held_bytes` is what the system keeps for this source until it acknowledges, None where it keeps nothing. `until`
    says how far all of this goes, in the source's own words. `since_ms` is when the oldest of it came, None where
    nothing waits, or nobody knows. `contradiction` is what `prepare` would raise for these offsets. `blockers` are
    tables, files and the like that can't be read for now, which `records` does not count.
    """

    records: int
    what: str
    held_bytes: int | None = None
    until: Primitive = None
    since_ms: int | None = None
    contradiction: FindingError | None = None
    blockers: Sequence[Blocker] = ()


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a source gives every record exactly once; where it doesn't, `why_not` says to people under which
    condition it would.
    """

    exactly_once: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that records may go to, made before the first of them if it is missing; `partitions` None is the
    cluster's own number.
    """

    name: str
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict[str, str])


class Source(Protocol):
    """A system to read from.

    Methods raise RetriableError for what may go through later, TerminalError and its kinds for what needs a person.
    Errors that are no CalveError stop the run and name the source: OSError, of which ConnectionError and TimeoutError
    are, is taken for the first kind, all else for the second.

    `check(self) -> None` may be there too: `calve check` calls it to try what reading needs.
    """

    @property
    def fingerprint(self) -> str:
        """What is read, the same on every host and without secrets: a pipeline is bound to it at first use."""
        ...

    def topics(self) -> Sequence[Topic]:
        """All that records of the next plan may go to."""
        ...

    def prepare(self, stored: Stored) -> None:
        """Make what reading needs, such as a replication slot, and raise FindingError where the system contradicts
        what is stored. Called once a generation leads, before its plan: nobody else is at work.
        """
        ...

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        """What is to be read next; empty if nothing waits. A source partition is in at most one `Work`."""
        ...

    def read(self, work: Work) -> Iterator[Rows | Blocker]:
        """Its records, in order, up to the bound. Each `Rows` may end a transaction.

        A `Blocker` ends it: this partition can't be read on for now, and all others are. Of `whole` work nothing then
        counts.
        """
        ...

    def update_offsets(self, pending: Stored) -> Update | None:
        """Called with what is about to be stored, in the transaction that does: also when that is nothing (KIP-910).

        What it returns is stored beside it, or in its place; None takes an offset away, and what it leaves out stays as
        it is. None or nothing leaves all as it is. It must not go beyond what was read. If it raises, nothing of the
        transaction is stored.
        """
        ...

    def acknowledge(self, committed: Stored) -> None:
        """Called with offsets that were read back as committed: the system may forget what lies before them.

        Called again after a crash, with the same or later ones, and never by two runs in an order that goes backwards.
        """
        ...

    def waiting(self, stored: Stored) -> Waiting:
        """What there is to read, cheaply: the sensor asks every few seconds."""
        ...

    def exactly_once(self) -> Support:
        """Whether it gives every record exactly once, as it is set up."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
