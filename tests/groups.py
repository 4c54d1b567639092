"""The chain of each test: what one of the gate's workers runs one after the other, and which chains begin first.

For `--dist loadgroup --no-loadscope-reorder`. Who asks for a classic Spark has one of two chains, so that two are
started for all. Dagster's one deployment has a chain too. A test of any other file has its file's chain, as with
`--dist loadfile`: what a module sets up is set up once. The tests of some long files go their own ways. Chains are
handed out in order: long ones come first, so that none is left alone at the end, and those that keep a core busy in
turn with those that mostly wait.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import shared_directory

TESTS = Path(__file__).parent

CHAINS = "chains.json"

CLASSIC_SPARK = frozenset({"spark", "engine"})
"""Fixtures whose users share a worker's Spark."""

SECOND = (
    "integration/test_asset",
    "integration/test_change_feed",
    "integration/test_compaction",
    "integration/test_deletes_taken_out",
    "integration/test_maintenance",
    "integration/test_orphans",
    "integration/test_partition_deletes",
    "integration/test_registered",
    "integration/test_run.",
    "integration/test_shared_table",
)
"""What is on a second one, half of the whole in seconds: on one it would be the chain that everybody waits for."""

DEPLOYED = "deployment"
"""A fixture that files share: their tests are one chain, behind whose last one it ends."""

ONE_BY_ONE = frozenset(
    {
        "e2e/faults/test_kills.py",
        "e2e/faults/test_orphans.py",
        "e2e/faults/test_three_runs.py",
    }
)
"""Files whose tests are long and share nothing but what the session has."""

BY_WAY = frozenset({"e2e/faults/test_failpoints.py"})
"""Files whose tests share something for each function and each first parameter, which their ids begin with."""

BUSY = ("lint/", "e2e/dagster/", "simulation/test_histories.py", "e2e/test_", "row_histories/", "simulation/", "e2e/")
"""After the chains of Spark: where those are that start processes or compute, longest first."""

WAITING = ("integration/test_trouble", "integration/")
"""Where those are that mostly wait for a broker, longest first. All else is short, and comes last."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What a test's chain depends on: its file below `tests`, its name with its id, and the fixtures it uses."""

    file: str
    name: str
    fixtures: Collection[str]

    @property
    def on_spark(self) -> bool:
        return not CLASSIC_SPARK.isdisjoint(self.fixtures)


def chain_of(test: Asking) -> str | None:
    """Its name; None for a test that is a chain of its own."""
    if test.on_spark:
        return "spark-2" if test.file.startswith(SECOND) else "spark-1"
    if DEPLOYED in test.fixtures:
        return DEPLOYED
    if test.file in ONE_BY_ONE:
        return None
    chain = test.file.removesuffix(".py")
    if test.file in BY_WAY:
        chain += f"::{test.name.partition('-')[0]}"
    return chain


def ordered(tests: Sequence[Asking], chains: Sequence[str]) -> dict[str, int]:
    """The place of each chain, 0 first; `chains` are those of `tests`, one for one."""
    firsts = dict(zip(reversed(chains), reversed(tests), strict=True))
    collected = list(dict.fromkeys(chains))
    spark = sorted(chain for chain in collected if firsts[chain].on_spark)

    def longest_first(places: tuple[str, ...]) -> list[str]:
        at = {chain: _index(places, firsts[chain].file) for chain in collected if chain not in spark}
        return sorted((chain for chain in at if at[chain] < len(places)), key=at.__getitem__)

    in_turn = [((n + 0.5) / len(some), c) for some in map(longest_first, (BUSY, WAITING)) for n, c in enumerate(some)]
    first = dict.fromkeys([*spark, *(chain for _, chain in sorted(in_turn, key=lambda each: each[0]))])
    return {chain: n for n, chain in enumerate([*first, *(chain for chain in collected if chain not in first)])}


def _index(places: tuple[str, ...], file: str) -> int:
    return next((n for n, place in enumerate(places) if file.startswith(place)), len(places))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same order on each worker, and a note of the chains; nothing where nobody shares work."""
    if not config.getoption("loadgroup", False):
        return
    asking = [_asking(item) for item in items]
    chains = {item.nodeid: chain_of(test) or item.nodeid for item, test in zip(items, asking, strict=True)}
    places = ordered(asking, [chains[item.nodeid] for item in items])
    items.sort(key=lambda item: places[chains[item.nodeid]])
    note = shared_directory(config) / CHAINS
    # Each worker writes the same, and whoever schedules reads it once all have collected.
    scratch = note.with_suffix(f".{config.workerinput['workerid']}")  # pyright: ignore
    scratch.write_text(json.dumps(chains))
    scratch.rename(note)


class Chains(LoadScopeScheduling):
    """What `loadgroup` is to do: xdist 3.8 writes the groups into node ids, which pytest 9.2 doesn't let it."""

    @cached_property
    def chains(self) -> dict[str, str]:
        """By node id."""
        return json.loads((shared_directory(self.config) / CHAINS).read_text())

    def _split_scope(self, nodeid: str) -> str:
        return self.chains[nodeid]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Chains | None:
    return Chains(config, log) if config.getoption("dist") == "loadgroup" else None


def _asking(item: pytest.Item) -> Asking:
    return Asking(item.path.relative_to(TESTS).as_posix(), item.name, getattr(item, "fixturenames", ()))
