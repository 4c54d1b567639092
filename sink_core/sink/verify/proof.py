"""`verify`: prove from the ledger, the control topic and the tables that each source offset was accounted for once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from calve.sink_core.errors import TableUnusable
from calve.sink_core.garbage import infrequent_gc
from calve.sink_core.offset_sets import by_partition
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, has_kafka_column
from calve.sink_core.sink.ledger import stored_offsets as offsets
from calve.sink_core.sink.ledger.rows import COLUMNS, Ledger, LedgerRow, rows_of, with_former
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.selected import moved_by
from calve.sink_core.sink.verify import batches, jobs, since
from calve.sink_core.sink.verify.history import Published
from calve.sink_core.sink.verify.recount import recount
from calve.sink_core.sink.verify.world import World, look
from calve.sink_core.tables.format.proven import NoReader, Proven, Rows, Wanted
from calve.sink_core.tables.history import contents
from calve.sink_core.tables.log.range_parts import RangeJob
from calve.sink_core.tables.proof import Evidence, VerifyReport

_DEAD_LETTER_COLUMNS = ("topic", "partition", "offset")


def verify(
    session: Session,
    *,
    deep: bool,
    since_ms: int | None = None,
    on_progress: Callable[[str], None] | None = None,
    within_s: float | None = None,
) -> VerifyReport:
    """Check log, positions, ledger and tables against each other; with `deep` each row's source offset as well.

    With `since_ms` only batches planned then or later are looked at, by the broker's time in the ledger; the log is
    read as a whole, as ever. Violations are in the report, never raised. Raises Unreachable if a part does not answer,
    ConfigError if it refuses, RetriableError after `within_s`. Memory grows with batches, partitions and files; the
    deep check holds a bit per source offset at most. Safe beside running pipelines: what is published meanwhile is
    stated as uncommitted.
    """
    evidence = Evidence(on_progress, within_s)
    with infrequent_gc():
        proof = _Proof(session, look(session, evidence), evidence, since_ms)
        proof.shallow()
        if deep:
            proof.deep()
    shown = since.shown(since_ms) if since_ms is not None else None
    ran = session.log.state.last_publish is not None
    return evidence.report(session.pipeline.name, deep=deep, since=shown, ran=ran)


class _Proof:
    """The checks in their order; each adds to the evidence."""

    def __init__(self, session: Session, world: World, evidence: Evidence, since_ms: int | None) -> None:
        self._session = session
        self._world = world
        self._evidence = evidence
        self._internal = batches.Internal(session.pipeline.ledger_table, session.pipeline.dead_letter_table)
        self._ledger = Ledger()
        self._files: dict[str, Rows] = {}
        self._pending: dict[str, set[str]] = {}
        self._pending_ledger: Rows | None = None
        self._since_ms = since_ms
        self._window: since.Window | None = None
        self._mixed: set[str] = set()

    def shallow(self) -> None:
        self._evidence.count("tables", len(self._world.tables))
        # Which batches are looked at, the ledger says.
        for name in sorted(self._world.tables, key=lambda name: name != self._internal.ledger):
            self._check_files(name)
            if name == self._internal.ledger and self._since_ms is not None:
                self._find_window(name, self._since_ms)
        self._check_ledger()
        for name in self._world.tables:
            self._check_snapshots(name)

    def _find_window(self, ledger: str, since_ms: int) -> None:
        started = {batch_id: logged.event.written_at_ms for batch_id, logged in self._world.state.started.items()}
        self._window = since.window_of(self._all_rows(), since_ms, started)
        why = f"batches planned before {since.shown(since_ms)}, but for the order of all in the control topic"
        self._evidence.skipped(ledger, why)

    @property
    def _published(self) -> Mapping[str, Published] | None:
        """The batches in the log that are looked at; None for all."""
        return self._window.published(self._world.history.batches) if self._window else None

    def deep(self) -> None:
        if self._window is not None:
            self._mixed = self._created_again()
        dead = self._check_dead_letters()
        for name in self._files.keys() - {self._internal.ledger, self._internal.dead_letters}:
            self._check_rows(name, dead)
        current = {at: covered for at, covered in self._ledger.covered.items() if at not in self._ledger.former}
        recount(self._session, self._rows(), current, self._evidence)

    def _check_files(self, name: str) -> None:
        table, state = self._world.tables[name], self._world.state
        pending = state.pending(name, table.view.uuid, table.view.stored_offset)
        self._pending[name] = {logged.event.batch_id for logged in pending}
        wanted = self._wanted_rows(name, table)
        self._files[name] = table.rows(state.written.get(name, []), self._evidence, wanted)
        rows = table.pending(pending, self._evidence)
        if name == self._internal.ledger:
            self._pending_ledger = rows

    def _wanted_rows(self, name: str, table: Proven) -> Wanted | None:
        """The rows that are looked at; None for all, also where nothing tells them."""
        if self._since_ms is not None and name == self._internal.ledger:
            return since.planned_since(self._since_ms)
        if self._window is None:
            return None
        if name == self._internal.dead_letters:
            return self._window.rows(struct=None)
        return self._window.rows(struct=KAFKA_COLUMN) if _has_places(table, name) else None

    def _created_again(self) -> set[str]:
        """Topics that were created again at some time: of which one a row is, its offset doesn't tell."""
        ledger = self._internal.ledger
        table = self._world.tables.get(ledger)
        if table is None:
            return set()
        read = table.head(self._evidence).read(("topic", "topic_id"))
        pairs = (pair for batch in read for pair in zip(*(c.to_pylist() for c in batch.columns), strict=True))
        found = since.created_again(pairs)
        for topic in sorted(found):
            self._evidence.skipped(topic, "rows of a topic that was created again: only a proof without --since looks")
        return found

    def _rows(self) -> Iterator[LedgerRow]:
        """The ledger's rows that are looked at, those included that are published and not yet committed."""
        window = self._window
        return (row for row in self._all_rows() if window is None or row.batch_id in window.batches)

    def _all_rows(self) -> Iterator[LedgerRow]:
        return with_former(self._stored_rows(), self._world.history.topic_ids)

    def _stored_rows(self) -> Iterator[LedgerRow]:
        for rows in (self._files.get(self._internal.ledger), self._pending_ledger):
            if rows is not None:
                yield from rows_of(rows.read(COLUMNS))

    def _check_ledger(self) -> None:
        history, ledger = self._world.history, self._ledger
        for row in self._rows():
            ledger.take(row, self._evidence)
        if history.base is not None:
            how_many = "" if history.trimmed_batches is None else f"{history.trimmed_batches} "
            why = f"{how_many}batches against their events: these were trimmed; what the ledger says of them counts"
            self._evidence.skipped(history.topic, why)
        # Where a deleted topic's positions ended, a trimmed log doesn't say.
        ends = {at: covered.max() + 1 for at, covered in ledger.covered.items() if at in ledger.former and covered}
        begins = self._begins() if self._window is None else {}
        ledger.check(begins, ends | history.former | history.positions, self._rows, self._evidence)
        batches.compare(history, ledger, self._internal, self._evidence, self._published)
        self._evidence.count("partitions", len(ledger.covered))
        for sums in ledger.batches.values():
            for fact, number in sums.numbers().items():
                self._evidence.count(fact.replace("_", " "), number)

    def _begins(self) -> dict[TopicPartition, int]:
        """Where partitions began. Those of a topic that was created again did so anew, in a trimmed log nobody knows
        where; their first row tells.
        """
        return {at: begin for at, begin in self._world.history.begins.items() if at not in self._ledger.restarted}

    def _check_snapshots(self, name: str) -> None:
        table, history = self._world.tables[name], self._world.history
        view = table.view
        held = contents.contents(view).snapshots.keys()
        of_jobs = jobs.expected_rows(self._jobs(name), held, dead_letters=name == self._internal.dead_letters)
        expected = batches.expected_rows(history, self._ledger, name, self._internal, self._published) | of_jobs
        excused = jobs.excused(self._jobs(name), held, self._rows()) if self._jobs(name) else set[str]()
        published_at, whole, pending = self._published_at(), view.whole, self._pending[name]
        all_batches = self._window is None
        contents.compare(
            view, expected, published_at, pending, self._evidence, whole=whole, excused=excused, all_batches=all_batches
        )
        changes_rows = name in self._session.pipeline.changing
        table.compare_total(self._evidence, whole=whole, changes_rows=changes_rows)

    def _published_at(self) -> dict[str, int]:
        return {batch_id: published.offset for batch_id, published in self._world.history.batches.items()}

    def _check_rows(self, name: str, dead: offsets.Held) -> None:
        files, view = self._files[name], self._world.tables[name].view
        if name in self._session.pipeline.changing:
            self._evidence.skipped(name, "its rows: records change rows that are there, of most offsets none is left")
            return
        if not _has_places(self._world.tables[name], name):
            self._evidence.skipped(name, f"its rows: the table has no column {KAFKA_COLUMN} of Calve's type")
            return
        try:
            held = self._in_window(offsets.held_by(files.read([KAFKA_COLUMN]), struct=KAFKA_COLUMN))
        except NoReader as error:
            self._evidence.skipped(name, f"its rows: {error}")
            return
        of_head = contents.contents(view).snapshots.keys()
        letters = self._letter_jobs(name)
        again = jobs.ranges_read(self._jobs(name), self._pending[name], of_head, {job.batch_id for job in letters})
        if self._window is not None:
            again = [part for part in self._window.within(again) if part.topic not in self._mixed]
        read_again, moved = by_partition(again), moved_by(letters)

        def expected(row: LedgerRow) -> int | None:
            by_job = name not in row.written and read_again.get(row.at, offsets.NONE).range_cardinality(
                row.start, row.end
            )
            late = moved.within(row.at, row.topic_id, row.start, row.end)
            return None if by_job else row.written.get(name, 0) + late

        self._compare(name, held, expected)
        jobs.compare(name, held, again, self._evidence)
        offsets.compare_dead_letters(name, held, dead, self._ledger.restarted, self._evidence)

    def _in_window(self, held: offsets.Held) -> offsets.Held:
        if self._window is not None:
            self._window.cut(held)
            held.drop(self._mixed)
        return held

    def _jobs(self, name: str) -> list[RangeJob]:
        return self._world.state.range_jobs_of(name)

    def _letter_jobs(self, name: str) -> list[RangeJob]:
        """Those that have tried dead letters again, and whose part in the table is committed and not given up."""
        found = {
            job.batch_id: job for job in self._jobs(name) if job.letters and job.batch_id not in self._pending[name]
        }
        gone = contents.given_up(self._world.tables[name].view, found, self._published_at())
        return [job for batch_id, job in found.items() if batch_id not in gone]

    def _check_dead_letters(self) -> offsets.Held:
        name = self._internal.dead_letters
        files = self._files.get(name)
        if files is None:
            return offsets.Held()
        held = self._in_window(offsets.held_by(files.read(_DEAD_LETTER_COLUMNS)))
        moved = moved_by(self._letter_jobs(name))

        def expected(row: LedgerRow) -> int:
            return row.dead_lettered - moved.within(row.at, row.topic_id, row.start, row.end)

        self._compare(name, held, expected)
        # What is published is to leave; the tables may have it already.
        leaving = (job for job in self._jobs(name) if job.letters and job.batch_id in self._pending[name])
        for at, gone in by_partition(p for job in leaving for p in job.ranges if p.rows).items():
            held.seen[at] = held.seen.get(at, gone) - gone
        return held

    def _compare(self, name: str, held: offsets.Held, expected: Callable[[LedgerRow], int | None]) -> None:
        pending = self._pending[name]
        view = self._world.tables[name].view
        given_up = contents.given_up(view, self._ledger.batches, self._published_at())

        def committed(row: LedgerRow) -> int | None:
            if row.batch_id in given_up:
                return None
            return 0 if row.batch_id in pending else expected(row)

        restarted = self._ledger.restarted
        if self._window is not None:
            restarted = {at for at in restarted if at.topic not in self._mixed}
        rows = (row for row in self._rows() if row.at not in restarted and row.topic not in self._mixed)
        offsets.compare(name, held, rows, committed, self._ledger.under_one_name(), self._evidence, view.others)
        for at in sorted(restarted):
            offsets.compare_restarted(name, held, at, self._rows(), committed, self._evidence)


def _has_places(table: Proven, name: str) -> bool:
    """Whether the table's rows say of which offsets they are."""
    try:
        return has_kafka_column(table.schema, table=name)
    except TableUnusable:
        return False
