"""Several tables at a time: a catalog that is a service is mostly waited for.

A table's commit stands by itself, with its own load and its own swap, so that the order of tables says nothing. What
they share stays in the caller's thread: the control log, which nobody reads on meanwhile, and Spark. A table that needs
either is left to the caller, and done as if it were the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyiceberg.catalog import Catalog

from calve.sink_core.errors import CalveError
from calve.sink_core.iceberg.changes.merging import Part, first_part
from calve.sink_core.iceberg.commit.merge import Merging
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.tables.history.shares import Events
from calve.sink_core.tables.log.state import CommitState

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
class TableThread:
    """A thread with a catalog of its own, opened at first use: clients of catalogs are not made to be shared."""

    open_catalog: Callable[[], Catalog]
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="tables"))
    catalog: Catalog | None = None

    def begin(self, work: Work[T], committer: TableCommitter, name: str) -> Future[T | CalveError]:
        return self.thread.submit(self._done, work, committer, name)

    def close(self) -> None:
        self.thread.shutdown(cancel_futures=True)
        if self.catalog is not None:
            self.catalog.close()

    def _done(self, work: Work[T], committer: TableCommitter, name: str) -> T | CalveError:
        try:
            catalog = self.catalog = self.catalog or self.open_catalog()
        except CalveError as error:
            return error
        here = replace(committer, catalog=catalog, others=replace(committer.others, catalog=catalog))
        return _outcome(work, here, name)


class TableThreads:
    """As many lanes as tables are worked at a time. A table keeps its lane, whose catalog may remember it."""

    def __init__(self, open_catalog: Callable[[], Catalog], number: int) -> None:
        self._lanes = [TableThread(open_catalog) for _ in range(number)]
        self._of: dict[str, TableThread] = {}

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
        apart = replace(committer, log=log, merging=LeavingMerges(committer.merging.tables))
        futures = {name: self._lane(name).begin(work, apart, name) for name in names}
        try:
            for name, future in futures.items():
                try:
                    outcome = future.result()
                except NeedsCaller:
                    left.append(name)
                else:
                    yield name, outcome
        finally:
            # Should the caller break off: what has begun comes to its end first.
            for future in futures.values():
                future.cancel()
            wait(futures.values())

    def _lane(self, name: str) -> TableThread:
        return self._of.setdefault(name, self._lanes[len(self._of) % self.number])


def _outcome(work: Work[T], committer: TableCommitter, name: str) -> T | CalveError:
    try:
        return work(committer, name)
    except CalveError as error:
        return error
