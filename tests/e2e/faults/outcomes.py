"""What became of each process that was killed or put to sleep, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from tests.e2e.faults.world import Difference

PROPERTY = "outcome"
"""Under this name a test's report carries its outcomes, also from one of several test processes."""

STEPS = ("start", "bind", "plan", "write", "publish", "commit", "range", "orphans", "trim", "resolve")
HEAD = ("scenario", "times", "lost", "twice", "silent", "recovered in s (median, max)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One process that was killed or asleep.

    `lost` and `twice` count records, `recovered_s` is the wall time of what was done next and left alone. `silent`:
    that ended well, or the proof did, although something is lost or twice.
    """

    scenario: str
    step: str
    lost: int
    twice: int
    silent: bool
    recovered_s: float

    @classmethod
    def of(cls, scenario: str, step: str, difference: Difference, recovered_s: float) -> Outcome:
        """After commands that all ended well; so whatever is wrong is silent."""
        lost = difference.lost + difference.dead_letters_lost
        twice = difference.twice + difference.foreign + difference.dead_letters_twice
        return cls(scenario, step, lost, twice, not difference.none, round(recovered_s, 3))

    @property
    def right(self) -> bool:
        return not (self.lost or self.twice or self.silent)


Tell = Callable[[Outcome], None]
"""Notes an outcome in the test's report, then fails if it is not right."""


def telling(record_property: Callable[[str, object], None]) -> Tell:
    """With pytest's `record_property`."""

    def tell(outcome: Outcome) -> None:
        record_property(PROPERTY, astuple(outcome))
        assert outcome.right, asdict(outcome)

    return tell


def told(properties: Iterable[tuple[str, Any]]) -> list[Outcome]:
    """The outcomes among a report's properties."""
    return [Outcome(*value) for name, value in properties if name == PROPERTY]


def table(outcomes: Iterable[Outcome]) -> str:
    """Markdown: a row for each scenario and step, and one of sums."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault((outcome.scenario, outcome.step), []).append(outcome)
    ordered = sorted(found, key=lambda key: (key[0], STEPS.index(key[1]) if key[1] in STEPS else len(STEPS), key[1]))
    rows = [_row(f"{scenario} {step}".strip(), found[scenario, step]) for scenario, step in ordered]
    rows.append(_row("all", [outcome for group in found.values() for outcome in group]))
    return "\n".join(_line(cells) for cells in (HEAD, ("---", *("---:",) * (len(HEAD) - 1)), *rows))


def _row(name: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    took = sorted(outcome.recovered_s for outcome in outcomes) or [0.0]
    return (
        name,
        f"{len(outcomes):,}",
        f"{sum(outcome.lost for outcome in outcomes):,}",
        f"{sum(outcome.twice for outcome in outcomes):,}",
        f"{sum(outcome.silent for outcome in outcomes):,}",
        f"{took[len(took) // 2]:.1f}, {took[-1]:.1f}",
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
