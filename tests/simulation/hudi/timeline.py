"""Hudi's timeline and Java client as a model: what the real ones do to the files of a table, step by step.

`test_timeline.py` holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from calve.sink_core.hudi.changes.settings import RECORD_KEY
from calve.sink_core.hudi.files.timeline import Instant, Timeline, instant_ms, instant_text
from calve.sink_core.hudi.java.client import UUID, Completion
from calve.sink_core.hudi.java.jvm import HudiRefused
from calve.sink_core.hudi.java.spark import Upsert
from tests.simulation.stage import Stage

REQUESTED, INFLIGHT = "requested", "inflight"


class Fault(Enum):
    """What others have done in the place of a rule that no switch of the product stands for."""

    LOCK_OF_PYTHON = "the lock belongs to the process that asks, not to the JVM that completes"
    ONE_CHAIN = "range jobs have instants of the chain of batches"
    CLOCK_ALONE = "instants are the clock's, whatever was given before"


@dataclass
class ModelTimeline:
    """The timeline of one table; `said` is the extra metadata of completed instants, by path."""

    uuid: str = "table-1"
    instants: list[Instant] = field(default_factory=list[Instant])
    said: dict[Path, Mapping[str, str]] = field(default_factory=dict[Path, Mapping[str, str]])
    rows: dict[Path, tuple[str, ...]] = field(default_factory=dict[Path, tuple[str, ...]])

    def read(self) -> Timeline:
        ordered = sorted(self.instants, key=lambda each: (each.completed or "~", each.requested, each.state))
        return Timeline(tuple(ordered))

    def has(self, requested: str, state: str) -> bool:
        return any(each.requested == requested and each.state == state for each in self.instants)

    def open(self, requested: str, state: str) -> None:
        """Raises HudiRefused for a file that is there: creating one is exclusive."""
        if self.has(requested, state):
            raise HudiRefused(f"File already exists: {requested}.commit.{state}")
        if state == INFLIGHT and not self.has(requested, REQUESTED):
            raise HudiRefused(f"{requested}.commit.requested does not exist")
        self.instants.append(Instant(requested, "commit", state, "", Path(f"{requested}.{state}")))

    def complete(self, requested: str, completed: str, extra: Mapping[str, str], rows: tuple[str, ...]) -> None:
        """Of two that complete an instant both do: the completed name holds the moment. Raises HudiRefused if somebody
        has rolled it back.
        """
        if not self.has(requested, INFLIGHT):
            raise HudiRefused(f"{requested}.inflight does not exist")
        path = Path(f"{requested}_{completed}.commit")
        self.instants.append(Instant(requested, "commit", "completed", completed, path))
        self.said[path], self.rows[path] = dict(extra), rows

    def roll_back_pending(self, requested: str) -> None:
        """What another writer's rollback does to a pending instant: its files stay, as there are no markers."""
        done = any(each.requested == requested and each.completed for each in self.instants)
        if not done:
            self.instants = [each for each in self.instants if each.requested != requested]

    def restore(self, to: str) -> None:
        """To an earlier instant: later ones leave the timeline, with their rows."""
        last = next(each for each in self.read().commits if each.requested == to).completed
        gone = {each.requested for each in self.read().commits if each.completed > last}
        self.instants = [each for each in self.instants if each.requested not in gone]

    @property
    def commits(self) -> tuple[Instant, ...]:
        return self.read().commits

    @property
    def held(self) -> Iterator[str]:
        """The rows of snapshot queries: a file that two completions name is read once."""
        yield from {row: None for each in self.read().commits for row in self.rows[each.path]}


@dataclass
class ModelClient:
    """Hudi's Java client of one process. `locks` are those of all processes, by path. `jvm` as the real client's."""

    stage: Stage
    timeline: Callable[[], ModelTimeline]
    locks: dict[Path, object]
    faults: frozenset[Fault] = frozenset()
    completing: Callable[[], None] = lambda: None
    jvm: Any = None
    last_ms: int = 0

    def __post_init__(self) -> None:
        self.jvm = SimpleNamespace(locked=self.locked, close=lambda: None)

    @contextmanager
    def locked(self, path: Path) -> Generator[None]:
        me = object()
        while self.locks.setdefault(path, me) is not me:
            self.stage.scheduler.sleep(0.05)
        try:
            yield
        finally:
            # The last thing that a JVM does; one that was killed may still complete what has passed its last check.
            if self.locks.get(path) is me:
                del self.locks[path]

    def complete(
        self, folder: Path, properties: Mapping[str, str], done: Completion, check: Callable[[], None]
    ) -> None:
        """In the order of the real one: open, check, complete."""
        del folder, properties
        for state in (REQUESTED, INFLIGHT):
            self.stage.scheduler.give_way()
            if state not in done.opened:
                self.timeline().open(done.instant, state)
        self._complete(done, tuple(file.file_id for file in done.files), check)

    def _complete(self, done: Completion, rows: tuple[str, ...], check: Callable[[], None]) -> None:
        timeline = self.timeline
        self.stage.scheduler.give_way()
        before = timeline()
        check()
        self.completing()
        if timeline() is not before:
            raise HudiRefused("the table is not there any more")
        # Two completions have two moments.
        last = max((instant_ms(each.completed) for each in before.commits), default=0)
        completed = instant_text(max(self.stage.now_ms(), last + 1))
        timeline().complete(done.instant, completed, done.extra, rows)

    def upsert(self, folder: Path, properties: Mapping[str, str], changes: Upsert, check: Callable[[], None]) -> None:
        """Under an instant of its own. Where rows are under a later one Hudi leaves changes out, and says nothing."""
        del folder, properties
        # Of one process none is given twice.
        self.last_ms = max(self.stage.now_ms(), self.last_ms + 1)
        instant = instant_text(self.last_ms)
        latest = max((each.requested for each in self.timeline().commits), default="")
        rows = tuple(path.parent.name.removeprefix("calve-") for path in changes.paths) if latest < instant else ()
        for state in (REQUESTED, INFLIGHT):
            self.stage.scheduler.give_way()
            self.timeline().open(instant, state)
        done = Completion(instant, (), changes.schema, changes.extra, changes.carried, {REQUESTED, INFLIGHT})
        self._complete(done, rows, check)


def properties(timeline: ModelTimeline, key: str = "") -> Mapping[str, str]:
    """Those that a commit asks for; of a table that takes row changes with its `key`."""
    return {
        RECORD_KEY: key,
        UUID: timeline.uuid,
        "hoodie.table.version": "9",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.name": "t",
        "hoodie.table.create.schema": (
            '{"type": "record", "name": "t", "fields": [{"name": "id", "type": ["null", "long"], "default": null}]}'
        ),
    }
