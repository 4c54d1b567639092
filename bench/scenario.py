"""What the table is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Measured


@dataclass(frozen=True, slots=True)
class Bench:
    """What scenarios have in common: the broker's address, the topic and its number of events, a scratch folder."""

    bootstrap: str
    topic: str
    records: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. `peer` names the line that its ratio is of, `aim` is the least that ratio is to be."""

    name: str
    what: str
    peer: str = ""
    aim: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is run for one row or several: `run` gives a measurement for each of `rows`."""

    rows: tuple[Row, ...]
    run: Callable[[Bench], Sequence[Measured]]
