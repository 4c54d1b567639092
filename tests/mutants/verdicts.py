"""What became of a mutant, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.mutants.mutant import Mutant
from tests.mutants.tries import Failure, Ran

_KILLING = {"builtins.AssertionError", "builtins.Failed", "calve.sink_core.errors.CalveError"}
HEAD = ("mutant", "file", "what would be lost", "verdict", "killed by", "with")


class Verdict(Enum):
    """KILLED: a test's own assertion failed, an error was raised in place of the one it expects or of none, or Calve
    itself noticed. HOLLOW: the change broke itself, so that it shows nothing.
    """

    KILLED = "killed"
    HOLLOW = "hollow"
    SURVIVED = "survived"
    EXCUSED = "survived, with a reason"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A mutant's verdict, the test that it is due to, and the first line of what that test said."""

    mutant: Mutant
    verdict: Verdict
    test: str
    said: str

    @property
    def right(self) -> bool:
        return self.verdict in (Verdict.KILLED, Verdict.EXCUSED)


def judge(mutant: Mutant, ran: Ran) -> Outcome:
    """By the first error of the tests that should catch it; what comes of that afterwards does not count."""
    if ran.failures:
        first = ran.failures[0]
        raised_with_it = [each for each in ran.failures if (each.test, each.when) == (first.test, first.when)]
        shown = next((each for each in raised_with_it if not kills(each)), first)
        return Outcome(mutant, Verdict.KILLED if kills(shown) else Verdict.HOLLOW, shown.test, str(shown))
    if ran.broke_off:
        return Outcome(mutant, Verdict.HOLLOW, "", ran.broke_off)
    if missing := ran.without_pass(mutant.caught_by):
        return Outcome(mutant, Verdict.HOLLOW, missing[0], "did not run")
    return Outcome(mutant, Verdict.EXCUSED if mutant.survives else Verdict.SURVIVED, "", mutant.survives)


def kills(failure: Failure) -> bool:
    """Whether it says something about the product's behaviour, and not only that the change does not work.

    A test of ours fails by an assertion, by `pytest.fail` (as `pytest.raises` does), or by an error of Calve's tree.
    """
    if failure.when == "collect" or failure.line.startswith("Timeout "):
        return False
    return not _KILLING.isdisjoint(failure.kinds)


def table(outcomes: Iterable[Outcome]) -> str:
    """Markdown: a row for each mutant, in the order given, and how many there are of each verdict."""
    found = list(outcomes)
    rows = [(o.mutant.name, o.mutant.path, o.mutant.lost, o.verdict.value, o.test, o.said) for o in found]
    counts = [(verdict.value, sum(o.verdict is verdict for o in found)) for verdict in Verdict]
    total = ", ".join(f"{number} {verdict}" for verdict, number in counts if number)
    lines = [_line(cells) for cells in (HEAD, ("---",) * len(HEAD), *rows)]
    return "\n".join([*lines, "", f"{len(found)} mutants: {total or 'none'}"])


def document(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """The same as JSON."""
    return [
        {
            "name": o.mutant.name,
            "path": o.mutant.path,
            "lost": o.mutant.lost,
            "verdict": o.verdict.value,
            "test": o.test,
            "said": o.said,
        }
        for o in outcomes
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
