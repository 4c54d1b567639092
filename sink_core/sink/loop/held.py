"""Tables that can't be loaded, created, changed or written: the topics that feed them are held back, no others.

A record goes to all of its tables or to none, and none is decoded for a table whose schema nobody knows. So nothing of
such a topic is read until the table is well again, or somebody takes it out of the file: nothing is lost, and nothing
has to be made up for. A table with `history: replay` needs no such wait for a topic that feeds others too: it is left
out of batches, and gets them as a table does that was added.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TypeVar

from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.control.blockers import READ_S
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.iceberg.commit.other_pipelines import Coverage
from calve.sink_core.kafka.pending import first_timestamps
from calve.sink_core.offsets import Offsets
from calve.sink_core.sink.loop.complete import reason_of
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.log.events import CommitComplete
from calve.sink_core.timing import Deadline

AGAIN_AFTER_S = 60.0
"""A table that could not be loaded or committed to is tried again by a run that goes on for longer than this."""

T = TypeVar("T")


class HeldBack(Exception):
    """Tables could not be loaded for a batch: what is left is planned anew."""


class Held:
    """The tables that a run does without, each with why. The pipeline's ledger and dead letters it can't do without."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._failed: dict[str, CalveError] = {}
        self._again = Deadline.after(0.0)
        self.news = False
        """Whether a table has failed since this was set to False."""

    @property
    def failed(self) -> Mapping[str, CalveError]:
        """Why, by table; each error says which topics are `held`. All else goes on, so that trying again costs little,
        and nobody has to say that a table is well again.
        """
        topics = topics_held(self._session.pipeline, self._failed)
        for name, error in self._failed.items():
            error.held, error.waits_for_answer = topics[name], False
        return self._failed

    @property
    def topics(self) -> set[str]:
        """Those of which nothing is read."""
        return {topic for topics in topics_held(self._session.pipeline, self._failed).values() for topic in topics}

    @property
    def left_out(self) -> set[str]:
        """Tables that go without what other tables get, and have it read again for them."""
        return {t.name for t in self._session.pipeline.tables if t.name in self._failed and _makes_up(t)}

    def others(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._failed]

    def sorted_out(self, outcomes: Iterable[tuple[str, T | CalveError]]) -> Iterator[tuple[str, T]]:
        """Those that are no failure; what failed is held back from here on, and found by `check`. Raises findings, and
        what stands against ledger or dead letters.
        """
        internal = {self._session.pipeline.ledger_table, self._session.pipeline.dead_letter_table}
        for name, outcome in outcomes:
            if not isinstance(outcome, CalveError):
                yield name, outcome
            elif isinstance(outcome, FindingError) or name in internal:
                raise outcome
            else:
                # Without its frames, which hold clients.
                self._failed[name] = copy(outcome)
                self._again = Deadline.after(AGAIN_AFTER_S)
                self.news = True

    def sort_out(self, outcomes: Iterable[tuple[str, CalveError | None]]) -> None:
        """As `sorted_out`, of what leaves nothing but failures."""
        for _ in self.sorted_out(outcomes):
            pass

    def check(self) -> None:
        """Raise the first failure if no topic is left to read."""
        if self._failed and self.topics.issuperset(self._session.pipeline.topics):
            with suppress(CalveError):
                self.say()
            raise next(iter(self._failed.values()))

    def create(self, names: Collection[str]) -> None:
        """Create tables that are missing, the pipeline's own behind those that it is for."""
        settings, wanted = self._settings, self.others(names)
        for group in ([n for n in wanted if n in settings], [n for n in wanted if n not in settings]):
            self.sort_out(self._session.each_created(group))
            self.check()

    def say(self) -> None:
        """Leave in the log which tables batches go without, if it says otherwise: `status` knows only what it can see
        of a table itself.
        """
        log = self._session.log
        state, held = log.state, {name: reason_of(error) for name, error in self._failed.items()}
        if held != state.held and log.whole:
            log.append(
                CommitComplete(
                    pipeline_id=self._session.pipeline_id,
                    commit_id=str(uuid.uuid4()),
                    through_offset=state.committed_through,
                    tables_behind=tuple(sorted(state.reasons)),
                    valid_through_ms=state.valid_through_ms(state.committed_through),
                    reasons=state.reasons,
                    held=held,
                )
            )

    def look(self, first_coverage: Callable[[], Coverage]) -> None:
        """Look at all tables, those first that nothing goes without. `first_coverage` as in `TableCommitter`."""
        names = sorted(self._session.pipeline.table_names, key=self._settings.__contains__)
        self.sort_out((name, self._outcome(name, first_coverage)) for name in names)
        self.check()

    def look_again(self, first_coverage: Callable[[], Coverage]) -> None:
        """Look at the tables that failed, now and then; what is well again is held back no more."""
        if self._failed and self._again.passed:
            self._again = Deadline.after(AGAIN_AFTER_S)
            for name, _ in self.sorted_out((name, self._outcome(name, first_coverage)) for name in [*self._failed]):
                del self._failed[name]

    @property
    def _settings(self) -> dict[str, TableSettings]:
        return {table.name: table for table in self._session.pipeline.tables}

    def _outcome(self, name: str, first_coverage: Callable[[], Coverage]) -> CalveError | None:
        try:
            table = self._session.check_table(name, first_coverage)
            if table is not None and name in self._settings:
                check_writable(table, self._settings[name])
        except CalveError as error:
            return error
        return None


def check_writable(table: LoadedTable, settings: TableSettings) -> None:
    """Raise TableUnusable for a data table that no batch can be written for."""
    table.check_usable()
    table.row_changes(settings)


def topics_held(pipeline: SinkPipeline, tables: Collection[str]) -> dict[str, tuple[str, ...]]:
    """By table that can't be loaded the topics that are held back for it. Pure."""
    taking = {topic: [t for t in pipeline.tables if t.rule.takes_topic(topic)] for topic in pipeline.topics}
    beside = {topic for topic, takers in taking.items() if any(t.name not in tables for t in takers)}

    def held(table: TableSettings) -> tuple[str, ...]:
        mine = (topic for topic, takers in taking.items() if table in takers)
        return tuple(topic for topic in mine if not (_makes_up(table) and topic in beside))

    return {table.name: held(table) for table in pipeline.tables if table.name in tables}


def held_back(session: Session, failed: Mapping[str, Blocker], waiting: Offsets) -> Iterator[Blocker]:
    """The tables that batches go without, each with its pending records and since when: the oldest of these, or what
    was published and is not in it. `waiting` are the lags.
    """
    topics = topics_held(session.pipeline, failed)
    positions = session.log.state.positions() or {}
    held = {at: lag for at, lag in waiting.items() if lag and any(at.topic in names for names in topics.values())}
    begins = {at: positions.get(at, 0) for at in held}
    times = first_timestamps(session.pipeline.kafka.properties, begins, timeout_s=READ_S)
    for name, why in failed.items():
        mine = topics.get(name, ())
        known = [*(ms for at, ms in times.items() if at.topic in mine), session.log.state.behind_since_ms(name)]
        since_ms = min((ms for ms in known if ms is not None), default=None)
        records = sum(lag for at, lag in held.items() if at.topic in mine)
        waits = f"; {records:,} records of {', '.join(mine)} wait for it" if records else ""
        yield replace(why, why=f"{why.why}{waits}", since_ms=since_ms)


def _makes_up(table: TableSettings) -> bool:
    """Whether it gets by range jobs what was published without it."""
    return table.explicit and table.history == "replay"
