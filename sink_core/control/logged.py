"""An event where it stands in the log, and the range jobs that events tell of. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from calve.sink_core.control.events import DataComplete, DataWritten, Event
from calve.sink_core.control.range_parts import RangeJob

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Logged(Generic[E]):
    """An event and its offset in the control topic."""

    offset: int
    event: E


def jobs_of(event: DataComplete, written: Mapping[str, Sequence[Logged[DataWritten]]]) -> Iterator[RangeJob]:
    """The range job that `event` completes, once for each of its tables. `written` holds its `DATA_WRITTEN`s last."""
    own = {table: _own(event, written.get(table, ())) for table in event.tables}
    letters = any(each is not None and each.removes for each in own.values())
    for table, each in own.items():
        moved = letters and not (each is not None and each.removes)
        yield RangeJob(
            batch_id=event.batch_id,
            table=table,
            resolves=each is not None and each.resolves is not None,
            batches=event.totals.get("batches", 0),
            ranges=tuple(part for part in event.ranges if part.rows) if moved else event.ranges,
            replaces=each is not None and each.replaces is not None,
            letters=letters,
            topic_ids=event.topic_ids if letters else {},
        )


def _own(event: DataComplete, written: Sequence[Logged[DataWritten]]) -> DataWritten | None:
    last = written[-1].event if written else None
    return last if last is not None and last.batch_id == event.batch_id else None
