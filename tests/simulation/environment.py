"""Puts the world in the place of Kafka, catalog, files, clock and randomness, for as long as a history runs.

Everything that is replaced lies outside Calve, but for `write_batch`: Spark's part of a batch.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Set
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import pyiceberg.table.update
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

import calve.sink_core.iceberg.commit.append
import calve.sink_core.iceberg.format.table
import calve.sink_core.iceberg.lake.opened
import calve.sink_core.iceberg.maintenance.expiry
import calve.sink_core.iceberg.maintenance.orphans
import calve.sink_core.iceberg.replace.head_files
import calve.sink_core.kafka.clients
import calve.sink_core.kafka.reader
import calve.sink_core.kafka.source
import calve.sink_core.sink.batches
import calve.sink_core.sink.loop.needed
import calve.sink_core.sink.maintenance.expire
import calve.sink_core.sink.maintenance.orphans
import calve.sink_core.sink.maintenance.work
import calve.sink_core.sink.range_jobs.jobs
import calve.sink_core.sink.resolve.jump
import calve.sink_core.sink.resolve.ledger
import calve.sink_core.sink.resolve.rebuild
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.blockers import open_transactions
from calve.sink_core.errors import CalveError
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.commit.merge import Merging
from calve.sink_core.iceberg.commit.staging import left_behind
from calve.sink_core.iceberg.files.entries import live_entries, manifests_in
from calve.sink_core.iceberg.files.manifests import manifest_file, published_entries
from calve.sink_core.iceberg.files.requests import answers
from calve.sink_core.iceberg.maintenance.orphans import Listed
from calve.sink_core.iceberg.maintenance.shape import SNAPSHOTS
from calve.sink_core.kafka.objects import Objects
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.parts import in_parts
from tests.simulation.clients import SimAdmin, SimConsumer, SimProducer
from tests.simulation.merging import merge
from tests.simulation.stage import Stage
from tests.simulation.storage import (
    NO_BUGS,
    CatalogBug,
    FileStore,
    ListedManifest,
    entries_of,
    manifest_without,
    write_list,
)
from tests.simulation.world import World

T = TypeVar("T")


class Environment:
    """Installed once for many histories; `world` is the one that runs, under `rules` and with a catalog's `bugs`."""

    world: World

    def __init__(self, rules: Rules = ALL, bugs: Set[CatalogBug] = NO_BUGS) -> None:
        self.rules = rules
        self.bugs = bugs

    def install(self, patch: pytest.MonkeyPatch) -> None:
        def network() -> Any:
            return self.world.network

        def reader(_settings: object, *, group: str, **more: object) -> SimConsumer:
            return SimConsumer(network(), group, uncommitted=more.get("isolation.level") == "read_uncommitted")

        def transactional_producer(_settings: object, id_: str, **more: object) -> SimProducer:
            return SimProducer(network(), str(more.get("transactional.id", id_)))

        install_clients(
            patch,
            admin=lambda _settings: SimAdmin(network()),
            reader=reader,
            producer=lambda _settings: SimProducer(network()),
            transactional_producer=transactional_producer,
        )
        # Avro's form on the wire has tests of its own.
        patch.setattr(SINK, "encode", lambda event: event)
        patch.setattr(SINK, "decode", lambda event: self.world.read_event(event))
        self._install_storage(patch)
        install_chance(patch, lambda: self.world)
        patch.setattr(
            calve.sink_core.sink.batches, "write_batch", lambda *given, **named: self.world.write_batch(*given, **named)
        )
        patch.setattr(
            calve.sink_core.iceberg.lake.opened,
            "Merging",
            SimpleNamespace(of=lambda *_: Merging(self.world.merged, partial(merge, self.world))),
        )
        patch.setattr(SinkPipeline, "changing", property(lambda _: self.world.merged))
        # Clocks hardly go on in a history: expiry drops every staging branch that it sees.
        patch.setattr(
            calve.sink_core.iceberg.maintenance.expiry,
            "left_behind",
            lambda of, _now_ms: left_behind(of, sys.maxsize),
        )
        # Range jobs are few in a history, and have few ranges.
        patch.setattr(calve.sink_core.sink.loop.needed, "in_parts", partial(in_parts, most=3))
        patch.setattr(calve.sink_core.sink.resolve.rebuild, "accounts_of", lambda *given: self.world.accounts(*given))
        patch.setattr(calve.sink_core.sink.resolve.ledger, "_batches_in", lambda table: self.world.batches_in(table))
        patch.setattr(calve.sink_core.sink.resolve.ledger, "copied", lambda *given: self.world.ledger_of(*given))
        patch.setattr(calve.sink_core.sink.resolve.jump, "write_ledger", lambda *given: self.world.write_ledger(*given))
        patch.setattr(calve.sink_core.sink.resolve.jump, "output_of", lambda *given: self.world.output_of(*given))
        patch.setattr(
            calve.sink_core.iceberg.format.table, "output_of", lambda *given: self.world.output_of(*given[:4])
        )
        patch.setattr(
            calve.sink_core.sink.range_jobs.jobs, "ledger_rows", lambda session: self.world.ledger_rows(session)
        )
        patch.setattr(calve.sink_core.sink.range_jobs.jobs, "dead_letters_in", lambda *_: {})
        patch.setattr(
            calve.sink_core.sink.range_jobs.jobs,
            "rewrite_files",
            lambda spec, files, _: self.world.rewrite(spec, files),
        )
        head_files = calve.sink_core.iceberg.replace.head_files
        patch.setattr(head_files, "output_of", lambda *given: self.world.kept_of(*given))
        patch.setattr(head_files, "_named", lambda *given: self.world.gone_of(*given))
        patch.setattr(head_files, "may_hold", lambda file, _fields, runs: self.world.holds(file, runs))
        wherever(patch, reach, lambda name: self.world.reach(name))

    def _install_storage(self, patch: pytest.MonkeyPatch) -> None:
        def manifests(snapshot: Snapshot, _io: object) -> list[ListedManifest]:
            return list(self.world.store.manifest_list(snapshot.manifest_list).manifests)

        patch.setattr(calve.sink_core.iceberg.lake.opened, "open_catalog", lambda _settings: self.world.catalog)
        patch.setattr(calve.sink_core.iceberg.commit.append, "write_list", self._write_list)
        patch.setattr(calve.sink_core.iceberg.commit.append, "write_without", self._without)
        patch.setattr(Snapshot, "manifests", manifests)
        wherever(patch, manifests_in, lambda io, snapshot: manifests(snapshot, io) if snapshot else [])
        wherever(patch, live_entries, entries_of)
        # Each read as it comes: threads are the scheduler's.
        wherever(patch, answers, map)
        wherever(patch, published_entries, _published)
        patch.setattr(calve.sink_core.iceberg.maintenance.orphans, "_sequence_number", _sequence_number)
        patch.setattr(calve.sink_core.sink.maintenance.orphans, "list_files", self._list_files)
        patch.setattr(calve.sink_core.sink.maintenance.work, "apart", _at_once)
        patch.setattr(calve.sink_core.sink.maintenance.expire, "shape", _shape)

    def _write_list(self, path: str, manifests: list[ManifestFile | ListedManifest], **given: Any) -> None:
        self.world.scheduler.give_way()
        write_list(self.world.store, path, manifests, **given)

    def _without(
        self, io: FileStore, _metadata: object, manifest: ListedManifest, gone: Set[str], snapshot_id: int, path: str
    ) -> Any:
        self.world.scheduler.give_way()
        return manifest_without(io, manifest, gone, snapshot_id, path)

    def _list_files(self, table: Any) -> list[Listed]:
        self.world.scheduler.give_way()
        below, store = f"{table.metadata.location}/", self.world.store
        return [Listed(path, 1, store.written_ms[path]) for path in store.files if path.startswith(below)]


def _at_once(call: Callable[[], T], _name: str) -> Future[T]:
    """In the caller's thread: threads are the scheduler's. A process that is killed meanwhile is killed there."""
    answer = Future[T]()
    try:
        answer.set_result(call())
    except CalveError as error:
        answer.set_exception(error)
    return answer


def install_clients(patch: pytest.MonkeyPatch, **models: object) -> None:
    """Puts models in the place of clients, by the names of `kafka.clients`."""
    for name, model in models.items():
        patch.setattr(calve.sink_core.kafka.clients, name, model)
    patch.setattr(calve.sink_core.kafka.source, "reader", models["reader"])
    # With kernels librdkafka itself would be asked, and wait for a broker that is none.
    patch.setattr(calve.sink_core.kafka.reader, "deliveries", lambda _records: Objects)
    # What a run says of open transactions at its end is no part of the protocol.
    wherever(patch, open_transactions, lambda *_: ())


def install_chance(patch: pytest.MonkeyPatch, stage: Callable[[], Stage]) -> None:
    """Clock, sleep and lots of the stage that is there at each call."""

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=stage().chance.getrandbits(128), version=4)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * stage().chance.random()

    def clock() -> float:
        return stage().scheduler.now_s

    class Clocked(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(clock(), tz or UTC)

    really_sleep, owner = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        # Py4J's threads outlive the tests that needed Spark.
        if threading.get_ident() == owner:
            stage().scheduler.sleep(seconds)
        else:
            really_sleep(seconds)

    patch.setattr(uuid, "uuid4", new_uuid)
    patch.setattr(random, "uniform", uniform)
    patch.setattr(time, "sleep", sleep)
    patch.setattr(time, "monotonic", clock)
    patch.setattr(time, "time", clock)
    patch.setattr(time, "time_ns", lambda: int(clock() * 1e9))
    patch.setattr(pyiceberg.table.update, "datetime", Clocked)


@contextmanager
def installed(rules: Rules = ALL, bugs: Set[CatalogBug] = NO_BUGS) -> Generator[Environment]:
    """Everything replaced; as it was before at the end."""
    environment = Environment(rules, bugs)
    with pytest.MonkeyPatch.context() as patch:
        environment.install(patch)
        yield environment


def wherever(patch: pytest.MonkeyPatch, real: Callable[..., Any], instead: Callable[..., Any]) -> None:
    """Replace a function of ours in each module that imported it, not in its own."""
    name = real.__name__
    for key, module in list(sys.modules.items()):
        ours = key.startswith(("calve.sink_core.", "calve.spark_jobs.")) and key != real.__module__
        if ours and getattr(module, name, None) is real:
            patch.setattr(module, name, instead)


def _shape(table: Table) -> dict[str, int]:
    return {SNAPSHOTS: len(table.metadata.snapshots)}


def _published(io: FileStore, ref: ManifestRef) -> list[Any]:
    return entries_of(io, manifest_file(ref, -1))


def _sequence_number(io: FileStore, path: str) -> int | None:
    return io.manifest_list(path).sequence_number if path in io.files else None
