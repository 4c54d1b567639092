"""Many histories: run over all cores, added up, and shortened where one breaks a promise."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from calve.sink_core.config.load import load
from calve.sink_core.rules import ALL, Rules
from tests.simulation import history, transitions
from tests.simulation.environment import Environment, installed
from tests.simulation.history import MERGING, PLACES, Action, History, Result
from tests.simulation.rules import CASES
from tests.simulation.slots import history as slots
from tests.simulation.slots.environment import installed as installed_slots
from tests.simulation.slots.history import MIXTURES as OF_SLOTS
from tests.simulation.slots.worlds import worlds
from tests.simulation.transitions import TRANSITIONS
from tests.simulation.world import pipeline_files

CHUNK, SMALL = 25, 8
"""Seeds of one mixture before the next, and where a share of a campaign is to have been everywhere soon."""
MIXTURES = (*history.MIXTURES, *OF_SLOTS)
REACHED = sorted(
    {
        failpoint
        for failpoints in (MERGING, *(each.all for each in slots.PLACES.values()), *PLACES.values())
        for failpoint in failpoints
    }
    - {"resolve.after-rebind", "resolve.after-token"}
)
"""Failpoints of what histories run. The answer `move` is not among it, nor are those to findings of mirrors."""

Run = Callable[[int, Sequence[Action] | None], Result]


@dataclass(slots=True)
class Totals:
    """What histories came to. `violations` by the arguments that play one again."""

    histories: int = 0
    visits: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    violations: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, other: Totals) -> None:
        self.histories += other.histories
        self.visits += other.visits
        self.outcomes += other.outcomes
        self.violations |= other.violations

    def seldom(self, visits: int) -> dict[str, int]:
        """Failpoints and transitions visited less than `visits` times."""
        return {name: self.visits[name] for name in (*REACHED, *TRANSITIONS) if self.visits[name] < visits}

    def __str__(self) -> str:
        """A table of failpoints, transitions and outcomes."""
        lines = [f"{self.histories:,} histories, {len(self.violations)} with a broken promise"]
        for title, names in (("failpoint", REACHED), ("transition of CommitState", TRANSITIONS)):
            lines += ["", f"{title:<45}{'visits':>12}", *(f"{name:<45}{self.visits[name]:>12,}" for name in names)]
        lines += ["", f"{'outcome':<45}{'times':>12}"]
        lines += [f"{name:<45}{times:>12,}" for name, times in sorted(self.outcomes.items())]
        lines += [f"\n{again}: {what}" for again, what in sorted(self.violations.items())]
        return "\n".join(lines)


@contextmanager
def running(*, mixture: str | None = None, off: str | None = None) -> Iterator[Run]:
    """A function that runs the history of a seed; with the rule `off` switched off, or with another system's bug."""
    if mixture in OF_SLOTS:
        with _running_slots(mixture, CASES[off].rules if off is not None else ALL) as run:
            yield run
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        first, added = pipeline_files(Path(directory))
        pipelines = load(first), load(added)
        rule = CASES[off] if off is not None else None
        with installed(*((rule.rules, rule.bugs) if rule else ())) as environment:
            transitions.count(patch, partial(_visit, environment))
            yield lambda seed, actions=None: History(environment, pipelines, seed).run(actions, mixture)


@contextmanager
def _running_slots(mixture: str, rules: Rules) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as directory, installed_slots(rules) as environment:
        make = worlds(Path(directory))[OF_SLOTS[mixture][0]]
        yield lambda seed, actions=None: slots.History(environment, make, seed).run(actions, mixture)


def draw(seed: int, mixture: str | None) -> list[Action]:
    """The actions of a seed."""
    return slots.draw(seed, mixture) if mixture in OF_SLOTS else history.draw(seed, mixture)


def _visit(environment: Environment, name: str) -> None:
    environment.world.visits[name] += 1


def _again(seed: int, mixture: str | None) -> str:
    return f"--seed {seed}" + (f' --mixture "{mixture}"' if mixture else "")


def run_seeds(seeds: Iterable[int], *, mixture: str | None = None, off: str | None = None) -> Totals:
    """One after the other, in this process."""
    totals = Totals()
    with running(mixture=mixture, off=off) as run:
        for seed in seeds:
            result = run(seed, None)
            totals.histories += 1
            totals.visits += result.visits
            totals.outcomes += result.outcomes
            if result.violation is not None:
                totals.violations[_again(seed, mixture)] = result.violation
    return totals


@dataclass(slots=True)
class Campaign:
    """Which mixture is next, by what the histories of each have come to: each in turn for as long as everything is
    visited alike, else the one that visits most what was visited least.
    """

    visits: int
    totals: Totals = field(default_factory=Totals)
    by_mixture: dict[str, Totals] = field(default_factory=lambda: {name: Totals() for name in MIXTURES})

    def add(self, mixture: str, found: Totals) -> None:
        self.totals.add(found)
        self.by_mixture[mixture].add(found)

    def next_mixture(self, chunk: int) -> str:
        seldom = self.totals.seldom(self.visits)
        if chunk % 2 == 0 or not seldom or not self.totals.histories:
            return MIXTURES[chunk // 2 % len(MIXTURES)]
        rarest = min(seldom, key=lambda place: seldom[place])
        return max(MIXTURES, key=lambda name: self._rate(name, rarest))

    def _rate(self, mixture: str, place: str) -> float:
        found = self.by_mixture[mixture]
        return found.visits[place] / max(1, found.histories)


def run_until_visited(visits: int, seconds: float, *, first: int = 0) -> Totals:
    """Seeds from `first` on, in this process, until everything has been visited `visits` times, a promise is broken, or
    the time is over; but in any case until everything has been visited once.
    """
    deadline, campaign = time.monotonic() + seconds, Campaign(visits)
    for chunk in count():
        mixture, start = campaign.next_mixture(chunk), first + chunk * SMALL
        campaign.add(mixture, run_seeds(range(start, start + SMALL), mixture=mixture))
        enough = visits if time.monotonic() < deadline else 1
        if campaign.totals.violations or not campaign.totals.seldom(enough):
            break
    return campaign.totals


def run_for(seconds: float, *, first: int = 0, visits: int = 0) -> Totals:
    """Seeds from `first` on, on all cores, until a promise is broken, or the time is over.

    Every other chunk of seeds is of the mixture that goes where fewest have been. If something has not been visited
    `visits` times by then, it goes on for up to three times as long.
    """
    deadline, campaign, workers = time.monotonic() + seconds, Campaign(visits), os.cpu_count() or 1
    chunks = count()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:

        def submit() -> tuple[str, Future[Totals]]:
            chunk = next(chunks)
            mixture, start = campaign.next_mixture(chunk), first + chunk * CHUNK
            return mixture, pool.submit(run_seeds, range(start, start + CHUNK), mixture=mixture)

        under_way = [submit() for _ in range(2 * workers)]
        while under_way:
            mixture, future = under_way.pop(0)
            campaign.add(mixture, future.result())
            late = time.monotonic() - deadline
            wanted = late < 0 or (late < 2 * seconds and campaign.totals.seldom(visits))
            if wanted and not campaign.totals.violations:
                under_way.append(submit())
    return campaign.totals


def shorten(seed: int, *, mixture: str | None = None, off: str | None = None) -> tuple[list[Action], Result]:
    """The actions of a seed without those that a violation does not need; `run` of what is left."""
    with running(mixture=mixture, off=off) as run:
        actions = draw(seed, mixture)
        size = max(1, len(actions) // 2)
        while size:
            start, shorter = 0, False
            while start < len(actions):
                fewer = actions[:start] + actions[start + size :]
                if run(seed, fewer).violation is not None:
                    actions, shorter = fewer, True
                else:
                    start += size
            size = size // 2 if size > 1 or not shorter else 1
        return actions, run(seed, actions)
