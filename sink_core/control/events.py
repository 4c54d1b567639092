"""The events on the control topic as frozen values, and their form on the wire.

A message's value is an Avro object container file with one record: it carries the schema it was written with, and in
its metadata the lowest reader version that understands it. Names and meanings follow the Iceberg Kafka Connect sink's
events where it has them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, ClassVar, cast

from calve.sink_core.batch import ManifestRef, PartitionSummary, ToMerge, rows_in
from calve.sink_core.control.container import opened, packed
from calve.sink_core.control.range_parts import RangeJob, RangeRead, Replaces, Resolves
from calve.sink_core.control.schemas import (
    CHANGING_READER,
    MERGING_READER,
    MIN_READER,
    PARTED_READER,
    READER_VERSION,
    REMOVING_READER,
    REPLACING_READER,
)
from calve.sink_core.counts import Dropped
from calve.sink_core.errors import ForeignEvent, ProtocolError

CALVE_VERSION = version("calve")
ByPartition = Mapping[str, tuple[int, ...]]
"""A long per partition and topic; -1 where there is none."""


def _new_id() -> str:
    return str(uuid.uuid4())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """What every event says. `written_at_ms` is the writer's clock: shown, never decided on."""

    event_type: ClassVar[str]
    pipeline_id: str
    event_id: str = field(default_factory=_new_id)
    written_at_ms: int = field(default_factory=_now_ms)
    calve_version: str = CALVE_VERSION

    @property
    def min_reader(self) -> int:
        """The lowest reader version that understands the event."""
        return MIN_READER[self.event_type]


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineBound(Event):
    """First use of a pipeline's name; the first in the log wins. A later one of the same id binds it anew."""

    event_type: ClassVar[str] = "PIPELINE_BOUND"
    pipeline: str
    deployment: str
    catalog_fingerprint: str
    cluster_id: str
    control_topic_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StartCommit(Event):
    """A plan exists and its files may begin to appear below `file_prefix`. For people; no rule rests on it."""

    event_type: ClassVar[str] = "START_COMMIT"
    batch_id: str
    predecessor: str
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
        return REPLACING_READER if self.replaces else MIN_READER[self.event_type]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataComplete(Event):
    """A batch is published: all its `DATA_WRITTEN`s are there, and the positions moved in the same transaction.

    `kind` is `bootstrap`, `batch` or `range`; a range job moves no position. `positions` are the next offsets of every
    partition afterwards; `through_ms` says per partition up to which record timestamp it has been read. `ranges` are
    what a range job has read; `dropped` are fields that tables have no column for.
    """

    event_type: ClassVar[str] = "DATA_COMPLETE"
    batch_id: str
    predecessor: str
    kind: str
    tables: tuple[str, ...]
    totals: Mapping[str, int]
    topic_ids: Mapping[str, str]
    positions: ByPartition
    through_ms: ByPartition
    through_is_estimate: bool
    value_bytes_by_topic: Mapping[str, int]
    records_by_topic: Mapping[str, int]
    ledger_manifest: str | None = None
    ranges: tuple[RangeRead, ...] = ()
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])

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
    """A coordinator went through all tables; every event below `through_offset` is in its table."""

    event_type: ClassVar[str] = "COMMIT_COMPLETE"
    commit_id: str
    through_offset: int
    tables_behind: tuple[str, ...]
    valid_through_ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint(Event):
    """Everything below `up_to_offset` folded into one event, so that it can be trimmed.

    `through_ms` is of every partition ever read, `former_positions` of those that the last publish left out and
    `former_topic_ids` of their topics; `begins` are the start positions. `batches` counts those published, the
    bootstrap and range jobs left out. `last_events` holds by table the ids of the last `DATA_WRITTEN` for each of its
    UUIDs below what the trim deletes, which ends at `delete_below`: what lies above is still needed. `fed` counts by
    table the batches that named it; `range_jobs` are all that were ever published, those in so many `parts` included,
    without which it stands for nothing.
    """

    event_type: ClassVar[str] = "CHECKPOINT"
    up_to_offset: int
    pipeline: str
    deployment: str
    catalog_fingerprint: str
    cluster_id: str
    control_topic_id: str
    paused_by: str | None
    last_complete_batch_id: str | None
    positions: ByPartition
    topic_ids: Mapping[str, str]
    through_ms: ByPartition
    told: Mapping[str, Mapping[str, int]]
    open_findings: tuple[str, ...]
    paused_reason: str = ""
    paused_at_ms: int = 0
    resumed_by: str | None = None
    resumed_at_ms: int = 0
    resolved_at_ms: int = 0
    valid_through_ms: int = 0
    begins: ByPartition = field(default_factory=dict[str, tuple[int, ...]])
    former_positions: ByPartition = field(default_factory=dict[str, tuple[int, ...]])
    former_topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    batches: int = 0
    last_events: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    fed: Mapping[str, int] = field(default_factory=dict[str, int])
    range_jobs: tuple[RangeJob, ...] = ()
    delete_below: int = -1
    parts: int = 0

    @property
    def min_reader(self) -> int:
        if self.parts:
            return PARTED_READER
        if any(job.letters for job in self.range_jobs):
            return REMOVING_READER
        return REPLACING_READER if any(job.replaces for job in self.range_jobs) else MIN_READER[self.event_type]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPart(Event):
    """Range jobs of a checkpoint that follows, whose event id is `checkpoint_id`; of one with many ranges some of them.

    One message could not hold those of any number of jobs.
    """

    event_type: ClassVar[str] = "CHECKPOINT_PART"
    checkpoint_id: str
    range_jobs: tuple[RangeJob, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused(Event):
    """All hosts stop planning and committing."""

    event_type: ClassVar[str] = "PAUSED"
    by: str
    reason: str

    def __str__(self) -> str:
        return f"paused by {self.by}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed(Event):
    """The end of a pause."""

    event_type: ClassVar[str] = "RESUMED"
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved(Event):
    """Somebody answered a finding."""

    event_type: ClassVar[str] = "RESOLVED"
    finding: str
    subject: str
    choice: str
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchAbandoned(Event):
    """A batch was given up, so that nobody waits for it. The mark in the group's metadata is what stops it."""

    event_type: ClassVar[str] = "BATCH_ABANDONED"
    batch_id: str


EVENT_TYPES: dict[str, type[Event]] = {
    cls.event_type: cls
    for cls in (
        PipelineBound,
        StartCommit,
        DataWritten,
        DataComplete,
        CommitToTable,
        CommitComplete,
        Checkpoint,
        CheckpointPart,
        Paused,
        Resumed,
        Resolved,
        BatchAbandoned,
    )
}


def encode(event: Event) -> bytes:
    """The message value of an event."""
    return packed(event.event_type, asdict(event), min_reader=event.min_reader)


def decode(value: bytes) -> Event:
    """The event in a message value.

    Raises ForeignEvent for what no Calve has written, ProtocolError for an event that this version does not know or may
    not read: the reader must stop.
    """
    try:
        container = opened(value)
    except Exception as error:  # bytes of others fail in as many ways as Avro, zlib and JSON can
        raise _foreign(error) from error
    _check_readable(container.name, container.min_reader)
    try:
        return _build(EVENT_TYPES[container.name], container.record())
    except Exception as error:
        raise _foreign(error) from error


def _foreign(error: Exception) -> ForeignEvent:
    return ForeignEvent(
        f"the control topic holds a message that is not an event of Calve ({type(error).__name__}: {error})",
        hint="nothing else may write to the control topic; see docs/operations.md, 'foreign-events'",
    )


def _check_readable(name: str, min_reader: int) -> None:
    hint = "upgrade this host: a newer Calve has written to the pipeline; nothing was committed"
    if name not in EVENT_TYPES:
        raise ProtocolError(
            f"event {name} is not among the {len(EVENT_TYPES)} types that this Calve {CALVE_VERSION} knows", hint=hint
        )
    if min_reader > READER_VERSION:
        raise ProtocolError(
            f"event {name} needs reader version {min_reader}, this Calve {CALVE_VERSION} reads up to {READER_VERSION}",
            hint=hint,
        )


def _build(cls: type[Event], record: dict[str, Any]) -> Event:
    for key, value in record.items():
        if isinstance(value, list) and key != "manifests":
            record[key] = tuple(cast(list[Any], value))
    for key in ("positions", "through_ms", "begins", "former_positions", "last_events"):
        if key in record:
            record[key] = {name: tuple(values) for name, values in record[key].items()}
    if cls is DataWritten:
        record["manifests"] = tuple(_manifest(m) for m in record["manifests"])
        record["resolves"] = Resolves(**record["resolves"]) if record["resolves"] else None
        record["replaces"] = _replaces(record["replaces"]) if record["replaces"] else None
        record["to_merge"] = _to_merge(record["to_merge"]) if record["to_merge"] else None
    if cls is DataComplete:
        record["ranges"] = _ranges(record["ranges"])
    if cls in (Checkpoint, CheckpointPart):
        record["range_jobs"] = tuple(_range_job(job) for job in record["range_jobs"])
    return cls(**record)


def _ranges(records: list[dict[str, Any]]) -> tuple[RangeRead, ...]:
    return tuple(RangeRead(**each) for each in records)


def _range_job(record: dict[str, Any]) -> RangeJob:
    fields: dict[str, Any] = {**record, "ranges": _ranges(record["ranges"])}
    return RangeJob(**fields)


def _replaces(record: dict[str, Any]) -> Replaces:
    gone, kept = (tuple(_manifest(m) for m in record[key]) for key in ("gone", "kept"))
    return Replaces(base_snapshot_id=record["base_snapshot_id"], gone=gone, kept=kept)


def _to_merge(record: dict[str, Any]) -> ToMerge:
    fields: dict[str, Any] = {**record, "key": tuple(record["key"])}
    return ToMerge(**fields)


def _manifest(record: dict[str, Any]) -> ManifestRef:
    partitions = tuple(PartitionSummary(**p) for p in record["partitions"])
    fields: dict[str, Any] = {**record, "partitions": partitions}
    return ManifestRef(**fields)
