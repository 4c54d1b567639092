"""What the table is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Aim, Figure
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

    def figure(self, m: Measured, more: Mapping[str, float] = {}) -> Figure:
        """What was measured of it, with `more` beside it."""
        aim = Aim(self.aim, of_ratio=True) if self.aim else None
        beside = {"records/s": round(m.records / m.wall_s), "CPU-s": round(m.cpu_s, 1), "s": round(m.wall_s, 1)}
        rate = round(m.records_per_cpu_s)
        return Figure(self.name, self.what, rate, "records/CPU-s", aim, self.peer, {**beside, **more})


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is run for one row or several: `run` gives a measurement for each of `rows`."""

    rows: tuple[Row, ...]
    run: Callable[[Bench], Sequence[Measured]]
