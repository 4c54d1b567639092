"""What a row of the table is made of."""

from __future__ import annotations

from collections.abc import Callable
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
class Scenario:
    """A row. `aim` in records per CPU-second, if there is one; `peer` names the row that its ratio is of."""

    name: str
    what: str
    run: Callable[[Bench], Measured]
    aim: int | None = None
    peer: str = ""
