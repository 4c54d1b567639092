"""What must hold in the world, looked at after every change.

The oracle knows what became of every record, which no process does. A broken promise is a `Violation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.decision import Verdict
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offsets import Offsets, TopicPartition, dense_to_offsets
from calve.sink_core.sink.resolve.rebuild import BEFORE
from calve.sink_core.sink.run import RunReport
from calve.sink_core.tables.batch import BatchPlan, ManifestRef
from calve.sink_core.tables.history.record import SummaryKeys, from_summary
from calve.sink_core.tables.log.events import DataComplete, DataWritten, TableCheckpoint
from tests.simulation.broker import Cluster, Outcome, Transaction
from tests.simulation.promises import Promise, Violation
from tests.simulation.storage import Manifest, Row, SimCatalog

TOPIC = "events"
GAP, GOOD, BAD = "gap", "good", "bad"
"""What is at a source offset: nothing that a consumer is given, a record, one that can't be stored."""

Ranges = tuple[tuple[int, int], ...]
SETTLED = ""
"""Stands for the control topic of batches that a table has whatever becomes of their events."""


@dataclass
class Batch:
    """A batch as it was written: its plan, and for each table its rows and the paths of its files.

    A range job has no plan.
    """

    plan: BatchPlan | None
    rows: dict[str, list[Row]]
    files: dict[str, list[str]]
    counts: list[PartitionCounts] = field(default_factory=list[PartitionCounts])


@dataclass(frozen=True, slots=True)
class Published:
    """Where a batch's event for one table is. `uncertain`: it is gone, and a rebuild will say what became of it;
    `history`: it is of a range job whose rows the table has from nowhere else.
    """

    topic_id: str
    offset: int
    batch_id: str
    uncertain: bool = False
    history: bool = False


@dataclass
class Oracle:
    """`published` holds by table what was published for it, `complete` all by id; `through` by topic id and partition
    how far batches go without a hole; `taken_in` by table and control topic id the highest stored control offset,
    `last_snapshots` the last snapshot of ours. `placed` are the positions of the last publish, and its id. `deeds` are
    what others did, and to what. Somebody has chosen to go on without rows of the tables in `accepted`; which, their
    snapshots say (`given_up`). `lost` are source offsets by topic id and partition that an answer passed over.
    """

    pipeline: SinkPipeline
    cluster: Cluster
    catalog: SimCatalog
    note: Callable[[str], None]
    batches: dict[str, Batch] = field(default_factory=dict[str, Batch])
    complete: dict[str, DataComplete] = field(default_factory=dict[str, DataComplete])
    published: dict[str, list[Published]] = field(default_factory=dict[str, list[Published]])
    through: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    begins: dict[int, int] = field(default_factory=dict[int, int])
    taken_in: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    placed: tuple[Offsets, str] | None = None
    last_snapshots: dict[str, int] = field(default_factory=dict[str, int])
    deeds: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    accepted: set[str] = field(default_factory=set[str])
    given_up: dict[str, Ranges] = field(default_factory=dict[str, Ranges])
    _ledger_held: set[str] = field(default_factory=set[str])
    _given_up_before: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    lost: set[tuple[str, int, int]] = field(default_factory=set[tuple[str, int, int]])

    def __post_init__(self) -> None:
        self._keys = SummaryKeys(self.pipeline.name, self.pipeline.control_topic, self.pipeline.group)
        self.cluster.decided = self._decided
        self.catalog.swapped = self._swapped

    def _decided(self, transaction: Transaction) -> None:
        """A transaction was decided; a committed one with a `DATA_COMPLETE` is a publish."""
        if transaction.outcome is not Outcome.COMMITTED:
            return
        for at in (at for at in transaction.logs if at[0] in self.cluster.topics):
            for offset, record in enumerate(self.cluster.log(at).records):
                if record.transaction is transaction:
                    if isinstance(record.value, DataWritten):
                        self._files_published(offset, record.value)
                    if isinstance(record.value, DataComplete):
                        self._batch_published(record.value)
                    if isinstance(record.value, TableCheckpoint):
                        self._rebuilt(record.value)

    def _files_published(self, offset: int, event: DataWritten) -> None:
        topic_id = self.cluster.topics[self.pipeline.control_topic].topic_id
        ranges_only = self.batches[event.batch_id].plan is None
        history = ranges_only and event.resolves is None and event.replaces is None
        published = Published(topic_id, offset, event.batch_id, history=history)
        self.published.setdefault(event.table, []).append(published)
        for ref in event.added:
            if missing := [path for path in (ref.path, *self._files_of(ref)) if path not in self.catalog.store.files]:
                raise Violation(
                    Promise.FILES_STAY, f"batch {event.batch_id} was published without its file {missing[0]}"
                )

    def _files_of(self, ref: ManifestRef) -> tuple[str, ...]:
        found = self.catalog.store.files.get(ref.path)
        return found.files if isinstance(found, Manifest) else ()

    def _batch_published(self, event: DataComplete) -> None:
        self.note(f"PUBLISHED {event.kind} {event.batch_id}")
        self.complete[event.batch_id] = event
        if event.kind != "range":
            self.placed = dense_to_offsets(event.positions), event.batch_id
        if event.kind == "bootstrap":
            if self.through:
                self._check_forgotten()
            positions = dense_to_offsets(event.positions)
            self.through = {(event.topic_ids[at.topic], at.partition): offset for at, offset in positions.items()}
            self.begins = {at.partition: offset for at, offset in positions.items()}
            return
        plan = self.batches[event.batch_id].plan
        if plan is None:
            return
        lost = {TopicPartition(c.topic, c.partition) for c in self.batches[event.batch_id].counts if c.lost}
        known = {topic_id for topic_id, _ in self.through}
        for part in plan.ranges:
            topic_id = plan.topic_ids[part.topic]
            key = (topic_id, part.partition)
            # A topic that was created again begins where an answer says.
            before = self.through.get(key, 0 if topic_id in known else part.start)
            if part.at in lost:
                self.lost |= {(topic_id, part.partition, offset) for offset in range(part.start, part.end)}
            if part.start != before:
                what = "a second time" if part.start < before else "with a hole before it"
                raise Violation(Promise.PUBLISHED_ONCE, f"{part} was published {what}: published up to {before}")
            self.through[key] = part.end

    def _check_forgotten(self) -> None:
        """A second bootstrap is right where nothing is left of the first, and no table that has taken anything in."""
        snapshots = [s for metadata in self.catalog.tables.values() for s in metadata.snapshots if s.summary]
        ours = any(from_summary(self._keys, s.summary.additional_properties) for s in snapshots if s.summary)
        if ours or not any(deed == "recreate control topic" for deed, _ in self.deeds):
            raise Violation(Promise.PUBLISHED_ONCE, "a second bootstrap")
        self.published.clear()

    def log_lost(self, below: int | None) -> None:
        """Events of the control topic are gone: those below an offset, or all of them, with the topic."""
        for table, events in self.published.items():
            self.published[table] = [self._after_loss(table, event, below) for event in events]

    def _after_loss(self, table: str, event: Published, below: int | None) -> Published:
        if event.offset < self.taken_in.get((table, event.topic_id), 0):
            return replace(event, topic_id=SETTLED) if below is None else event
        return replace(event, uncertain=True) if below is None or event.offset < below else event

    def rebuild_begins(self) -> None:
        """From here on the ledger decides which batches were published."""
        held = self._in_ledger()
        for table, events in self.published.items():
            self.published[table] = [replace(e, uncertain=e.uncertain or e.batch_id not in held) for e in events]
        self._given_up_before = {
            (table, event.batch_id)
            for table, events in self.published.items()
            for event in events
            if self._is_given_up(table, event) or self._was_given_up_before(table, event)
        }

    def _is_given_up(self, table: str, event: Published) -> bool:
        """Where an event was, nobody knows after a rebuild."""
        ranges = self.given_up.get(table, ())
        return any(event.topic_id == SETTLED or start <= event.offset < end for start, end in ranges)

    def _was_given_up_before(self, table: str, event: Published) -> bool:
        """By a rebuild that did not come to its end, and left its mark on the table."""
        return (table, event.batch_id) in self._given_up_before and BEFORE[0] in self.given_up.get(table, ())

    def _rebuilt(self, event: TableCheckpoint) -> None:
        """It has decided, and positions are where it ends."""
        self.note(f"REBUILT {event.last_complete_batch_id}")
        held = self._in_ledger()
        for table, events in self.published.items():
            self.published[table] = [
                Published(SETTLED, -1 if (table, e.batch_id) in self._given_up_before else 0, e.batch_id)
                for e in events
                if e.batch_id in held
            ]
        positions = dense_to_offsets(event.positions)
        # Of all else what was published is gone, and in no table.
        self.through = {
            (event.topic_ids.get(at.topic, self.cluster.topics[at.topic].topic_id), at.partition): offset
            for at, offset in positions.items()
        }
        self.placed = positions, event.last_complete_batch_id or ""

    def _in_ledger(self) -> set[str]:
        """Of a ledger that is dropped what it had: the user may put it back."""
        ledger = self.pipeline.ledger_table
        if ledger in self.catalog.tables:
            self._ledger_held = {str(batch_id) for _, batch_id, _ in self.catalog.rows(ledger)}
        return self._ledger_held

    def _swapped(self, name: str, before: TableMetadata, after: TableMetadata) -> None:
        """A table has changed. If it was Calve, it has to be right."""
        known = {snapshot.snapshot_id for snapshot in before.snapshots}
        head = after.snapshot_by_id(after.current_snapshot_id) if after.current_snapshot_id is not None else None
        if head is None or head.snapshot_id in known or head.summary is None:
            return
        own = from_summary(self._keys, head.summary.additional_properties)
        if own is None:
            return
        if before.current_snapshot_id not in _ancestors(after):
            raise Violation(
                Promise.NOTHING_OVERWRITTEN,
                f"{name}: a commit has left out snapshot {before.current_snapshot_id}, which was the head",
            )
        self.note(f"COMMITTED {name} up to {own.stored_offset}: {', '.join(own.batches)}")
        if own.given_up and name not in self.accepted:
            raise Violation(Promise.COMMITTED_ONCE, f"{name} has given up {own.given_up}, and nobody chose that")
        self.given_up[name] = own.given_up
        self.check_table(name, own.control_topic_id, own.stored_offset)
        if (
            own.valid_through_ms is not None
            and not own.given_up
            and name in {table.name for table in self.pipeline.tables}
        ):
            self._check_valid_through(name, own.valid_through_ms)
        self.last_snapshots[name] = head.snapshot_id
        key = (name, own.control_topic_id)
        self.taken_in[key] = max(own.stored_offset, self.taken_in.get(key, 0))

    def check_table(self, name: str, topic_id: str, stored: int) -> None:
        """The head holds every row of what was published for the table below `stored`, and nothing else, once.

        A range job reads rows of batches again. Rows that were given up may be there or not, and those whose events are
        gone.
        """
        try:
            have = Counter(self.catalog.rows(name))
        except FileNotFoundError as error:
            raise Violation(Promise.FILES_STAY, f"{name} can't be read: {error} is gone") from error
        want, may = Counter[Row](), Counter[Row]()
        for event in self.published.get(name, []):
            reached = event.topic_id == SETTLED or event.uncertain
            reached = reached or (event.topic_id == topic_id and event.offset < stored)
            if reached and (event.history or self.complete[event.batch_id].kind != "range"):
                unsure = event.uncertain or self._is_given_up(name, event)
                unsure = unsure or (name, event.batch_id) in self._given_up_before
                (may if unsure else want).update(self.batches[event.batch_id].rows[name])
        twice, missing = have - want - may, want - have
        if twice or missing:
            raise Violation(
                Promise.COMMITTED_ONCE,
                f"{name}: rows twice {sorted(twice.elements())[:4]}, missing {sorted(missing.elements())[:4]}",
            )

    def _check_valid_through(self, name: str, valid_through_ms: int) -> None:
        have = set(self.catalog.rows(name))
        topic = self.cluster.topics[TOPIC]
        for partition, log in enumerate(topic.logs):
            for offset in range(self.begins.get(partition, 0), log.end):
                record = log.records[offset]
                passed_over = (topic.topic_id, partition, offset) in self.lost
                if passed_over or not isinstance(record.value, tuple) or record.value[0] == BAD:
                    continue
                if record.timestamp_ms < valid_through_ms and ("record", record.value[1]) not in have:
                    where = f"{TOPIC}[{partition}]@{offset} of {record.timestamp_ms}"
                    raise Violation(Promise.VTTS, f"{name}: VTTS {valid_through_ms} lies: {where} is not in the table")

    def check_end(self) -> None:
        """Everything has arrived, once."""
        topic = self.cluster.topics[TOPIC]
        for partition, log in enumerate(topic.logs):
            through = self.through.get((topic.topic_id, partition))
            if self.through and through != log.end:
                raise Violation(
                    Promise.PROGRESS, f"{TOPIC}[{partition}] has {log.end} offsets, published are {through}"
                )
        control = self.cluster.topics[self.pipeline.control_topic]
        for name in self.catalog.tables:
            self.check_table(name, control.topic_id, control.logs[0].end)
        for table in self.pipeline.tables:
            if table.history == "replay" and table.name not in self.accepted:
                self._check_history(table.name)

    def _check_history(self, name: str) -> None:
        """A table that was added has what was published without it."""
        wanted = {("record", n) for batch_id in self.complete for n in self._records(self.batches.get(batch_id))}
        if missing := wanted - set(self.catalog.rows(name)):
            raise Violation(
                Promise.COMMITTED_ONCE, f"{name}: of what was published without it, missing {sorted(missing)[:4]}"
            )

    def _records(self, batch: Batch | None) -> set[int]:
        tables = [table.name for table in self.pipeline.tables]
        return {number for table in tables for _, number in batch.rows.get(table, ())} if batch else set()

    def check_report(self, report: RunReport) -> None:
        """Nobody calls a batch stale that is published, unless its events have been trimmed, or are gone."""
        topic = self.cluster.topics.get(self.pipeline.control_topic)
        if topic is None or topic.logs[0].start > 0:
            return
        for batch in report.batches:
            if batch.verdict is Verdict.STALE and batch.batch_id in self.complete:
                raise Violation(
                    Promise.TRUE_VERDICTS, f"batch {batch.batch_id} is published, and was called stale: {batch.why}"
                )

    def check_deleted(self, path: str) -> None:
        """A file is gone; nobody may need it."""
        for name, metadata in self.catalog.tables.items():
            try:
                needed = self.catalog.store.reachable(metadata.snapshots)
            except FileNotFoundError as error:
                raise Violation(
                    Promise.FILES_STAY, f"{error} was deleted, and a snapshot of {name} needs it"
                ) from error
            if path in needed:
                raise Violation(Promise.FILES_STAY, f"{path} was deleted, and {name} needs it")
        for name, events in self.published.items():
            for event in events:
                pending = event.offset >= self.taken_in.get((name, event.topic_id), 0)
                settled = event.topic_id == SETTLED or event.uncertain
                if pending and not settled and path in self.batches[event.batch_id].files.get(name, ()):
                    raise Violation(
                        Promise.FILES_STAY, f"{path} of published batch {event.batch_id} was deleted before its commit"
                    )


def _ancestors(metadata: TableMetadata) -> set[int | None]:
    """The head's, and None."""
    found, at = set[int | None](), metadata.current_snapshot_id
    while at is not None:
        found.add(at)
        snapshot = metadata.snapshot_by_id(at)
        at = snapshot.parent_snapshot_id if snapshot else None
    return {*found, None}
