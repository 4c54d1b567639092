"""What a process of a history does: the commands and jobs of Calve, run by their real code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from calve.sink_core.config.table_maintenance import Expire, Orphans
from calve.sink_core.control.events import Paused, Resumed
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.control.trim import trim
from calve.sink_core.errors import CommitConflict, RetriableError
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.maintenance.expire import expire
from calve.sink_core.sink.maintenance.orphans import remove_orphans
from calve.sink_core.sink.maintenance.work import Work
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.sink.range_jobs.selected import Wanted
from calve.sink_core.sink.resolve.current_findings import current_findings
from calve.sink_core.sink.resolve.resolve import REFILL, answers_of
from calve.sink_core.sink.run import run_pipeline
from tests.simulation.endings import OLD
from tests.simulation.oracle import TOPIC
from tests.simulation.world import STALE, World

ENDLESS_S = 1e9


def run(world: World) -> None:
    with world.session() as session:
        report = run_pipeline(session, bounds=Bounds(3, ENDLESS_S, 0.0))
        world.oracle.check_report(report)
        report.raise_failures()


def publish(world: World) -> None:
    """A run whose commits are somebody else's."""
    with world.session() as session:
        report = run_pipeline(session, bounds=Bounds(2, ENDLESS_S, 0.0), committing=False)
        world.oracle.check_report(report)


def commit(world: World) -> None:
    with world.session() as session:
        if session.read_only():
            session.bind()
            session.coordinator().commit(tables=session.pipeline.table_names).raise_failures()


def keep_alive(world: World) -> None:
    with world.session() as session:
        if session.read_only():
            session.bind()
            session.publisher.keep_alive()


def pause_and_resume(world: World) -> None:
    with world.session() as session:
        if session.read_only():
            bound = session.bind()
            session.log.append(Paused(pipeline_id=bound.pipeline_id, by="u", reason="r"))
            session.log.append(Resumed(pipeline_id=bound.pipeline_id, by="u"))


def trim_log(world: World) -> None:
    with world.session() as session:
        if session.read_only():
            session.bind()
            trim(session, older_than_s=0.0)


def clean(world: World) -> None:
    """Orphan removal by its order alone: no file is too young for it."""
    _maintain(world, lambda work: remove_orphans(work, Orphans.model_construct(cron="", older_than=0.0)))


def expire_old(world: World) -> None:
    # Of a merge that comes to nothing the snapshot would else be as young as all that happens to it.
    age = -1.0 if world.merged else 0.0
    _maintain(world, lambda work: expire(work, Expire.model_construct(cron="", older_than=age, retain_last=1)))


def _maintain(world: World, task: Callable[[Work], Any]) -> None:
    with world.session() as session:
        if session.read_only():
            session.bind()
            procedures: Any = SimProcedures(world, session)
            task(Work(session, procedures, lambda _step: None)).raise_failures()


def resolve(world: World) -> None:
    """Answer one of the findings that stand by one of its choices."""
    with world.session() as session:
        if not session.read_only():
            return
        stand = current_findings(session)
        if not stand:
            return
        found = world.chance.choice(stand)
        if not found.choices:
            return
        again = REFILL in found.choices and world.chance.random() < 0.5
        choice = REFILL if again else world.chance.choice(found.choices)
        answers = answers_of(session)
        prepared = answers.prepare(found.finding, found.subject, choice)
        world.note(f"answers {found.finding} of {found.subject} by {choice}")
        if choice == "accept":
            world.oracle.accepted.add(found.subject)
        if choice == "rebuild" and found.subject != world.pipeline.ledger_table:
            world.oracle.rebuild_begins()
        answers.carry_out(prepared, "u")
        world.outcomes[f"answered: {found.finding} by {choice}"] += 1


def replay(world: World) -> None:
    """Read again what a table has, all of it or a range, and put it in place of the rows that are there."""
    with world.session() as session:
        if session.read_only():
            session.bind()
            wanted = Wanted(ranges=_some_range(world) if world.chance.random() < 0.5 else ())
            RangeJobs(session).replay(world.pipeline.tables[0].name, wanted)


def _some_range(world: World) -> tuple[OffsetRange, ...]:
    """Of what was published, if anything was."""
    topic_id = world.cluster.topics[TOPIC].topic_id
    published = [(p, end) for (of, p), end in world.oracle.through.items() if of == topic_id and end > 0]
    if not published:
        return ()
    partition, end = world.chance.choice(published)
    start = world.chance.randrange(end)
    return (OffsetRange(TOPIC, partition, start, world.chance.randint(start + 1, end)),)


KINDS: dict[str, Callable[[World], None]] = {
    "run": run,
    "publish": publish,
    "commit": commit,
    "keep alive": keep_alive,
    "pause": pause_and_resume,
    "trim": trim_log,
    "orphans": clean,
    "expire": expire_old,
    "resolve": resolve,
    "replay": replay,
    f"{OLD}publish": publish,
    f"{OLD}commit": commit,
    f"{STALE}publish": publish,
    f"{STALE}commit": commit,
}


@dataclass(frozen=True, slots=True)
class SimProcedures:
    """Iceberg's Spark procedures, as far as the protocol can notice."""

    world: World
    session: Session

    def _load(self, table: str) -> TableMetadata:
        try:
            return self.session.catalog.load_table(table).metadata
        except NoSuchTableError as error:
            raise RetriableError(f"{table} has been dropped") from error

    def remove_orphan_files(self, table: str, files: Iterable[str], *, dry_run: bool) -> list[str]:
        """Looks at the table's metadata first, deletes afterwards, file by file."""
        metadata = self._load(table)
        try:
            needed = self.world.store.reachable(metadata.snapshots)
        except FileNotFoundError as error:
            raise RetriableError(f"{table} has changed: {error}") from error
        orphans = [path for path in files if path not in needed]
        for path in orphans if not dry_run else ():
            self.world.scheduler.give_way()
            self.world.note(f"orphan removal deletes {path}")
            self.world.delete_file(path)
        return orphans

    def expire_snapshots(self, table: str, *, older_than_ms: int, retain_last: int) -> dict[str, int]:
        """A compare-and-swap, then the files that only the expired snapshots named."""
        metadata = self._load(table)
        going = expired(metadata, older_than_ms=older_than_ms, retain_last=retain_last)
        self.world.scheduler.give_way()
        if self.world.catalog.tables.get(table) is not metadata:
            raise CommitConflict(f"{table} has changed")
        files = self.world.catalog.expire(table, going, new_root=False)
        for path in files:
            self.world.scheduler.give_way()
            self.world.delete_file(path)
        return {"deleted": len(files)}


def expired(metadata: TableMetadata, *, older_than_ms: int, retain_last: int) -> set[int]:
    """Snapshots that Iceberg's `expire_snapshots` removes (https://iceberg.apache.org/spec/#snapshot-retention-policy)."""
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    kept |= {snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.timestamp_ms >= older_than_ms}
    head = metadata.refs.get(MAIN_BRANCH)
    at = metadata.snapshot_by_id(head.snapshot_id) if head else None
    for _ in range(retain_last):
        if at is not None:
            kept.add(at.snapshot_id)
            at = metadata.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    return {snapshot.snapshot_id for snapshot in metadata.snapshots} - kept
