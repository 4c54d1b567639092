"""The moments that batches have in the timeline of a table, where the format gives it one (Hudi's instant). Pure.

A batch is committed under its instant and no other, however often that is tried: so two must never have the same. Those
of batches rise along the chain of publishes, those of range jobs along that of the token. The two chains know nothing
of each other, nor do both know when somebody changes a table's columns: each has milliseconds of its own.
"""

from __future__ import annotations

from typing import Literal

MOST_AHEAD_S = 60
"""How far an instant may be ahead of the clock of a machine that commits it; the commit then waits."""

Chain = Literal["batch", "range job", "table"]
_STEP_MS = 4
_PLACE_MS: dict[Chain, int] = {"batch": 0, "range job": 2, "table": 1}


def next_instant(last_ms: int, now_ms: int, chain: Chain) -> int:
    """The first instant of a chain that is neither before now nor before the last one that is known, in milliseconds
    since 1970.
    """
    earliest = max(now_ms, last_ms + 1)
    return earliest + (_PLACE_MS[chain] - earliest) % _STEP_MS
