"""What events say of range jobs: what they have read, what they resolve, and what they take the place of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tables.batch import ManifestRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolves:
    """The finding that a range job resolves by being committed."""

    finding: str
    tagged_snapshot_id: int | None
    base_snapshot_id: int | None
    covers_offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaces:
    """What a range job that replaces rows takes out of the table, and puts there beside its own rows.

    `gone` are manifests, made for this, that name the data files to take out: they held rows of its ranges.
    `kept` name new files with all other rows of those. `base_snapshot_id` is the head it was planned on.
    """

    base_snapshot_id: int | None
    gone: tuple[ManifestRef, ...]
    kept: tuple[ManifestRef, ...]

    @property
    def rows(self) -> int:
        """How many rows are taken away."""
        return sum(m.rows for m in self.gone) - sum(m.rows for m in self.kept)


@dataclass(frozen=True, slots=True, order=True)
class RangeRead:
    """Offsets `[start, end)` that a range job has read again, and the rows it wrote of them."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int

    @property
    def span(self) -> int:
        return self.end - self.start

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RangeJob:
    """What stays known of a published range job. `batches` counts those it has read again, all of each.

    `resolves`: it answers a finding, and counts only if it was committed; `replaces`: it took the place of rows, and
    counts only then as well. `letters`: it has tried dead letters again. For a data table `ranges` then are those whose
    records it has got; for the dead letters all that left, where `rows` is 0 if they came back with another error.
    `topic_ids` are of such a job: offsets are those of topics with these ids.
    """

    batch_id: str
    table: str
    resolves: bool
    batches: int
    ranges: tuple[RangeRead, ...]
    replaces: bool = False
    letters: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def conditional(self) -> bool:
        """Whether it counts only if a table's head holds it."""
        return self.resolves or self.replaces
