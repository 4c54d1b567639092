"""The small values that travel between plan, write, publish and commit. All of them are JSON-able."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from calve.sink_core.counts import Dropped, PartitionCounts
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.tasks import WrittenBy


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch: which offsets, cut into tasks.

    `ranges` holds every partition of the source, idle ones included (start = end). `tasks` holds non-empty slices of
    those ranges, one tuple per Spark task; together they cover `ranges` exactly, without overlap, and a partition is at
    most once in a task. `broker_time_ms` was read from the broker before the end offsets were: whatever is appended
    later under LogAppendTime carries a later timestamp. `instant_ms` is its moment in the timelines of tables that have
    one, later than those of all batches before it.
    """

    batch_id: str
    predecessor: str
    ranges: tuple[OffsetRange, ...]
    tasks: tuple[tuple[OffsetRange, ...], ...]
    topic_ids: Mapping[str, str]
    broker_time_ms: int
    estimated_bytes: int
    instant_ms: int = 0

    @property
    def offsets(self) -> int:
        """Offsets in the batch; records are at most that many."""
        return sum(r.span for r in self.ranges)


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """Bounds of one partition field over a manifest (Iceberg spec, `field_summary`)."""

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest that was written for a batch and that no snapshot names yet.

    `length` and `data_bytes` in bytes; `sha256` of the manifest's content, in hex. `content` 0 = data, 1 = deletes.
    """

    path: str
    length: int
    sha256: str
    content: int
    spec_id: int
    files: int
    rows: int
    data_bytes: int
    partitions: tuple[PartitionSummary, ...]

    @property
    def deletes(self) -> bool:
        """Whether it names delete files; `rows` then counts the keys in them."""
        return self.content == 1


def rows_in(manifests: Iterable[ManifestRef]) -> int:
    """Rows of the data files that the manifests name."""
    return sum(manifest.rows for manifest in manifests if not manifest.deletes)


@dataclass(frozen=True, slots=True)
class ToMerge:
    """How row changes were written that are to be merged: rows are told apart by `key` (field ids), and the newer one
    is that with the larger `order` (field id), if given, else the later one.

    `keeps_old`: where they say `KEEP` the row's old value stays. `soft`: rows that are gone are still there, marked.
    """

    key: tuple[int, ...]
    order: int | None = None
    keeps_old: bool = False
    soft: bool = False

    @property
    def needs_merge(self) -> bool:
        """Whether equality deletes can't bring them in: the changes were not held against the table's rows."""
        return self.order is not None or self.keeps_old


@dataclass(frozen=True, slots=True)
class TableOutput:
    """What a batch holds for one table. `manifests` is empty when the batch has no row for it.

    `changes` are the records that its rows and deletes stand for, None for a table that takes no row changes.
    `to_merge` says how these were written, if to be merged.
    """

    table: str
    table_uuid: str
    schema_id: int
    manifests: tuple[ManifestRef, ...] = ()
    changes: int | None = None
    to_merge: ToMerge | None = None

    @property
    def rows(self) -> int:
        """Records that it stands for."""
        return rows_in(self.manifests) if self.changes is None else self.changes

    @property
    def files(self) -> int:
        return sum(m.files for m in self.manifests)

    @property
    def data_bytes(self) -> int:
        return sum(m.data_bytes for m in self.manifests)


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch whose files exist and that nobody has published yet.

    `tables` names every table the batch feeds, those with zero rows, the ledger and the dead letters included.
    """

    plan: BatchPlan
    tables: tuple[TableOutput, ...]
    counts: tuple[PartitionCounts, ...]
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])
    written_by: WrittenBy | None = None

    @property
    def records(self) -> int:
        return sum(c.records for c in self.counts)

    @property
    def value_bytes(self) -> int:
        return sum(c.value_bytes for c in self.counts)
