"""Orphan removal beside batches and commits in every state: what may still be needed stays, the rest goes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.table_maintenance import Orphans
from calve.sink_core.control.events import BatchAbandoned
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.errors import FindingError
from calve.sink_core.iceberg.maintenance.orphans import LOOKED_AT, Listed
from calve.sink_core.sink.maintenance import orphans
from calve.sink_core.sink.maintenance import work as maintenance_work
from calve.sink_core.sink.maintenance.orphans import remove_orphans
from calve.sink_core.sink.maintenance.work import Work
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.procedures import SparkProcedures
from tests.codes import says
from tests.pipelines import Flow, reached
from tests.support import TopicFactory

Clean = Callable[..., MaintenanceReport]
AT_ONCE = Orphans.model_construct(cron="0 0 31 2 *", older_than=0.0)


@pytest.fixture
def flow(broker: Broker, kafka_topic: TopicFactory, tmp_path: Path) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


@pytest.fixture
def clean(flow: Flow, spark: SparkSession) -> Clean:
    """Remove orphans of any age, as another host would: on a session of its own."""

    def run(settings: Orphans = AT_ONCE, *, host: Flow = flow, dry_run: bool = False) -> MaintenanceReport:
        with host.session() as session:
            session.read_only()
            session.bind()
            procedures = SparkProcedures(lambda: spark, host.pipeline.catalog)
            work = Work(session, procedures, lambda _step: None, dry_run=dry_run)
            return remove_orphans(work, settings)

    return run


@pytest.fixture
def begun(flow: Flow, clean: Clean) -> Flow:
    """Two batches are in, and the first look, which deletes nothing, is over."""
    for start in (0, 10):
        flow.produce(range(start, start + 10))
        flow.run()
    clean()
    return flow


def of(report: MaintenanceReport, table: str = "db.events") -> TaskOutcome:
    assert report.failed == {}
    return next(outcome for outcome in report.done if outcome.subject == table)


def folder(flow: Flow) -> Path:
    return Path(flow.load_table().location().removeprefix("file://"))


def plant(flow: Flow) -> list[Path]:
    """Files of nobody: a dead batch's, a leftover of a commit, somebody's in a folder of its own."""
    places = ["data/calve-dead-0.parquet", "metadata/calve-dead-0.avro", "metadata/x-m0.avro", "data/old/part.parquet"]
    planted = [folder(flow) / place for place in places]
    for path in planted:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"nothing")
    return planted


def left(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.exists()]


def holds(flow: Flow, count: int) -> None:
    assert flow.ids() == list(range(count))
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.proven, report.violations


def test_the_first_run_lists_and_the_next_deletes(flow: Flow, clean: Clean) -> None:
    flow.produce(range(10))
    flow.run()
    planted = plant(flow)
    first = of(clean())
    assert left(planted) == planted
    assert (first.changed, first.before["orphan_files"], first.before["orphan_bytes"]) == (False, 4, 28)
    assert LOOKED_AT in flow.load_table().metadata.properties
    second = of(clean())
    assert left(planted) == []
    assert (second.changed, second.after["orphan_files"]) == (True, 0)
    third = of(clean())
    assert (third.changed, third.before, third.after["orphan_files"]) == (False, third.after, 0)
    holds(flow, 10)


def test_a_dry_run_deletes_nothing_and_gives_nothing_up(begun: Flow, clean: Clean) -> None:
    planted = plant(begun)
    report = of(clean(dry_run=True))
    assert left(planted) == planted
    assert "calve-dead-0.parquet" in report.did
    assert begun.events(BatchAbandoned) == []


def test_young_and_hidden_files_stay(begun: Flow, clean: Clean) -> None:
    young, hidden = folder(begun) / "data" / "young.parquet", folder(begun) / "_spark" / "state"
    hidden.parent.mkdir()
    for path in (young, hidden):
        path.write_bytes(b"nothing")
    old = time.time() - 10 * 86_400
    os.utime(hidden, (old, old))
    looked = of(clean(Orphans(cron="0 0 31 2 *")))
    assert (looked.changed, looked.before.get("orphan_files", 0)) == (False, 0)
    assert left([young, hidden]) == [young, hidden]
    clean()
    assert left([young, hidden]) == [hidden]


@pytest.mark.parametrize(
    "point",
    [
        "write.after-files",
        # A process that sleeps there has its orphans removed in tests/e2e/faults/test_orphans.py.
        pytest.param("write.after-manifests", marks=pytest.mark.faults),
        pytest.param("publish.after-fence", marks=pytest.mark.faults),
    ],
)
def test_a_batch_before_its_publish_is_given_up_and_redone(begun: Flow, clean: Clean, point: str) -> None:
    planted = plant(begun)
    begun.produce(range(20, 30))
    with reached(point, clean):
        report = begun.run()
    assert left(planted) == []
    assert [batch.given_up for batch in report.batches] == [True, False]
    assert report.ended == "caught up"
    holds(begun, 30)


def test_a_batch_between_publish_and_commit_stays_whole(begun: Flow, clean: Clean) -> None:
    planted = plant(begun)
    begun.produce(range(20, 30))
    begun.publish()
    clean()
    assert left(planted) == []
    begun.run()
    holds(begun, 30)


def test_a_commit_that_sleeps_before_its_swap_finds_its_files(begun: Flow, clean: Clean) -> None:
    """Its manifest list is old, in no snapshot and named by no event."""
    planted = plant(begun)
    begun.produce(range(20, 30))
    with reached("commit.after-list", clean):
        begun.run()
    assert left(planted) == []
    holds(begun, 30)


@pytest.mark.faults
def test_a_commit_that_sleeps_between_metadata_file_and_swap_finds_it(
    begun: Flow, clean: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(begun)
    begun.produce(range(20, 30))
    write, asleep = SqlCatalog._write_metadata, [True]

    def slow(*args: object, **named: object) -> None:
        write(*args, **named)  # pyright: ignore[reportArgumentType]
        if asleep.pop() if asleep else False:
            clean()

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(slow))
    begun.run()
    assert left(planted) == []
    holds(begun, 30)


def test_what_is_left_of_a_lost_race_goes_once_it_cannot_land(begun: Flow, clean: Clean) -> None:
    begun.produce(range(20, 30))
    with reached("commit.after-list", lambda: begun.append_foreign(100), skip=1):
        begun.run()
    lists = {Path(s.manifest_list.removeprefix("file://")) for s in begun.load_table().metadata.snapshots}
    lost = set((folder(begun) / "metadata").glob("snap-*.avro")) - lists
    assert len(lost) == 1
    clean()
    assert left(list(lost)) == []
    assert begun.ids() == [*range(30), 100]


def test_a_table_behind_for_long_keeps_its_files(begun: Flow, clean: Clean) -> None:
    """Its commits fail; what is published for it is named in the log alone."""
    begun.produce(range(20, 30))
    begun.publish()
    begun.produce(range(30, 40))
    begun.publish()
    clean()
    begun.run()
    holds(begun, 40)


def test_a_table_with_too_many_files_keeps_no_other_waiting(
    begun: Flow, clean: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ended = orphans.list_files, threading.Event()

    def slow(table: Table) -> Iterator[Listed]:
        if table.name()[-1].endswith("_ledger"):
            ended.wait()
        return real(table)

    monkeypatch.setattr(orphans, "list_files", slow)
    planted = plant(begun)
    report = clean(host=begun.but(extra={"maintenance": {"max_duration": "10s"}}))
    ended.set()
    [(name, error)] = report.failed.items()
    assert name == begun.pipeline.ledger_table
    says(str(error), Code.TOO_MANY_FILES, name)
    assert left(planted) == []
    assert name not in {outcome.subject for outcome in report.done}


def test_what_there_is_no_time_for_is_left_to_the_next_run(
    begun: Flow, clean: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(begun)
    with monkeypatch.context() as patch:
        patch.setattr(maintenance_work, "CLEANING", 0.0)
        assert not of(clean()).changed
    assert left(planted) == planted
    assert of(clean()).changed
    assert left(planted) == []


def test_a_shared_location_is_refused(begun: Flow, clean: Clean) -> None:
    with begun.iceberg() as catalog:
        catalog.create_namespace("other")
        catalog.create_table(
            "other.t", Schema(NestedField(1, "id", LongType())), location=begun.load_table().location() + "/inner"
        )
    planted = plant(begun)
    assert "other.t" in of(clean()).did
    assert left(planted) == planted


def test_a_table_of_others_that_can_t_be_loaded_is_named_and_stops_nothing(begun: Flow, clean: Clean) -> None:
    with begun.iceberg() as catalog:
        catalog.create_namespace("other")
        foreign = catalog.create_table("other.t", Schema(NestedField(1, "id", LongType())))
    Path(foreign.metadata_location.removeprefix("file://")).unlink()
    planted = plant(begun)
    report = clean()
    assert left(planted) == []
    says(of(report, "other.t").did, Code.METADATA_GONE, "other.t")
    holds(begun, 20)


def test_tables_that_are_not_ours_are_left_alone(flow: Flow, clean: Clean) -> None:
    with flow.iceberg() as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.events", Schema(NestedField(1, "id", LongType())))
    flow.produce(range(5))
    flow.run()
    planted = plant(flow)
    clean()
    assert "owned" in of(clean()).did
    assert left(planted) == planted
    claimed = flow.but(extra={"tables": [{"name": "db.events", "owned": True}]})
    clean(host=claimed)
    clean(host=claimed)
    assert left(planted) == []


def test_a_table_two_pipelines_feed_is_left_alone(begun: Flow, clean: Clean, kafka_topic: TopicFactory) -> None:
    other = Flow(begun.files / "q", begun.lake, begun.bootstrap, (kafka_topic(1),), f"{begun.name}_q")
    other = other.but(extra={"catalog": begun.catalog})
    planted = plant(begun)
    begun.load_table().manage_snapshots().create_tag(
        begun.load_table().metadata.current_snapshot_id or 0, f"calve-{other.name}"
    ).commit()
    assert f"calve-{other.name}" in of(clean()).did
    assert left(planted) == planted


def test_a_table_with_a_finding_is_left_alone(begun: Flow, clean: Clean) -> None:
    first = begun.load_table().metadata.snapshots[0].snapshot_id
    begun.load_table().manage_snapshots().rollback_to_snapshot(first).commit()
    planted = plant(begun)
    assert isinstance(clean().failed["db.events"], FindingError)
    assert left(planted) == planted
