"""A locked database, a full disk and an object store that is gone: said, waited for or not, and made good later."""

from __future__ import annotations

import errno
import json
import random
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_UNREACHABLE, UnknownOutcome
from calve.sink_core.sink.verify.proof import verify
from tests.codes import raises, says
from tests.e2e.faults.processes import ROOT
from tests.gate import every_second, only
from tests.object_store import BUCKET, ObjectStore
from tests.pipelines import Flow, reached
from tests.support import TopicFactory, produce


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Has ids 0 to 9, and 10 to 19 wait."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20))
    return flow


def proven(flow: Flow, *, ids: int) -> None:
    assert flow.ids() == list(range(ids))
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


class Locker:
    """Another process's transaction on the catalog's database."""

    def __init__(self, flow: Flow) -> None:
        self._connection = sqlite3.connect(flow.lake / "catalog.db", check_same_thread=False)

    def lock(self) -> None:
        self._connection.execute("BEGIN EXCLUSIVE")

    def unlock(self) -> None:
        self._connection.rollback()
        self._connection.close()


def test_a_database_locked_during_a_commit_is_waited_for(flow: Flow) -> None:
    locker = Locker(flow)

    def lock_for_a_while() -> None:
        locker.lock()
        # Longer than one statement waits for.
        threading.Timer(8.0, locker.unlock).start()

    with reached("commit.after-list", lock_for_a_while):
        report = flow.run()
    assert [commit.failed for commit in report.commits if commit.failed] == []
    proven(flow, ids=20)


@pytest.mark.parametrize(
    "place", only(["commit.after-check"], of=["plan.after-start-commit", "commit.after-check", "commit.after-list"])
)
def test_a_database_that_stays_locked_ends_the_run_and_the_next_one_makes_it_good(place: str, flow: Flow) -> None:
    locker = Locker(flow)
    with raises(Code.DATABASE_LOCKED) as raised, reached(place, locker.lock):
        flow.run()
    assert raised.value.exit_code == EXIT_UNREACHABLE
    # What became of a commit is another question than how to reach the catalog.
    of_commit = isinstance(raised.value, UnknownOutcome)
    assert of_commit or raised.value.code == Code.DATABASE_LOCKED
    locker.unlock()
    flow.run()
    proven(flow, ids=20)


def test_a_disk_that_is_full_ends_the_run_and_the_next_one_makes_it_good(flow: Flow) -> None:
    limit = 1024 * 1024
    chance = random.Random(1)
    values = [json.dumps({"id": i, "text": chance.randbytes(100_000).hex()}).encode() for i in range(20, 40)]
    produce(flow.bootstrap, flow.topic, values)
    # A limit on the size of files stands for the end of a disk: a file system of its own can't be mounted everywhere.
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.in_one_process", str(flow.pipeline.path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == EXIT_UNREACHABLE, done.stderr
    says(done.stderr, Code.STORAGE_FULL, flow.table, f"[Errno {errno.EFBIG}]")
    assert flow.ids() == list(range(10))
    flow.run()
    proven(flow, ids=40)


ACTIONS = ("Read", "Write", "List")
"""Those of docs/security.md, as the store calls them: its Write is also that of deletes."""


def without(lacking: str) -> str:
    return f"without-{lacking}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[ObjectStore]:
    users = {without(lacking): [f"{a}:{BUCKET}" for a in ACTIONS if a != lacking] for lacking in ("", *ACTIONS)}
    store = ObjectStore(tmp_path_factory.mktemp("weed"), others=users)
    store.start()
    yield store
    store.stop()


@pytest.mark.parametrize("place", every_second(["plan.after-start-commit", "write.after-files", "commit.after-check"]))
def test_an_object_store_that_goes_away_ends_the_run_and_the_next_one_makes_it_good(
    place: str, store: ObjectStore, tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), lake_properties=store.properties)
    flow = flow.but(lake_properties={**store.properties, "warehouse": f"s3://{BUCKET}/{flow.name}"})
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20))
    gone = raises(Code.CATALOG_AWAY)
    try:
        with gone, reached(place, store.stop):
            flow.run()
    finally:
        store.stop()
        store.start()
    flow.run()
    with flow.session() as session:
        rows = session.catalog.load_table(flow.table).scan().to_arrow()
        assert sorted(rows["id"].to_pylist()) == list(range(20))
        assert verify(session, deep=True).violations == ()


@pytest.mark.parametrize("user", [*map(without, ACTIONS), "nobody"])
def test_each_action_of_a_store_is_needed_and_no_other(
    user: str, store: ObjectStore, tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    place = {"warehouse": f"s3://{BUCKET}/{flow.name}"}
    enough = flow.but(lake_properties={**store.properties_of(without("")), **place})
    enough.produce(range(10))
    enough.run()
    enough.produce(range(10, 20))
    with raises(Code.CATALOG_REFUSES):
        flow.but(lake_properties={**store.properties_of(user), **place}).run()
    enough.run()
    with enough.session() as session:
        assert verify(session, deep=True).violations == ()
        assert session.catalog.load_table(flow.table).scan().to_arrow().num_rows == 20
