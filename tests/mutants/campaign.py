"""Trying mutants, several at a time, each in a copy of the work tree that it has for itself."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.copies import copy_tree, in_place
from tests.mutants.mutant import Mutant
from tests.mutants.tries import Ended, Ran, Tries
from tests.mutants.verdicts import Outcome, judge

Say = Callable[[str], None]


class NotProven(Exception):
    """Tests fail without any mutant: that they fail with one would prove nothing."""


def try_all(root: Path, mutants: Iterable[Mutant], *, jobs: int, say: Say) -> list[Outcome]:
    """Each mutant's outcome, those that share tests beside each other.

    First all the tests run without any, where each job goes on to work. Raises NotProven. What is interrupted leaves
    nothing behind.
    """
    waiting = deque(sorted(mutants, key=lambda mutant: (mutant.caught_by, mutant.name)))
    ordered = [*waiting]
    tries, found = Tries(), list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="calve-mutants-", ignore_cleanup_errors=True) as scratch:
        places = [Path(scratch, str(number)) for number in range(max(1, min(jobs, len(ordered))))]
        with ThreadPoolExecutor(len(places)) as pool:
            try:
                _prove_unchanged(pool, tries, root, places, ordered, say)
                working = [pool.submit(_work, tries, place, waiting, found, say) for place in places]
                for done in as_completed(working):
                    done.result()
            except BaseException:
                tries.end()
                raise
    return sorted(found, key=lambda outcome: ordered.index(outcome.mutant))


def _prove_unchanged(
    pool: ThreadPoolExecutor, tries: Tries, root: Path, places: Sequence[Path], mutants: Sequence[Mutant], say: Say
) -> None:
    shares = _shares({test for mutant in mutants for test in mutant.caught_by}, len(places))

    def prove(place: Path, tests: Sequence[str]) -> Ran:
        copy_tree(root, place / "tree")
        return tries.run(place, tests, compiled=True) if tests else Ran((), ())

    started = time.monotonic()
    running = {pool.submit(prove, place, tests): tests for place, tests in zip(places, shares, strict=True)}
    wrong: list[str] = []
    for done in as_completed(running):
        ran = done.result()
        if ran.failures or ran.broke_off:
            # After one that fails none is run.
            wrong += [f"{failure.test}: {failure}" for failure in ran.failures] or [ran.broke_off]
        else:
            wrong += [f"{test}: no such test has passed" for test in ran.without_pass(running[done])]
    if wrong:
        raise NotProven("\n".join(wrong))
    number = sum(map(len, shares))
    say(f"without any mutant {number} of {number} tests and files pass ({time.monotonic() - started:.0f} s)")


def _shares(tests: Iterable[str], number: int) -> list[list[str]]:
    """The tests in `number` parts, each file in one of them; none that is a part of another."""
    wanted = set(tests)
    alone = sorted(test for test in wanted if test.partition("::")[0] not in wanted - {test})
    files = sorted({test.partition("::")[0] for test in alone})
    return [[test for test in alone if test.partition("::")[0] in files[i::number]] for i in range(number)]


def _work(tries: Tries, place: Path, waiting: deque[Mutant], found: list[Outcome], say: Say) -> None:
    """Take mutants until none waits."""
    while True:
        try:
            mutant = waiting.popleft()
        except IndexError:
            return
        started = time.monotonic()
        try:
            with in_place(mutant, place / "tree"):
                ran = tries.run(place, mutant.caught_by, compiled=False) if mutant.caught_by else Ran((), ())
        except Ended:
            return
        outcome = judge(mutant, ran)
        found.append(outcome)
        said = f"{outcome.test}: {outcome.said}" if outcome.test else outcome.said
        say(f"{outcome.verdict.value}: {mutant.name} ({time.monotonic() - started:.0f} s) {said}".rstrip())
