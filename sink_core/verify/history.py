"""The control log's proof: batches follow each other without a hole, and no position moves backwards. Pure.

The fold keeps per batch what ledger and tables are held against; the positions of each event are reduced to a digest,
so that memory grows with the number of batches and not with their partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sink_core.control.events import Checkpoint, DataComplete, DataWritten, Event
from sink_core.control.state import dense_to_offsets
from sink_core.offsets import TopicPartition
from sink_core.verify.ledger import digest
from sink_core.verify.report import Evidence


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

    `begins` are the positions of the bootstrap, empty if it is no longer in the log; `trimmed` says that a checkpoint
    stands for earlier batches.
    """

    topic: str
    batches: dict[str, Published] = field(default_factory=dict[str, Published])
    begins: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    trimmed: bool = False
    _last: str = ""
    _rows: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def apply(self, offset: int, event: Event, evidence: Evidence) -> None:
        evidence.count("control events")
        match event:
            case DataWritten():
                rows = self._rows.setdefault(event.batch_id, {})
                rows[event.table] = rows.get(event.table, 0) + event.rows
            case DataComplete():
                self._complete(offset, event, evidence)
            case Checkpoint() if not self.batches:
                self.trimmed = True
                self._last = event.last_complete_batch_id or ""
                self.positions = dense_to_offsets(event.positions)
            case _:
                pass

    def finish(self, evidence: Evidence) -> None:
        """Whatever was written must have been completed: both come in one transaction."""
        for batch_id in self._rows:
            message = f"batch {batch_id} has DATA_WRITTEN events and no DATA_COMPLETE"
            evidence.violation("batch-incomplete", self.topic, message, batches=(batch_id,))

    def _complete(self, offset: int, event: DataComplete, evidence: Evidence) -> None:
        batch_id, rows = event.batch_id, self._rows.pop(event.batch_id, {})
        if batch_id in self.batches:
            message = f"batch {batch_id} is published at control offsets {self.batches[batch_id].offset} and {offset}"
            evidence.violation("batch-published-twice", self.topic, message, batches=(batch_id,))
        known = set(self.positions)
        moved = self._move(event, evidence) if event.moves_positions else {}
        new = moved.keys() - known
        self.batches[batch_id] = Published(
            offset=offset,
            kind=event.kind,
            tables=event.tables,
            totals=event.totals,
            ends=digest((at, end) for at, end in moved.items() if at not in new),
            new={at: moved[at] for at in new},
            rows=rows,
        )
        unnamed = sorted(rows.keys() - set(event.tables))
        if unnamed:
            message = f"batch {batch_id} wrote {', '.join(unnamed)}; its DATA_COMPLETE names {', '.join(event.tables)}"
            evidence.violation("batch-incomplete", self.topic, message, batches=(batch_id,))

    def _move(self, event: DataComplete, evidence: Evidence) -> dict[TopicPartition, int]:
        """Check that the batch continues the one before; the positions it moved, new partitions included."""
        ends = dense_to_offsets(event.positions)
        if event.predecessor != self._last:
            before = self._last or "none"
            message = f"batch {event.batch_id} continues batch {event.predecessor or 'none'}; before it is {before}"
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
