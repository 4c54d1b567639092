"""Commits to one Hudi table: look, check, and complete one instant for each batch, in the order of the control log.

Crash points of a commit, and what the next one finds (docs/hudi.md has the whole table):

    hudi.after-check     nothing written
    hudi.after-adopt     files in the table that no reader sees, as their instant is not completed; the next one has
                         the same names for them
    hudi.in-lock         the instant is pending; the next one goes on with it
    hudi.after-commit    the table has the batch and says so itself; the next coordinator only reports it

Row changes have no names of ours in the table: Hudi's writer on Spark brings them in, under an instant of its own. A
try that is killed leaves a pending instant that nobody completes, and cleaning rolls back; the next try has another.

Whoever is stopped while it has the lock file keeps it; one that is killed has it until its JVM has ended. An instant is
completed once: whoever comes second finds, under the lock or in the last check before Hudi completes it, that the table
is not as it saw it, and looks again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from calve.sink_core.codes import Code
from calve.sink_core.errors import CommitConflict, RetriableError, Unreachable
from calve.sink_core.failpoints import reach
from calve.sink_core.hudi.commit.examine import Examined, HudiTables
from calve.sink_core.hudi.commit.instants import check_free, own_instant, wait_for, wait_past
from calve.sink_core.hudi.files.staged import NOTHING, Staged, changes_in, put_in_place, read_staged, remove_staged
from calve.sink_core.hudi.java.client import Completion, HudiClient
from calve.sink_core.hudi.java.jvm import HudiRefused
from calve.sink_core.hudi.java.spark import SparkClient, Upsert
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.offsets import Offsets
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.history.record import SnapshotRecord, to_summary
from calve.sink_core.tables.history.resolving import resolution
from calve.sink_core.tables.history.shares import Share, record_of_snapshot
from calve.sink_core.timing import back_off

ATTEMPTS = 10
"""Lost races, or errors of Hudi, before a table stays behind until the next commit."""

SOURCE_OFFSETS = "kafka.commit.offsets"
"""Where Hudi's own sink for Kafka Connect keeps the offsets below which a table has every record."""


class Moved(Exception):
    """The table is not as it was seen."""


@dataclass(frozen=True, slots=True)
class HudiCommitter:
    """Commits to the Hudi tables of one pipeline: by `client`, and where records change rows by `spark`.
    `pipeline_file` only serves the commands in messages, `from_now` are tables that need not have what was published
    without them. `made_by` goes into the commits.
    """

    client: HudiClient
    spark: SparkClient
    tables: HudiTables
    pipeline_file: str
    from_now: Set[str] = frozenset()
    made_by: str = ""

    def commit(self, name: str) -> TableCommit | None:
        """Commit what `name` lacks, one instant for each batch; None for a table that neither exists nor was ever
        written to. Each attempt starts from the load.

        Raises FindingError, TableUnusable, ProtocolError for files that are gone, CommitConflict after too many lost
        races, and RetriableError.
        """
        began, done = time.monotonic(), _Done(name)
        seen = self.tables.examine(name)
        if seen.table is not None and self._next(seen) is not None:
            with self.locked(seen.table):
                while self._commit_next(name, done):
                    pass
                self._forget(seen.table)
            seen = self.tables.examine(name)
        self._stop_on(seen)
        return done.report(seen.table, time.monotonic() - began) if seen.table else None

    def locked(self, table: HudiTable) -> AbstractContextManager[None]:
        """Hold the table's lock, in the JVM that completes its commits. Raises as `Jvm.locked`."""
        return self._client(table).jvm.locked(table.place.lock)

    def change(self, name: str, schema: str) -> bool:
        """Give a table another schema (Avro), by a commit without files; whether it was as it was seen. `locked` must
        be held.
        """
        table = self.tables.load(name)
        if table is None:
            return False
        latest = table.view.latest
        said = to_summary(self.tables.keys, replace(latest, batches=(), counts={}, replaced={})) if latest else {}
        try:
            self._finish(table, Completion(own_instant(table), (), schema, said, self.tables.keys.carried), 0)
        except Moved:
            return False
        return True

    def answer(self, table: HudiTable, said: Mapping[str, str]) -> int:
        """A commit without files that says this of the table; its number. Raises Moved if the table is not as it was
        loaded any more. `locked` must be held.
        """
        instant = own_instant(table)
        self._finish(table, Completion(instant, (), table.schema_text, said, self.tables.keys.carried), 0)
        return int(instant)

    def _commit_next(self, name: str, done: _Done) -> bool:
        """Commit the first batch that the table lacks; whether it lacked one."""
        cause: Exception | None = None
        for tries in range(ATTEMPTS):
            seen = self.tables.examine(name)
            share = self._next(seen)
            if seen.table is None or share is None:
                self._stop_on(seen)
                return False
            reach("hudi.after-check")
            try:
                self._complete(seen.table, share)
            except (HudiRefused, Moved) as error:
                cause = error
                done.conflicts += 1
                back_off(tries)
                continue
            done.shares.append(share)
            return True
        raise _gave_up(name, cause)

    def _next(self, seen: Examined) -> Share | None:
        """The first batch that the table lacks. With a finding it is the range job that resolves that, alone: what was
        published behind what this covers comes after it.
        """
        table, state = seen.table, self.tables.log.state
        if table is None:
            return None
        if seen.finding is not None:
            found = resolution(table.view, state, seen.finding.name)
            job = found.events[-1] if found else None
            resolves = job.event.resolves if job else None
            return Share([job], resolves.covers_offset, job.event.event_id) if job and resolves else None
        pending = state.pending(table.name, table.uuid, table.stored_offset)
        if not pending:
            return None
        stored_offset = pending[1].offset if len(pending) > 1 else state.limit
        return Share(pending[:1], stored_offset, pending[0].event.event_id)

    def _complete(self, table: HudiTable, share: Share) -> None:
        """One instant for the one event of the share."""
        [logged] = share.events
        table.check_usable()
        # A range job that resolves a finding may have written nothing.
        staged = read_staged(table.place, logged.event.manifests[0]) if logged.event.manifests else NOTHING
        if staged.changes:
            if self.tables.log.state.rules.changes_come_after_all_instants:
                wait_past(table)
            self._bring_in(table, staged, self._said(table, share))
            reach("hudi.after-commit")
            return
        instant = staged.instant or own_instant(table)
        wait_for(instant, table.name)
        check_free(table, instant)
        put_in_place(table.place, staged)
        reach("hudi.after-adopt")
        extra = self._said(table, share)
        opened = {each.state for each in table.timeline.at(instant)}
        done = Completion(instant, staged.files, table.schema_text, extra, self.tables.keys.carried, opened)
        self._finish(table, done, logged.event.rows)
        reach("hudi.after-commit")

    def _said(self, table: HudiTable, share: Share) -> dict[str, str]:
        """What the commit says of itself. With the last batch that the table lacks it has all that was published."""
        state = self.tables.log.state
        record: SnapshotRecord = record_of_snapshot(
            share.events,
            stored_offset=share.stored_offset,
            last_event_id=share.last_event_id,
            given_up=table.view.latest.given_up if table.view.latest else (),
            view=table.view,
            state=state,
            now=self.tables.now,
            from_now=table.name in self.from_now,
        )
        positions = state.positions() if share.stored_offset >= state.limit else None
        offsets = {SOURCE_OFFSETS: source_offsets(positions)} if positions else {}
        return {**to_summary(self.tables.keys, record, made_by=self.made_by), **offsets}

    def _bring_in(self, table: HudiTable, staged: Staged, extra: Mapping[str, str]) -> None:
        """Bring row changes in. Raises as `_finish`."""
        paths = changes_in(table.place, staged)
        reach("hudi.after-adopt")
        changes = Upsert(paths, table.schema_text, {**extra, "schema": table.schema_text}, self.tables.keys.carried)
        self.spark.upsert(table.place.folder, table.properties, changes, lambda: self._check_unmoved(table))

    def _finish(self, table: HudiTable, done: Completion, rows: int) -> None:
        """Complete an instant, which adds so many rows. Raises Moved if the table is not as it was seen any more when
        Hudi has its lock.
        """
        if not table.key:
            had = table.counted
            totals = [had.rows + rows, had.files + len(done.files), had.size + sum(file.size for file in done.files)]
            done = replace(done, extra={**done.extra, self.tables.keys.totals: json.dumps(totals)})
        complete = self._client(table).complete
        complete(table.place.folder, table.properties, done, lambda: self._check_unmoved(table))

    def _check_unmoved(self, table: HudiTable) -> None:
        reach("hudi.in-lock")
        now = self.tables.load(table.name)
        seen = self.tables.log.state.rules.completion_compares_the_head
        if now is None or (seen and (now.uuid, now.view.head) != (table.uuid, table.view.head)):
            raise Moved(f"the head was {table.view.head}, is {now.view.head if now else 'gone'}")

    def _client(self, table: HudiTable) -> HudiClient:
        return self.spark if table.key else self.client

    def _forget(self, table: HudiTable) -> None:
        """Remove staged files of batches that the table is reported to have: a table that was put back before it had
        reported them gets them again.
        """
        state = self.tables.log.state
        reported = state.reported_offset(table.name, table.uuid)
        if not state.rules.staged_files_wait_for_the_report:
            reported = state.limit
        known = (e for e in state.written.get(table.name, []) if e.event.table_uuid == table.uuid)
        remove_staged(table.place, {e.event.batch_id for e in known if e.offset < reported})

    def _stop_on(self, seen: Examined) -> None:
        if seen.finding is not None:
            raise seen.finding.error(self.pipeline_file)


@dataclass(slots=True)
class _Done:
    """What a commit did to a table, instant by instant."""

    name: str
    shares: list[Share] = field(default_factory=list[Share])
    conflicts: int = 0

    def report(self, table: HudiTable, seconds: float) -> TableCommit:
        events = [logged.event for share in self.shares for logged in share.events]
        own = table.view.tagged.own if table.view.tagged else None
        totals = table.totals
        return TableCommit(
            table=self.name,
            table_uuid=table.uuid,
            snapshot_id=table.view.tag,
            stored_offset=table.stored_offset,
            valid_through_ms=own.valid_through_ms if own else None,
            landed=bool(events),
            batches=tuple(dict.fromkeys(event.batch_id for event in events)),
            rows=sum(event.rows for event in events),
            files=sum(manifest.files for event in events for manifest in event.manifests),
            total_rows=totals.rows,
            total_files=totals.files,
            total_bytes=totals.size,
            conflicts=self.conflicts,
            seconds=round(seconds, 3),
        )


def source_offsets(positions: Offsets) -> str:
    """As Hudi's own sink writes them, `0=100,1=200`; of several topics with the topic before the partition."""
    several = len({at.topic for at in positions}) > 1
    named = ((f"{at.topic}-{at.partition}" if several else str(at.partition), n) for at, n in sorted(positions.items()))
    return ",".join(f"{name}={offset}" for name, offset in named)


def _gave_up(name: str, cause: Exception | None) -> RetriableError:
    if isinstance(cause, HudiRefused):
        return Unreachable(
            f"{name}: {ATTEMPTS} attempts to commit failed in a row, the last with {cause}",
            hint="the table stays as it is, and the next try goes on",
            code=Code.HUDI_REFUSED,
        )
    return CommitConflict(
        f"{name}: {ATTEMPTS} attempts in a row lost the race against other writers ({cause})",
        hint="the table stays as it is, and the next try goes on; does another job commit without pause?",
        code=Code.RACES_LOST,
    )
