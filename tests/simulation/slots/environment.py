"""Puts a world with slots in the place of Kafka, clock, threads and lots, for as long as a history runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import pytest

import calve.sink_core.control.slots.leading
from calve.sink_core.failpoints import reach
from calve.sink_core.mirror.state import MIRROR
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.source.state import SOURCE
from tests.simulation.environment import install_chance, install_clients, wherever
from tests.simulation.slots.clients import RecordAdmin, RecordConsumer, RecordProducer
from tests.simulation.slots.world import SlotWorld


class Environment:
    """Installed once for many histories; `world` is the one that runs, under `rules`."""

    world: SlotWorld

    def __init__(self, rules: Rules = ALL) -> None:
        self.rules = rules

    def install(self, patch: pytest.MonkeyPatch) -> None:
        def network(settings: Any) -> Any:
            return self.world.network_of(settings)

        def admin(settings: Any) -> RecordAdmin:
            return RecordAdmin(network(settings))

        def reader(settings: Any, *, group: str, **more: object) -> RecordConsumer:
            uncommitted = more.get("isolation.level") == "read_uncommitted"
            return RecordConsumer(network(settings), group, self.world.chance, uncommitted=uncommitted)

        def producer(settings: Any, id_: str | None = None, **_more: object) -> RecordProducer:
            return RecordProducer(network(settings), id_, self.world.chance)

        install_clients(patch, admin=admin, reader=reader, producer=producer, transactional_producer=producer)
        patch.setattr(calve.sink_core.control.slots.leading, "ThreadPoolExecutor", self._threads)
        # Avro's form on the wire has tests of its own.
        for fold in (MIRROR, SOURCE):
            patch.setattr(fold, "encode", lambda event: event)
            patch.setattr(fold, "decode", lambda event: event)
        install_chance(patch, lambda: self.world)
        wherever(patch, reach, lambda name: self.world.reach(name))

    def _threads(self, **_options: object) -> Threads:
        return Threads(self.world)


class Threads:
    """In place of a pool of threads: what they do, one after the other in an order that is drawn."""

    def __init__(self, world: SlotWorld) -> None:
        self._world = world

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, do: Callable[[Any], Any], given: Iterable[Any]) -> list[Any]:
        """All of them are done before the first failure is raised."""
        work = list(enumerate(given))
        self._world.chance.shuffle(work)
        done: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        for place, each in work:
            try:
                done[place] = do(each)
            except Exception as error:  # noqa: BLE001 - raised below, as a pool does
                failures[place] = error
        if failures:
            raise failures[min(failures)]
        return [done[place] for place in sorted(done)]


@contextmanager
def installed(rules: Rules = ALL) -> Generator[Environment]:
    """Everything replaced; as it was before at the end."""
    environment = Environment(rules)
    with pytest.MonkeyPatch.context() as patch:
        environment.install(patch)
        yield environment
