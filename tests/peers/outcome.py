"""What a scenario did to a peer, counted, and the table of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

COLUMNS = ("scenario", "", "lost", "twice", "said", "seconds")
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one scenario on one peer.

    `lost` and `twice` count records of `produced` at the end, `unreadable` that the table could not be read (nothing
    is counted then). `said` are the errors it showed, `did` what was done about them. `delays_s` are the seconds from
    the last record of a series to the moment when all are visible, where that is what is looked at. `failed` says why
    a scenario could not be played to its end; nothing else counts then.
    """

    scenario: str
    peer: str
    produced: int
    lost: int = 0
    twice: int = 0
    unreadable: bool = False
    said: tuple[str, ...] = ()
    did: tuple[str, ...] = ()
    delays_s: tuple[float, ...] = ()
    failed: str = ""

    @property
    def right(self) -> bool:
        """Whether every record is there once."""
        return not (self.lost or self.twice or self.unreadable or self.failed)

    @property
    def silent(self) -> bool:
        """Whether something is wrong and nothing was said."""
        return not self.right and not self.said and not self.failed


def counted(expected: int, ids: Iterable[int]) -> tuple[int, int]:
    """How many of the ids 0 … `expected` - 1 are not among `ids`, and how many of `ids` are too many."""
    seen = Counter(ids)
    return sum(n not in seen for n in range(expected)), sum(n - 1 for n in seen.values())


def table(outcomes: Iterable[Outcome], what: Mapping[str, str]) -> str:
    """A row for each outcome, in Markdown; `what` says what was done in a scenario."""
    rows = [_row(outcome, what[outcome.scenario]) for outcome in outcomes]
    head = [f"| {' | '.join(COLUMNS)} |", "|---|---|---:|---:|---|---:|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def document(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [{**asdict(outcome), "right": outcome.right, "silent": outcome.silent} for outcome in outcomes]


def _row(outcome: Outcome, what: str) -> tuple[str, ...]:
    lost, twice = f"{outcome.lost:,}", f"{outcome.twice:,}"
    if outcome.unreadable:
        lost, twice = "table unreadable", ""
    if outcome.failed:
        lost, twice = "not played to its end", ""
    said = "; ".join(dict.fromkeys((*outcome.said, *outcome.did, *filter(None, [outcome.failed])))) or NOTHING
    seconds = ", ".join(f"{delay:.1f}" for delay in outcome.delays_s)
    return (what, outcome.peer, lost, twice, said.replace("|", "/"), seconds)
