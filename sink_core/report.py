"""A report: what it says to people, in lines and tables, and to machines, as a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from calve.sink_core.finding import PROVEN, VIOLATED
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.wording import counted

GOOD, WARNING, BAD = "green", "yellow", "red"

MOST_ROWS = 50
"""Of a table that may be of any length; the document has all."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence, coloured where it is no plain news."""

    text: str
    style: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells below the names of their columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Shown = Line | Table


class Report(Protocol):
    """What a command has to say."""

    def lines(self) -> Iterable[Shown]:
        """For people."""
        ...

    def to_json(self) -> Any:
        """For machines."""
        ...


def long_table(title: str, columns: Sequence[str], rows: Sequence[T], cells: Any) -> Iterator[Shown]:
    """The first `MOST_ROWS` rows, whose cells `cells` gives, and how many more there are."""
    yield Table(title, columns, [cells(row) for row in rows[:MOST_ROWS]])
    if len(rows) > MOST_ROWS:
        yield Line(f"and {len(rows) - MOST_ROWS:,} more; --json has all")


def number(of: int | None) -> str:
    """`1,234`, or `-` where there is none."""
    return "-" if of is None else f"{of:,}"


def records(of: int) -> str:
    """`1 record`, `2,000 records`."""
    return counted(of, "record", "records")


def range_cells(part: OffsetRange) -> list[str]:
    """Topic, partition, start, end and number of offsets."""
    return [part.topic, str(part.partition), *map(number, (part.start, part.end, part.span))]


def verdict_line(verdict: str, proven: str) -> Line:
    """How a proof ended, `proven` if it holds."""
    if verdict == PROVEN:
        return Line(proven, GOOD)
    return Line("NOT proven", BAD) if verdict == VIOLATED else Line("nothing to prove: has not run", WARNING)
