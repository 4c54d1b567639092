"""Maintenance of Hudi tables: clustering, cleaning, archiving and orphans lose nothing, beside commits too."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.table_maintenance import Expire
from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.hudi.files.timeline import Timeline
from calve.sink_core.hudi.maintenance import orphans as hudi_orphans
from calve.sink_core.hudi.maintenance.upkeep import kept
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.sink.maintenance import work
from calve.sink_core.sink.maintenance.tasks import run_task
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_tables
from tests.codes import names, says
from tests.hudi_tables import NAMES
from tests.pipelines import Died, Flow, reached
from tests.support import TopicFactory

HUDI = NAMES[1]
BATCHES = 6
SETTINGS = {"compact": {"min_files": 2, "lag": 0}, "expire": {"older_than": "1h", "keep_at_most": 12}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Six batches, a file each."""
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1))
    flow = flow.but(extra={**flow.extra, "maintenance": SETTINGS, "batch": {"max_records": 10}})
    flow.produce(range(10 * BATCHES))
    flow.run()
    return flow


def folder(flow: Flow) -> Path:
    return hudi_tables.place(flow, HUDI).folder


def maintain(flow: Flow, task: str, table: str = HUDI, **options: Any) -> TaskOutcome:
    with flow.session() as session:
        session.bind()
        report = run_task(task, session, NoEngine(), tables=[table], **options)
    report.raise_failures()
    [outcome] = report.done
    return outcome


class NoEngine:
    """Hudi tables need none."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AssertionError(f"{name} was asked of the engine")


def prove(flow: Flow, ids: range) -> None:
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()
    assert hudi_tables.ids(folder(flow)) == list(ids)


def test_small_files_are_clustered_and_later_batches_come_beside_them(flow: Flow) -> None:
    would = maintain(flow, "compact", dry_run=True)
    assert (would.changed, "1" in would.did.split()) == (False, True)
    outcome = maintain(flow, "compact")
    assert outcome.changed
    assert outcome.before["data_files"] == BATCHES
    assert outcome.after["data_files"] == 1
    assert not maintain(flow, "compact").changed
    prove(flow, range(10 * BATCHES))
    flow.produce(range(10 * BATCHES, 10 * BATCHES + 5))
    flow.run()
    prove(flow, range(10 * BATCHES + 5))


def test_a_clustering_that_was_killed_is_carried_out_by_the_next(flow: Flow) -> None:
    def die() -> None:
        raise Died

    with pytest.raises(Died), reached("hudi.after-plan", die):
        maintain(flow, "compact")
    flow.produce(range(10 * BATCHES, 10 * BATCHES + 5))
    flow.run()
    assert maintain(flow, "compact").changed
    prove(flow, range(10 * BATCHES + 5))


def test_replaced_files_are_cleaned_and_instants_archived(flow: Flow) -> None:
    maintain(flow, "compact")
    soon = flow.but(extra={**flow.extra, "batch": {"max_records": 1}})
    soon.produce(range(10 * BATCHES, 10 * BATCHES + 12))
    soon.run()
    before = hudi_tables.ids(folder(flow))
    outcome = maintain(flow, "expire")
    assert outcome.changed
    assert (outcome.before["active_instants"], outcome.after["active_instants"]) == (19, 13)
    assert (outcome.before["replaced_files"], outcome.after["replaced_files"]) == (6, 0)
    assert hudi_tables.ids(folder(flow)) == before
    flow.produce(range(10 * BATCHES + 12, 10 * BATCHES + 15))
    flow.run()
    prove(flow, range(10 * BATCHES + 15))


def test_staged_files_of_a_batch_that_was_never_published_are_deleted_and_those_of_a_published_one_stay(
    flow: Flow,
) -> None:
    def die() -> None:
        raise Died

    flow.produce(range(10 * BATCHES, 10 * BATCHES + 5))
    with pytest.raises(Died), reached("write.after-manifests", die):
        flow.run()
    flow.publish()
    staged = hudi_tables.place(flow, HUDI).staged
    old = time.time() - 10 * 86_400
    for path in [*staged.rglob("*"), *folder(flow).glob("*.parquet")]:
        os.utime(path, (old, old))
    held = len(list(staged.iterdir()))
    outcome = maintain(flow, "orphans")
    assert outcome.changed
    assert 0 < len(list(staged.iterdir())) < held
    flow.run()
    prove(flow, range(10 * BATCHES + 5))


@pytest.mark.parametrize("slow", ["listing", "cleaning"])
def test_orphans_of_one_that_takes_too_long_are_left_to_the_next_run(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    flow.produce(range(10 * BATCHES, 10 * BATCHES + 5))
    with pytest.raises(Died), reached("write.after-manifests", lambda: _raise(Died())):
        flow.run()
    staged = hudi_tables.place(flow, HUDI).staged
    for path in staged.rglob("*"):
        os.utime(path, (0, 0))
    held, ended = len(list(staged.iterdir())), threading.Event()
    if slow == "listing":
        monkeypatch.setattr(hudi_orphans, "base_files", lambda _place: ended.wait() and ())
    else:
        monkeypatch.setattr(work, "CLEANING", 0.0)
    short = flow.but(extra={**flow.extra, "maintenance": {**SETTINGS, "max_duration": "6s"}})
    with short.session() as session:
        session.bind()
        report = run_task("orphans", session, NoEngine(), tables=[HUDI])
    ended.set()
    assert len(list(staged.iterdir())) == held
    if slow == "listing":
        says(str(report.failed[HUDI]), Code.TOO_MANY_FILES, HUDI)
    else:
        assert [outcome.changed for outcome in report.done] == [False]
        names(report.done[0].did, "maintenance.max_duration")
    monkeypatch.undo()
    assert maintain(flow, "orphans").changed


def _raise(error: BaseException) -> None:
    raise error


def test_a_hundred_instants_stay_unless_the_file_says_otherwise(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        table = session.load([HUDI])[HUDI]
    assert isinstance(table, HudiTable)
    many = replace(table, timeline=Timeline(table.timeline.instants * 100))
    long_ago = 0.0
    assert len(many.timeline.commits) > 500
    assert kept(many, Expire(), long_ago) == 100
    assert kept(many, Expire(keep_at_most=300), long_ago) == 300
    assert kept(many, Expire(keep_at_most=None), long_ago) == len(many.timeline.commits)
