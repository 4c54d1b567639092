"""What the tasks on tables have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Protocol, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.config.table_formats import ICEBERG
from calve.sink_core.control.maintenance_report import MaintenanceReport, OnProgress, TaskOutcome
from calve.sink_core.errors import CalveError, RetriableError
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile, unreachable_as_ours
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.maintenance.owned import why_not_owned
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.timing import Deadline, apart

LISTING, CLEANING = 0.5, 0.9
"""The share of the time for orphans that is over when no table's files are waited for any more, and from which on none
is cleaned.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What `rewrite_data_files` did. `failed` files stay as they were."""

    files: int
    into: int
    bytes: int
    failed: int


class Procedures(Protocol):
    """What an engine does to the tables of one catalog. All raise CommitConflict and RetriableError."""

    def rewrite_data_files(self, table: str, *, strategy: str, where: str, options: Mapping[str, str]) -> Rewritten:
        """Join the small files of the partitions that `where` selects; "" selects all."""
        ...

    def rewrite_manifests(self, table: str) -> None: ...

    def expire_snapshots(self, table: str, *, older_than_ms: int, retain_last: int) -> dict[str, int]:
        """Expire snapshots before a time (ms since the epoch); the numbers of files deleted, by kind."""
        ...

    def remove_orphan_files(self, table: str, files: Iterable[str], *, dry_run: bool) -> list[str]:
        """Delete those of `files` that nothing in the table's metadata names; their paths, deleted or not."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """The tables of one pipeline and the means to work on them; `tables` narrows to some.

    Under `dry_run` tasks say what they would do, and do nothing. `wanted`: somebody has asked for the task, by the
    pipeline file or by name, so that tables of others are rewritten too. An engine is started by the first procedure
    that is called, so that nothing to do costs nothing.
    """

    session: Session
    procedures: Procedures
    on_progress: OnProgress
    tables: Sequence[str] = ()
    dry_run: bool = False
    wanted: bool = True

    def each(self, task: Callable[[Table, str], TaskOutcome]) -> MaintenanceReport:
        """`task` for each Iceberg table that exists; one table's failure does not stop the others."""
        report = MaintenanceReport()
        for name in self.tables or self.session.pipeline.table_names:
            if self.session.pipeline.format_of(name) != ICEBERG:
                continue
            try:
                table = load_if_there(self.session.catalog, name)
                if table is not None:
                    with unreachable_as_ours(f"reading metadata of {name}"):
                        report.done.append(task(table, name))
            except CalveError as error:
                report.failed[name] = error
        return report

    def load(self, name: str) -> Table:
        """The table as it is now. Raises TableUnusable if it has been dropped since."""
        table = load_if_there(self.session.catalog, name)
        if table is None:
            raise dropped_meanwhile(name)
        return table

    def orphan_deadlines(self) -> tuple[Deadline, Deadline]:
        """For listing and cleaning, by the share of `maintenance.max_duration` that the tables of one format have."""
        pipeline = self.session.pipeline
        within_s = pipeline.config.maintenance.max_duration / (2 if pipeline.has_timelines else 1)
        return Deadline.after(LISTING * within_s), Deadline.after(CLEANING * within_s)

    def left_for_time(self, name: str) -> TaskOutcome:
        """What there is to say of a table whose orphans there is no time for."""
        return TaskOutcome("orphans", name, "left to the next run: maintenance.max_duration is nearly over", False)

    def why_left(self, table: Table, name: str) -> str | None:
        """Why the files of a table are not rewritten, None if they are. One with row changes gets slower without it."""
        if self.wanted or name in self.session.pipeline.changing or why_not_owned(table, self.owned(name)) is None:
            return None
        return "not created by Calve, and nobody has asked for it: by its name, owned: true or under maintenance"

    def owned(self, name: str) -> bool | None:
        """What the pipeline file says of a table; None for ledger and dead letters, which it does not list."""
        return next((table.owned for table in self.session.pipeline.tables if table.name == name), None)


def listed_in_time(listings: Mapping[str, Callable[[], T]], until: Deadline) -> dict[str, T | CalveError]:
    """What the listing of each table's files gave, or why there is none.

    One after the other, but that nobody waits for a table for longer than its share of the time: its listing goes on
    beside those of the others, and is looked for at the end.
    """
    asked = dict[str, Future[T]]()
    for number, (name, listing) in enumerate(listings.items()):
        asked[name] = apart(listing, "calve-orphans")
        wait([asked[name]], max(0.0, until.left_s) / (len(listings) - number))
    wait(asked.values(), max(0.0, until.left_s))
    return {name: _answer(name, future) for name, future in asked.items()}


def _answer(name: str, future: Future[T]) -> T | CalveError:
    if not future.done():
        return RetriableError(
            f"{name}: its files could not be listed in the time that maintenance.max_duration leaves for it",
            hint="raise maintenance.max_duration",
            code=Code.TOO_MANY_FILES,
        )
    try:
        return future.result()
    except CalveError as error:
        return error


def now_ms() -> int:
    return time.time_ns() // 1_000_000
