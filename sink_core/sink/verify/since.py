"""A proof of the last batches only: which they are, and which files can hold something of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from calve.sink_core.offset_sets import of_range
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.ledger.stored_offsets import Held
from calve.sink_core.sink.verify.history import Published
from calve.sink_core.tables.format.proven import RowsOfRuns, RowsSince
from calve.sink_core.tables.log.range_parts import RangeRead

SKEW_MS = 3_600_000
"""How far clocks may be apart: a batch planned at the next broker may seem older than the one before it."""

_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Window:
    """`batches` were planned since a moment, or follow one that was; `begins` has by place their first offset.

    `announced` are those that the log says were planned since, also if the ledger lacks them.
    """

    batches: frozenset[str]
    begins: Mapping[TopicPartition, int]
    announced: frozenset[str] = frozenset()

    def published(self, batches: Mapping[str, Published]) -> dict[str, Published]:
        """Those of `batches`, in the order of the log, from the first of the window on."""
        known = self.batches | self.announced
        first = next((i for i, batch_id in enumerate(batches) if batch_id in known), len(batches))
        return dict(list(batches.items())[first:])

    def rows(self, *, struct: str | None) -> RowsOfRuns:
        """Rows of these batches in a table whose `struct`, or whose columns, say the offset of each."""
        return RowsOfRuns({at: ((start, _LAST),) for at, start in self.begins.items()}, struct)

    def within(self, parts: Iterable[RangeRead]) -> list[RangeRead]:
        """Those ranges that lie in the window as a whole."""
        return [part for part in parts if part.start >= self.begins.get(part.at, _LAST)]

    def cut(self, held: Held) -> None:
        """Forget what lies before the window."""
        for sets in (held.seen, held.twice):
            for at in list(sets):
                if at in self.begins:
                    sets[at] -= of_range(0, self.begins[at])
                if at not in self.begins or not sets[at]:
                    del sets[at]


def window_of(rows: Iterable[LedgerRow], since_ms: int, started_ms: Mapping[str, int]) -> Window:
    """The window that begins at `since_ms`. `rows` are those planned up to `SKEW_MS` before it, or more; `started_ms`
    says by its writer's clock when each batch was planned, as far as the log knows.

    A batch is in it also if another one is that comes before it in some partition: what follows has no holes then.
    """
    known = [row for row in rows if row.end > row.start]
    batches = {row.batch_id for row in known if row.planned_ms >= since_ms}
    begins: dict[TopicPartition, int] = {}
    size = -1
    while size < len(batches):
        size = len(batches)
        for row in known:
            if row.batch_id in batches:
                begins[row.place] = min(row.start, begins.get(row.place, row.start))
        batches |= {row.batch_id for row in known if row.start >= begins.get(row.place, _LAST)}
    announced = frozenset(batch_id for batch_id, at in started_ms.items() if at >= since_ms + SKEW_MS)
    return Window(frozenset(batches), begins, announced)


def planned_since(since_ms: int) -> RowsSince:
    """Rows of the ledger planned up to `SKEW_MS` before `since_ms`."""
    return RowsSince("planned_at", since_ms - SKEW_MS)


def shown(since_ms: int) -> str:
    """The moment as people read it."""
    return datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def created_again(pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Topics that have several ids among (topic, topic id)."""
    ids: dict[str, set[str]] = {}
    for topic, topic_id in pairs:
        ids.setdefault(topic, set()).add(topic_id)
    return {topic for topic, known in ids.items() if len(known) > 1}
