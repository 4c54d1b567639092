"""What a soak found: its faults and how long each took to heal, its processes over time, and the count at the end."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GROWTH = 0.1
LEAST_GROWTH = 20
"""A process is not flat if the last third of its samples lies higher than the middle third by more than this part, and
by more than so many megabytes or handles."""
FEWEST_SAMPLES = 6


@dataclass(frozen=True, slots=True)
class Healed:
    """A fault, and the seconds until what it hit worked again; None if it had not when the soak ended."""

    fault: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Count:
    """Of rows at the end, by Spark; `proven` is the word of `calve verify --deep`."""

    sent: int
    lost: int
    twice: int
    foreign_sent: int
    foreign_lost: int
    foreign_twice: int
    proven: bool

    @property
    def right(self) -> bool:
        return self.proven and not (self.lost or self.twice or self.foreign_lost or self.foreign_twice)

    @property
    def silent(self) -> int:
        """Records that are wrong although the proof holds."""
        return self.lost + self.twice if self.proven else 0


@dataclass(frozen=True, slots=True)
class Trend:
    """Samples of one figure of a process over time; `per_hour` is the slope of a line through them."""

    process: str
    figure: str
    first: float
    median: float
    last: float
    per_hour: float
    flat: bool


def trend(process: str, figure: str, samples: Sequence[tuple[float, float]]) -> Trend:
    """Of `(seconds, value)`, oldest first."""
    values = [value for _, value in samples]
    third = len(values) // 3
    flat = True
    if len(values) >= FEWEST_SAMPLES:
        middle = statistics.median(values[third:-third])
        flat = statistics.median(values[-third:]) <= middle + max(LEAST_GROWTH, GROWTH * middle)
    slope = statistics.linear_regression(*zip(*samples, strict=True)).slope if len(values) > 1 else 0.0
    return Trend(process, figure, values[0], statistics.median(values), values[-1], 3600 * slope, flat)


def fault_table(healed: Iterable[Healed], count: Count) -> str:
    """A row for each kind of fault, and one for all; which fault a wrong record is due to nobody can tell."""
    by_fault: dict[str, list[Healed]] = {}
    for one in sorted(healed, key=lambda h: h.fault):
        by_fault.setdefault(one.fault, []).append(one)
    known = "0" if not (count.lost or count.twice) else "?"
    lines = [
        "| what was done | times | lost | twice | silent | works again after s, median | longest |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for fault, found in by_fault.items():
        lines.append(f"| {fault} | {len(found)} | {known} | {known} | {known} | {_seconds(found)} |")
    everything = [one for found in by_fault.values() for one in found]
    wrong = f"{count.lost:,} | {count.twice:,} | {count.silent:,}"
    return "\n".join([*lines, f"| all | {len(everything)} | {wrong} | {_seconds(everything)} |"])


def trend_table(trends: Iterable[Trend]) -> str:
    lines = ["| process | | first | median | last | an hour | |", "|---|---|---:|---:|---:|---:|---|"]
    for t in trends:
        figures = f"{t.first:,.0f} | {t.median:,.0f} | {t.last:,.0f} | {t.per_hour:+,.0f}"
        lines.append(f"| {t.process} | {t.figure} | {figures} | {'flat' if t.flat else 'GROWS'} |")
    return "\n".join(lines)


def document(healed: Iterable[Healed], trends: Iterable[Trend], count: Count) -> dict[str, Any]:
    """All of it for machines."""
    counted = {**asdict(count), "silent": count.silent, "right": count.right}
    return {"faults": [asdict(h) for h in healed], "processes": [asdict(t) for t in trends], "count": counted}


def _seconds(found: Sequence[Healed]) -> str:
    took = [one.seconds for one in found if one.seconds is not None]
    never = len(found) - len(took)
    median = f"{statistics.median(took):.1f}" if took else ""
    longest = f"{never} not yet" if never else f"{max(took, default=0):.1f}"
    return f"{median} | {longest}"
