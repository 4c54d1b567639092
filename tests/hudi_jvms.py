"""Hudi's JVMs of a worker: one for its client, one for its Spark, for all tests whose runs are in this process.

A run starts its own and ends it, which costs five seconds each time. Runs that are processes, as those that are killed
(tests/e2e/faults/hudi), have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from calve.sink_core.hudi.java import jvm, spark
from calve.sink_core.hudi.java.jvm import Jvm


class Lasting(Jvm):
    """Stays up when a run is done with it, unless it has ended."""

    def close(self) -> None:
        if self._process is None or self._process.poll() is not None:
            super().close()

    def end(self) -> None:
        super().close()


@pytest.fixture(scope="session")
def lasting() -> Generator[dict[Sequence[str], Lasting]]:
    """By name and options."""
    started: dict[Sequence[str], Lasting] = {}
    yield started
    for each in started.values():
        each.end()


@pytest.fixture
def hudi_at_hand(lasting: dict[Sequence[str], Lasting], monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs of this process ask of Hudi they ask of JVMs that are up."""

    def find(name: str, jars: Callable[[], Sequence[Path]], options: Callable[[], Sequence[str]] = tuple) -> Jvm:
        return lasting.setdefault((name, *options()), Lasting(name, jars, options))

    for module in (jvm, spark):
        monkeypatch.setattr(module, "Jvm", find)
