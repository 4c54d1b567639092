"""What runs and range jobs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a run begins. `phase` is one of start, plan, write, publish, commit, wait, end.

    `offsets` is the size of the batch that is written.
    """

    phase: str
    message: str
    batch_id: str = ""
    offsets: int = 0


OnProgress = Callable[[Progress], None]
