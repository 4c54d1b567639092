"""Several tables at a time: a catalog that is a service is mostly waited for.

A table's commit stands by itself, with its own load and its own swap, so that the order of tables says nothing. What
they share stays in the caller's thread: the control log, which nobody reads on meanwhile, and Spark. A table that needs
either is left to the caller, and done as if it were the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog

from calve.sink_core.errors import CalveError
from calve.sink_core.iceberg.changes.merging import Part, first_part
from calve.sink_core.iceberg.commit.merge import Merging
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.tables.history.shares import Events
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.timing import apart

BREAK_OFF_S = 10.0
"""For tables that have been begun, of a caller that takes no more outcomes, as on Ctrl-C."""

T = TypeVar("T")

Work = Callable[[TableCommitter, str], T]
"""What is done with the table of a name. May raise CalveError."""


class NeedsCaller(Exception):
    """The control log must be read on, or Spark merge."""


@dataclass(frozen=True, slots=True)
class LogAsRead:
    """The control log as far as its owner has read it."""

    state: CommitState
    whole: bool

    def require_whole(self) -> None:
        if not self.whole:
            raise NeedsCaller

    def refresh(self) -> CommitState:
        raise NeedsCaller


@dataclass(frozen=True, slots=True)
class LeavingMerges(Merging):
    """Leaves a table to the caller if any of its changes are to be merged."""

    def first_part(self, name: str, events: Events) -> Part:
        merged = name in self.tables
        if any(first_part([logged], merged=merged).merges for logged in events):
            raise NeedsCaller
        return first_part(events, merged=merged)


@dataclass(slots=True)
class Lane:
    """Tables one after the other, with a catalog of their own, opened at first use: clients of catalogs are not made to
    be shared.
    """

    open_catalog: Callable[[], Catalog]
    catalog: Catalog | None = None
    last: Future[Any] | None = None

    def begin(self, work: Work[T], committer: TableCommitter, name: str, over: Event) -> Future[T | CalveError]:
        """What becomes of a table once those before it are done. `over` keeps it from beginning."""
        before = self.last
        answer = self.last = apart(partial(self._done, before, work, committer, name, over), f"table {name}")
        return answer

    def close(self) -> None:
        # One that is still at work has it for the rest of the process.
        if self.catalog is not None and (self.last is None or self.last.done()):
            self.catalog.close()

    def _done(
        self, before: Future[Any] | None, work: Work[T], committer: TableCommitter, name: str, over: Event
    ) -> T | CalveError:
        wait([before] if before else [])
        if over.is_set():
            raise NeedsCaller
        try:
            catalog = self.catalog = self.catalog or self.open_catalog()
        except CalveError as error:
            return error
        here = replace(committer, catalog=catalog, others=replace(committer.others, catalog=catalog))
        return _outcome(work, here, name)


class TableThreads:
    """As many lanes as tables are worked at a time. A table keeps its lane, whose catalog may remember it."""

    def __init__(self, open_catalog: Callable[[], Catalog], number: int) -> None:
        self._lanes = [Lane(open_catalog) for _ in range(number)]
        self._of: dict[str, Lane] = {}

    def each(
        self, work: Work[T], committer: TableCommitter, names: Collection[str]
    ) -> Iterator[tuple[str, T | CalveError]]:
        """What became of each table, those that were left to the caller last.

        `committer` is for these. Nobody may read its log on until all outcomes have been taken.
        """
        left: list[str] = []
        if min(self.number, len(names)) > 1:
            yield from self._apart(work, committer, names, left)
        else:
            left.extend(names)
        for name in left:
            yield name, _outcome(work, committer, name)

    @property
    def number(self) -> int:
        return len(self._lanes)

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()

    def _apart(
        self, work: Work[T], committer: TableCommitter, names: Collection[str], left: list[str]
    ) -> Iterator[tuple[str, T | CalveError]]:
        log = LogAsRead(committer.log.state, committer.log.whole)
        here = replace(committer, log=log, merging=LeavingMerges(committer.merging.tables))
        over = Event()
        futures = {name: self._lane(name).begin(work, here, name, over) for name in names}
        try:
            for name, future in futures.items():
                try:
                    outcome = future.result()
                except NeedsCaller:
                    left.append(name)
                else:
                    yield name, outcome
        finally:
            # Should the caller break off: what has begun comes to its end first, unless nobody answers it. A commit
            # that lands late does no harm.
            over.set()
            wait(futures.values(), timeout=BREAK_OFF_S)

    def _lane(self, name: str) -> Lane:
        return self._of.setdefault(name, self._lanes[len(self._of) % self.number])


def _outcome(work: Work[T], committer: TableCommitter, name: str) -> T | CalveError:
    try:
        return work(committer, name)
    except CalveError as error:
        return error
