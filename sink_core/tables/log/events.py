"""The events that a sink has on the control topic beside those of every kind of pipeline, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from calve.sink_core.control.events import BatchPublished, BatchStarted, ByPartition, Checkpoint, Event
from calve.sink_core.counts import Dropped
from calve.sink_core.tables.batch import ManifestRef, ToMerge, rows_in
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead, Replaces, Resolves

READER_VERSION = 6
"""The highest `min_reader` this code understands."""

REPLACING_READER = 2
"""Readers below this would append the rows of a range job that replaces others."""

REMOVING_READER = 3
"""Readers below this would leave dead letters that a range job has moved into tables."""

CHANGING_READER = 4
"""Readers below this would put deletes into one snapshot with rows that they are for."""

MERGING_READER = 5
"""Readers below this might put late changes over newer rows, or what stands for an old value into the table."""

PARTED_READER = 6
"""Readers below this would take a checkpoint for whole without its parts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartCommit(BatchStarted):
    """A plan exists and its files may begin to appear below `file_prefix`. For people; no rule rests on it."""

    event_type: ClassVar[str] = "START_COMMIT"
    file_prefix: str
    config_fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DataWritten(Event):
    """Files of one batch for one table: `manifests` name those with its own rows.

    `removes`: it is for the dead letters, of which those leave that lie in the job's ranges. `changes`: the manifests
    name rows and deletes, which stand for so many records; its deletes are for what the table held before it, unless it
    is `to_merge`.
    """

    event_type: ClassVar[str] = "DATA_WRITTEN"
    batch_id: str
    table: str
    table_uuid: str
    schema_id: int
    manifests: tuple[ManifestRef, ...]
    resolves: Resolves | None = None
    replaces: Replaces | None = None
    removes: bool = False
    changes: int | None = None
    to_merge: ToMerge | None = None

    @property
    def rows(self) -> int:
        """Those of the batch itself; of row changes the records that they stand for."""
        return rows_in(self.manifests) if self.changes is None else self.changes

    @property
    def deletes(self) -> bool:
        """Whether it needs a snapshot of its own, with a sequence number above those of all rows before it."""
        return any(manifest.deletes for manifest in self.manifests)

    @property
    def added(self) -> tuple[ManifestRef, ...]:
        """Every manifest that a commit adds."""
        return (*self.manifests, *self.replaces.kept) if self.replaces else self.manifests

    @property
    def min_reader(self) -> int:
        if self.to_merge and self.to_merge.needs_merge:
            return MERGING_READER
        if self.changes is not None:
            return CHANGING_READER
        if self.removes:
            return REMOVING_READER
        return REPLACING_READER if self.replaces else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class DataComplete(BatchPublished):
    """A batch is published: all its `DATA_WRITTEN`s are there, and the positions moved in the same transaction.

    `kind` is `bootstrap`, `batch` or `range`; a range job moves no position. `positions` are the next offsets of every
    partition afterwards; `through_ms` says per partition up to which record timestamp it has been read. `ranges` are
    what a range job has read; `dropped` are fields that tables have no column for. `written_by` is the engine, as of
    `WrittenBy.to_map`. `silent` says of topics and partitions that gave no answer when it was planned why, by name.
    `instant_ms` is as in `BatchPlan`; what comes later has a later one.
    """

    event_type: ClassVar[str] = "DATA_COMPLETE"
    kind: str
    tables: tuple[str, ...]
    totals: Mapping[str, int]
    through_ms: ByPartition
    through_is_estimate: bool
    value_bytes_by_topic: Mapping[str, int]
    records_by_topic: Mapping[str, int]
    ledger_manifest: str | None = None
    ranges: tuple[RangeRead, ...] = ()
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])
    written_by: Mapping[str, str] = field(default_factory=dict[str, str])
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    instant_ms: int = 0

    @property
    def moves_positions(self) -> bool:
        return self.kind != "range"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitToTable(Event):
    """What a table has. The highest `stored_offset` (exclusive) per table and UUID counts, not the last.

    It is an offset of the control topic of that id; "" of whichever the event is in, as earlier versions wrote.
    """

    event_type: ClassVar[str] = "COMMIT_TO_TABLE"
    table: str
    table_uuid: str
    snapshot_id: int
    stored_offset: int
    valid_through_ms: int | None
    control_topic_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitComplete(Event):
    """A coordinator went through all tables; every event below `through_offset` is in its table.

    `reasons` say by table why those of `tables_behind` are, `held` why batches go without tables, by the last run.
    """

    event_type: ClassVar[str] = "COMMIT_COMPLETE"
    commit_id: str
    through_offset: int
    tables_behind: tuple[str, ...]
    valid_through_ms: int | None
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    held: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCheckpoint(Checkpoint):
    """A checkpoint that also says what tables have, what they were promised, and what range jobs were published.

    `through_ms` is of every partition ever read; `begins` are the start positions. `batches` counts those published,
    the bootstrap and range jobs left out. `reported` holds by table and UUID the highest stored control offset,
    `last_events` by table the ids of the last `DATA_WRITTEN` for each of its UUIDs below what the trim deletes. `fed`
    counts by table the batches that named it; `range_jobs` are all that were ever published, those in so many `parts`
    included, without which it stands for nothing. `instant_ms` is the last one that was published.
    """

    through_ms: ByPartition
    reported: Mapping[str, Mapping[str, int]]
    open_findings: tuple[str, ...]
    valid_through_ms: int = 0
    begins: ByPartition = field(default_factory=dict[str, tuple[int, ...]])
    batches: int = 0
    last_events: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    fed: Mapping[str, int] = field(default_factory=dict[str, int])
    range_jobs: tuple[RangeJob, ...] = ()
    parts: int = 0
    instant_ms: int = 0

    @property
    def min_reader(self) -> int:
        if self.parts:
            return PARTED_READER
        if any(job.letters for job in self.range_jobs):
            return REMOVING_READER
        return REPLACING_READER if any(job.replaces for job in self.range_jobs) else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPart(Event):
    """Range jobs of a checkpoint that follows, whose event id is `checkpoint_id`; of one with many ranges some of them.

    One message could not hold those of any number of jobs.
    """

    event_type: ClassVar[str] = "CHECKPOINT_PART"
    checkpoint_id: str
    range_jobs: tuple[RangeJob, ...]

    @property
    def min_reader(self) -> int:
        return PARTED_READER
