"""The control log's proof: batches follow each other without a hole, and no position moves backwards. Pure.

The fold keeps per batch what ledger and tables are held against, half a kilobyte; the positions of each event are
reduced to a digest, so that memory grows with the number of batches and not with their partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern

from calve.sink_core.control.events import Event
from calve.sink_core.named_counts import NamedCounts
from calve.sink_core.offsets import TopicPartition, batch_id_of, dense_to_offsets
from calve.sink_core.sink.ledger.rows import digest, former_place
from calve.sink_core.tables.log.events import DataComplete, DataWritten, TableCheckpoint
from calve.sink_core.tables.proof import Evidence

_NONE: Mapping[TopicPartition, int] = {}


@dataclass(frozen=True, slots=True)
class Published:
    """A batch as its `DATA_COMPLETE` (at control offset `offset`) and `DATA_WRITTEN`s have it.

    `ends` is the digest of the positions that it moved, without those of partitions that had none before: `new`.
    """

    offset: int
    kind: str
    tables: tuple[str, ...]
    totals: Mapping[str, int]
    ends: int
    new: Mapping[TopicPartition, int]
    rows: Mapping[str, int]


@dataclass(slots=True)
class History:
    """The fold of the control log for the proof.

    `base` is the checkpoint that a trimmed log rests on. Of such a log the first batch is only what the next one
    follows, unless the checkpoint ends below it: what it moved, and all its events, can't be known. `begins` are the
    positions of the bootstrap; `former` are the last positions of topics that were deleted and created again, by their
    place in the ledger, `topic_ids` those of today's; `batches` has what can be held against ledger and tables.
    """

    topic: str
    base: TableCheckpoint | None = None
    batches: dict[str, Published] = field(default_factory=dict[str, Published])
    begins: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    former: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    topic_ids: dict[str, str] = field(default_factory=dict[str, str])
    _last: str | None = ""
    _tables: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict[tuple[str, ...], tuple[str, ...]])
    _rows: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    _on_base: bool = False

    def __post_init__(self) -> None:
        if self.base is not None:
            self.begins, self._last = dense_to_offsets(self.base.begins), None
            self.positions = dense_to_offsets(self.base.former_positions)
            self.topic_ids = dict(self.base.topic_ids)

    @property
    def trimmed_batches(self) -> int | None:
        """How many batches were published that `batches` lacks; None if no checkpoint says so."""
        if self.base is None or not self.base.batches:
            return None
        known = sum(p.kind == "batch" and p.offset < self.base.up_to_offset for p in self.batches.values())
        return self.base.batches - known

    def apply(self, offset: int, event: Event, evidence: Evidence) -> None:
        evidence.count("control events")
        if self.base is not None and offset >= self.base.up_to_offset:
            self._reach_base(self.base, evidence)
        match event:
            case DataWritten():
                rows = self._rows.setdefault(event.batch_id, {})
                rows[event.table] = rows.get(event.table, 0) + event.rows
            case DataComplete():
                self._complete(offset, event, evidence)
            case _:
                pass

    def finish(self, evidence: Evidence) -> None:
        """Whatever was written must have been completed: both come in one transaction."""
        if self.base is not None:
            self._reach_base(self.base, evidence)
        for batch_id in self._rows:
            message = f"batch {batch_id} has DATA_WRITTEN events and no DATA_COMPLETE"
            evidence.violation("batch-incomplete", self.topic, message, batches=(batch_id,))

    def _reach_base(self, base: TableCheckpoint, evidence: Evidence) -> None:
        """Where the checkpoint ends, what the log says must be what it says; once."""
        if self._on_base:
            return
        self._on_base = True
        last, positions = base.last_complete_batch_id or "", dense_to_offsets(base.positions)
        said = f"the checkpoint up to control offset {base.up_to_offset}"
        if self._last is not None and self._last != last:
            message = f"{said} ends with batch {last}, the log there with {self._last}"
            evidence.violation("batch-chain", self.topic, message, batches=(last, self._last))
        elif self._last is not None and any(self.positions.get(at) != end for at, end in positions.items()):
            evidence.violation(
                "batch-chain", self.topic, f"{said} has other positions than batch {last}", batches=(last,)
            )
        self._last = last
        self.positions.update(positions)

    def _complete(self, offset: int, event: DataComplete, evidence: Evidence) -> None:
        batch_id, rows = intern(event.batch_id), self._rows.pop(event.batch_id, {})
        if self._last is None and event.moves_positions:
            self._last = batch_id
            self.positions.update(dense_to_offsets(event.positions))
            return
        if batch_id in self.batches:
            message = f"batch {batch_id} is published at control offsets {self.batches[batch_id].offset} and {offset}"
            evidence.violation("batch-published-twice", self.topic, message, batches=(batch_id,))
        if event.moves_positions:
            self._restart(event)
        known = set(self.positions)
        moved = self._move(event, evidence) if event.moves_positions else {}
        new = moved.keys() - known
        self.batches[batch_id] = Published(
            offset=offset,
            kind=event.kind,
            tables=self._tables.setdefault(event.tables, event.tables),
            totals=NamedCounts(event.totals),
            ends=digest((at, end) for at, end in moved.items() if at not in new),
            new={at: moved[at] for at in new} if new else _NONE,
            rows=NamedCounts(rows),
        )
        unnamed = sorted(rows.keys() - set(event.tables))
        if unnamed:
            message = f"batch {batch_id} wrote {', '.join(unnamed)}; its DATA_COMPLETE names {', '.join(event.tables)}"
            evidence.violation("batch-incomplete", self.topic, message, batches=(batch_id,))

    def _restart(self, event: DataComplete) -> None:
        """A topic with another id begins anew: what is known of its partitions is of one that is gone."""
        for topic, topic_id in event.topic_ids.items():
            before = self.topic_ids.setdefault(topic, topic_id)
            if before == topic_id:
                continue
            self.topic_ids[topic] = topic_id
            for at in [at for at in self.positions if at.topic == topic]:
                place = former_place(at, before)
                self.former[place] = self.positions.pop(at)
                if at in self.begins:
                    self.begins[place] = self.begins.pop(at)

    def _move(self, event: DataComplete, evidence: Evidence) -> dict[TopicPartition, int]:
        """Check that the batch continues the one before; the positions it moved, new partitions included."""
        ends = dense_to_offsets(event.positions)
        if batch_id_of(event.predecessor) != self._last:
            before = self._last or "none"
            follows = batch_id_of(event.predecessor) or "none"
            message = f"batch {event.batch_id} continues batch {follows}; before it is {before}"
            evidence.violation("batch-chain", self.topic, message, batches=(event.batch_id,))
        for at in sorted(ends.keys() & self.positions.keys()):
            if ends[at] < self.positions[at]:
                message = f"batch {event.batch_id} moved {at} back from {self.positions[at]} to {ends[at]}"
                evidence.violation("positions-moved-back", at, message, batches=(event.batch_id,))
        if event.kind == "bootstrap":
            self.begins = dict(ends)
        moved = {at: end for at, end in ends.items() if end != self.positions.get(at)}
        self.positions.update(ends)
        self._last = event.batch_id
        return {} if event.kind == "bootstrap" else moved
