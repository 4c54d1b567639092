"""One batch from plan to publish; its crash points are those of the steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.schema import Schema

from calve.sink_core.control.blockers import open_transactions, silent_ones
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import Paused
from calve.sink_core.control.keep_alive import is_due
from calve.sink_core.control.letters import NONE, Letters
from calve.sink_core.control.rounds import OnProgress, Progress
from calve.sink_core.control.status import Blocker
from calve.sink_core.counts import Dropped, not_stored
from calve.sink_core.errors import CalveError
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile
from calve.sink_core.iceberg.format.table import iceberg
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import Silent, describe_topics, largest_batch
from calve.sink_core.offsets import Offsets, Position
from calve.sink_core.report import WARNING, Line
from calve.sink_core.sink.dead_letters.topic import dead_letters_of
from calve.sink_core.sink.loop.complete import data_complete, data_written
from calve.sink_core.sink.loop.decision import decide
from calve.sink_core.sink.loop.fitting import give
from calve.sink_core.sink.loop.held import Held, HeldBack, held_back
from calve.sink_core.sink.loop.job import Publication, carry_out, give_way, timed
from calve.sink_core.sink.loop.planning import Planned, Planner, Source
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.loop.writing import write_batch
from calve.sink_core.sink.range_jobs.look import ledger_rows
from calve.sink_core.sink.range_jobs.missing import check_new, check_stated
from calve.sink_core.tables.batch import BatchPlan, WrittenBatch
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.internal import LEDGER_SCHEMA
from calve.sink_core.tasks import WrittenBy
from calve.sink_core.wording import by_text, dropped_text


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch that was planned and written. `seconds` of wall time by step.

    `unrouted` records no table takes, `filtered` ones the SQL of every table that takes them leaves out; `left_out` are
    others, by the table whose rule or SQL leaves them out. `dropped` are fields that tables have no column for.
    `written_by` is the engine.

    `given_up`: it is stale because orphan removal gave it up; the next batch of the run is planned in its place.
    """

    batch_id: str
    verdict: Verdict
    why: str
    ranges: tuple[tuple[str, int, int, int], ...]
    records: int
    dead_lettered: int
    tombstones: int
    gaps: int
    value_bytes: int
    rows: dict[str, int]
    lag_after: int
    seconds: dict[str, float]
    given_up: bool = False
    unrouted: int = 0
    filtered: int = 0
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])
    written_by: WrittenBy | None = None

    @property
    def not_stored(self) -> dict[str, int]:
        """As `not_stored` of `sink_core/tables/batch`."""
        return not_stored(self.dead_lettered, self.filtered, self.unrouted, self.tombstones)

    @property
    def published(self) -> bool:
        return self.verdict is not Verdict.STALE

    @property
    def rest_s(self) -> float:
        """Seconds that the records pending after it take at its rate, in offsets a second."""
        read = sum(end - start for *_, start, end in self.ranges)
        return self.lag_after * sum(self.seconds.values()) / read if read else 0.0

    def lines(self) -> Iterator[Line]:
        """What became of it, and what is still pending."""
        seconds = ", ".join(f"{step} {spent_s:.2f} s" for step, spent_s in self.seconds.items())
        others = "".join(f", {number:,} {what}" for what, number in self.not_stored.items())
        rest = f"; {self.lag_after:,} offsets wait, {self.rest_s:,.0f} s at this rate" if self.lag_after else ""
        moved = f"{self.verdict.value}: {self.records:,} records{others} ({seconds})"
        yield Line(f"batch {self.batch_id}: {moved}{by_text(self.written_by)}{rest}")
        for table, dropped in self.dropped.items():
            yield Line(f"    {table} has no column for {dropped_text(dropped)}", WARNING)


class Ingest:
    """Plans, writes and publishes batches of one pipeline."""

    def __init__(self, session: Session, *, on_progress: OnProgress | None = None) -> None:
        self._session = session
        self._progress = on_progress or (lambda _progress: None)
        self._planner = Planner(session)
        self._seen = set[str]()
        self._held = Held(session)
        self._until: Offsets | None = None
        self._source: Source | None = None
        self.lag = 0
        """Offsets that waited at the last look."""

    @property
    def blockers(self) -> Sequence[Blocker]:
        """Tables that can't be loaded, topics and partitions that give no answer, and open transactions of the others,
        by the last look.
        """
        session, source = self._session, self._source
        if source is None:
            return ()
        held = held_back(session, self._held.failed, source.lag())
        silent = silent_ones(source.silent, session.log.state.silent_ms)
        return *held, *silent, *open_transactions(session.admin, session.pipeline.kafka.properties, source.answering)

    @property
    def held(self) -> Mapping[str, CalveError]:
        """The tables that batches go without, each with why."""
        return self._held.failed

    def bind(self) -> None:
        """Bind the pipeline. That is all for a paused one: it can be paused before anything is read for it."""
        self._progress(Progress("start", "binding the pipeline"))
        self._session.bind()
        if not self._session.engine.is_up and not self.paused:
            # Spark starts while tables are looked at. What is wrong is told by who looks closer.
            with suppress(CalveError):
                if pending := self._planner.pending_by_log():
                    self._session.engine.begin_start(pending)

    def prepare(self) -> None:
        """Create missing tables and put the start positions in place. Harmless when done before."""
        self._progress(Progress("start", "looking at the tables"))
        check_stated(self._session.pipeline.tables, self._session.log.state)
        if (topic := self._session.pipeline.dead_letter_topic) is not None:
            describe_topics(self._session.admin, [topic], timeout_s=ADMIN_TIMEOUT_S)
        # Before anything is created: a table that was dropped must not come back as if it were new.
        self._held.look(self._planner.first_coverage)
        wanted = self._held.others(self._session.pipeline.tables_of(()))
        self._session.create_missing(wanted)
        self._seen.update(wanted)
        # A ledger of an earlier version lacks columns.
        self._session.lake.change_schema(self._session.pipeline.ledger_table, LEDGER_SCHEMA, ("add_column",))
        self._look()

    def next_batch(self) -> BatchReport | None:
        """One batch from plan to publish; None if the pipeline is paused or has what waited when the first batch was
        planned, or the first one after `go_on`: a topic that never stops would never be caught up with.

        Topics are left out whose tables can't be loaded; raises why if there are no others.
        """
        while True:
            with suppress(HeldBack):
                return self._next_batch()

    def _next_batch(self) -> BatchReport | None:
        seconds: dict[str, float] = {}
        self._progress(Progress("plan", "reading positions and end offsets"))
        with timed(seconds, "plan"):
            planned = self._plan()
        if planned is None:
            return None

        def write() -> tuple[WrittenBatch, Publication]:
            written, letters = self._write(planned, seconds)
            return written, self._publication(planned, written, letters)

        written, decision = carry_out(self._session, planned.plan.batch_id, write, self._progress, seconds=seconds)
        assert decision is not None
        return _report(planned, written, decision, seconds)

    def _write(self, planned: Planned, seconds: dict[str, float]) -> tuple[WrittenBatch, LoadedTable]:
        """The batch's files, and the table of its dead letters."""
        plan, engine = planned.plan, self._session.engine
        tasks = "1 task" if len(plan.tasks) == 1 else f"{len(plan.tasks)} tasks"
        starting = "; starting Spark, which takes some seconds" if engine.begin_start(plan.offsets) else ""
        of = f" of {self.lag:,}" if self.lag > plan.offsets else ""
        what = f"{plan.offsets:,}{of} offsets in {tasks}{starting}"
        self._progress(Progress("write", what, plan.batch_id, plan.offsets))
        # Done while the tasks work.
        self._session.publisher.connect()
        with timed(seconds, "load tables"):
            tables = self._load_tables(plan)
        with timed(seconds, "write"):
            written = write_batch(
                plan,
                pipeline=self._session.pipeline,
                tables=tables,
                engine=engine,
                change=partial(self._change_tables, plan),
                left_out=self._held.left_out,
            )
        return written, tables[self._session.pipeline.dead_letter_table]

    def keep_alive(self) -> None:
        """Re-commit the positions of a pipeline that has published nothing for a while (see `KEEP_ALIVE_AFTER_S`)."""
        if is_due(self._session.log.state, time.time_ns() // 1_000_000):
            self._progress(Progress("publish", "keeping the group's offsets from expiring"))
            self._session.publisher.keep_alive()

    def go_on(self) -> None:
        """Have the next batches read the records that are pending when the next one is planned."""
        self._until = None

    def look(self) -> int:
        """Offsets that wait now, without those that are held back."""
        self._held.look_again(self._planner.first_coverage)
        return self._looked(self._planner.look(self._silent))

    @property
    def paused(self) -> Paused | None:
        """The pause in effect, by what was read of the log so far."""
        return self._session.log.state.paused

    def _plan(self) -> Planned | None:
        """None if there is nothing to read, or the pipeline is paused.

        The pause is looked for before `START_COMMIT` is written and once more in what was read of the log after it:
        whoever pauses and then reads the log so finds the batch there, or the batch gives way.
        """
        self._held.look_again(self._planner.first_coverage)
        source = self._look()
        planned = None if self.paused else self._planner.next(source, self._readable(source))
        if planned is not None:
            self._source = planned.source
        if planned is not None and self._until is None:
            self._until = planned.source.ends
        if planned is not None and self.paused:
            give_way(self._session, planned.plan.batch_id)
            return None
        return planned

    def _readable(self, source: Source) -> Offsets | None:
        """Up to where a batch may read: nothing of topics that are held back; None for all there is."""
        held = self._held.topics
        if not held:
            return self._until
        ends = source.ends if self._until is None else self._until
        return {at: end for at, end in ends.items() if at.topic not in held}

    def _look(self) -> Source:
        """The source as it is, with the start positions in place once there is a topic: at first use all that is named
        has to answer, as nobody could tell later where one begins that did not.
        """
        if self._session.log.state.last_publish is None:
            source = self._planner.look()
            if self._session.log.state.last_publish is None and source.topics:
                self._planner.bootstrap(source)
        source = self._planner.look(self._silent)
        self._looked(source)
        return source

    def _looked(self, source: Source) -> int:
        held = self._held.topics
        self._source, self.lag = source, sum(lag for at, lag in source.lag().items() if at.topic not in held)
        return self.lag

    @property
    def _silent(self) -> Silent:
        """What gave no answer at the last look."""
        return self._source.silent if self._source is not None else Silent()

    def _load_tables(self, plan: BatchPlan) -> dict[str, LoadedTable]:
        """The tables that the batch may feed as they are now, those of new topics created; a finding on one of them
        stops before anything is written. Raises HeldBack if one can't be loaded.
        """
        session, before = self._session, len(self._held.failed)
        names = self._held.others(self._fed_by(plan))
        loaded = dict(self._held.sorted_out(session.each_loaded(names)))
        new = [name for name, found in loaded.items() if found is None and name not in self._seen]
        if new:
            found = (table for table in session.pipeline.tables if table.name in new)
            check_new(found, session.log.state, partial(ledger_rows, session))
            session.create_missing(new)
            loaded |= self._held.sorted_out(session.each_loaded(new))
        self._seen.update(names)
        gone = sorted(name for name, found in loaded.items() if found is None)
        if gone:
            raise dropped_meanwhile(", ".join(gone))
        loaded |= self._held.sorted_out(session.each_loaded(self._behind(loaded)))
        found = {name: table for name, table in loaded.items() if table}
        ready = dict(self._held.sorted_out(self._made_ready(found)))
        if len(self._held.failed) > before:
            self._held.check()
            raise HeldBack
        return ready

    def _fed_by(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._session.pipeline.tables_of({part.topic for part in plan.ranges if part.span})

    def _made_ready(self, loaded: Mapping[str, LoadedTable]) -> Iterator[tuple[str, LoadedTable | CalveError]]:
        settings = {table.name: table for table in self._session.pipeline.tables}
        for name, table in loaded.items():
            try:
                table.check_usable()
                yield name, (table.ready(settings[name]) if name in settings else table)
            except CalveError as error:
                yield name, error

    def _behind(self, loaded: Mapping[str, LoadedTable | None]) -> list[str]:
        """Commits what is published to tables whose rows a batch's changes are held against, and gives their names.

        So these have every batch before this one; whoever publishes one in between makes this one stale.
        """
        state = self._session.log.state
        tables = self._session.pipeline.tables
        looking = {t.name for t in tables if t.stops_moved_keys or (t.order_by is not None and not t.merged)}
        behind = [
            name
            for name, found in loaded.items()
            if name in looking and found and state.pending(name, found.uuid, found.stored_offset)
        ]
        committed = dict(self._held.sorted_out(self._session.commits(behind)))
        return [name for name in behind if name in committed]

    def _change_tables(self, plan: BatchPlan, wanted: Mapping[str, Schema]) -> dict[str, LoadedTable]:
        """Give tables what records need, as far as their `evolve` allows, and load all as `_load_tables` does."""
        give(self._session, wanted, self._progress, new=wanted.keys() - self._seen)
        return self._load_tables(plan)

    def _letters(self, written: WrittenBatch, table: LoadedTable) -> Letters:
        """What the dead-letter topic is to be told of the batch, if there is such a topic."""
        session, topic = self._session, self._session.pipeline.dead_letter_topic
        [output] = [each for each in written.tables if each.table == session.pipeline.dead_letter_table]
        if topic is None or not output.rows:
            return NONE
        most = largest_batch(session.admin, topic, timeout_s=ADMIN_TIMEOUT_S)
        return dead_letters_of(output, iceberg(table), topic, most, session.pipeline.name)

    def _publication(self, planned: Planned, written: WrittenBatch, dead_letters: LoadedTable) -> Publication:
        session, plan = self._session, planned.plan
        events = [
            *data_written(written, session.pipeline_id),
            data_complete(
                written,
                pipeline_id=session.pipeline_id,
                high_watermarks=planned.high_watermarks,
                timestamp_types=planned.source.timestamp_types,
                ledger_table=session.pipeline.ledger_table,
                silent=planned.source.silent,
                held=self._held.failed.keys() & {*self._fed_by(plan)} - self._held.left_out,
            ),
        ]
        return Publication(
            f"{written.records:,} records",
            events,
            {r.at: Position(r.end, plan.batch_id) for r in plan.ranges},
            plan.topic_ids,
            partial(decide, plan),
            self._letters(written, dead_letters),
        )


def _report(planned: Planned, written: WrittenBatch, decision: Decision, seconds: dict[str, float]) -> BatchReport:
    plan = planned.plan
    return BatchReport(
        batch_id=plan.batch_id,
        verdict=decision.verdict,
        why=decision.why,
        ranges=tuple((r.topic, r.partition, r.start, r.end) for r in plan.ranges if r.span),
        records=written.records,
        dead_lettered=sum(c.dead_lettered for c in written.counts),
        tombstones=sum(c.tombstones for c in written.counts),
        gaps=sum(c.gaps for c in written.counts),
        value_bytes=written.value_bytes,
        rows={output.table: output.rows for output in written.tables},
        lag_after=sum(planned.source.lag().values()) - (0 if decision.given_up else plan.offsets),
        seconds=seconds,
        given_up=decision.given_up,
        unrouted=sum(c.unrouted for c in written.counts),
        filtered=sum(c.filtered for c in written.counts),
        left_out=dict(sum((Counter(c.left_out) for c in written.counts), Counter[str]())),
        dropped=written.dropped,
        written_by=written.written_by,
    )
