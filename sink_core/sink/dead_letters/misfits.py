"""Which fields of which tables records have stopped to fit: what an incompatible schema change leaves behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.read.rows import rows_added_since
from calve.sink_core.records.decode.decoded import FIT
from calve.sink_core.sink.dead_letters.listing import folded
from calve.sink_core.sink.loop.session import Session

_COLUMNS = ("stage", "error", "timestamp")
_PARSED = re.compile(r"(.+): (?:\w+, not \w+|was specified twice)$")
"""What JSON's parser says, of names of any letters."""
_NAMED = re.compile(r"([^\s:'\"]+): ")


@dataclass(frozen=True, slots=True)
class Misfits:
    """`records` that could be decoded and did not fit `field` of `table`; `since` is the time of the earliest of them
    (ISO 8601, UTC), None if none has one. `table` is empty where the error names none.
    """

    table: str
    field: str
    records: int
    since: str | None

    def __str__(self) -> str:
        began = f", since {self.since}" if self.since else ""
        where = f"{self.field} of {self.table}" if self.table else self.field
        letters = "1 dead letter doesn't" if self.records == 1 else f"{self.records:,} dead letters don't"
        return f"{letters} fit {where}{began}"


def misfits(session: Session, now: datetime) -> tuple[Misfits, ...]:
    """By field, of the dead letters that are still there; the most first.

    One counts for `objectives.schema_misfits` from the commit that brought it: what nobody mends is not news for ever.
    Reads three columns of these files, one file at a time. None if there is no such table yet. Raises Unreachable.
    """
    table = load_if_there(session.catalog, session.pipeline.dead_letter_table)
    if table is None:
        return ()
    since = now - timedelta(seconds=session.pipeline.config.objectives.schema_misfits)
    rows = _rows(rows_added_since(table, _COLUMNS, since.timestamp() * 1000))
    return counted(rows, [table.name for table in session.pipeline.tables])


def counted(rows: Iterable[tuple[str, str, datetime | None]], tables: Sequence[str]) -> tuple[Misfits, ...]:
    """`rows` are stages, errors and timestamps of dead letters."""
    found: dict[tuple[str, str], tuple[int, datetime | None]] = {}
    for stage, error, at in rows:
        if stage == FIT:
            number, first = found.get(key := place_of(error, tables), (0, None))
            found[key] = (number + 1, min((t for t in (first, at) if t is not None), default=None))
    made = [
        Misfits(*key, number, first.astimezone(UTC).isoformat(timespec="seconds") if first else None)
        for key, (number, first) in found.items()
    ]
    return tuple(sorted(made, key=lambda each: (-each.records, each.table, each.field)))


def place_of(error: str, tables: Sequence[str]) -> tuple[str, str]:
    """Table and field that an error of stage `fit` names; in place of a field the error without what differs."""
    table = next((name for name in tables if error.startswith(f"{name}: ")), None)
    said = error if table is None else error.removeprefix(f"{table}: ")
    if table is None and len(tables) == 1:
        table = tables[0]
    named = _PARSED.match(said) or _NAMED.match(said)
    return table or "", named[1] if named else folded(said)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str, datetime | None]]:
    for batch in batches:
        yield from zip(*(_column(batch, name) for name in _COLUMNS), strict=True)


def _column(batch: pa.RecordBatch, name: str) -> list[object]:
    return batch.column(name).to_pylist()
