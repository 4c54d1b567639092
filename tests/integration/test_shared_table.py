"""Tables that others write to and maintain, and what is found after expiry and trim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.table_maintenance import Compact, Expire
from calve.sink_core.control.trim import trim
from calve.sink_core.sink.maintenance.compact import compact
from calve.sink_core.sink.maintenance.expire import expire
from calve.sink_core.sink.maintenance.work import Work
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.proof import VerifyReport
from calve.spark_jobs.procedures import SparkProcedures
from tests.codes import finding, raises
from tests.pipelines import Flow
from tests.support import TopicFactory

NEVER = "0 0 31 2 *"
Maintain = Callable[..., None]


@pytest.fixture
def flow(broker: Broker, kafka_topic: TopicFactory, tmp_path: Path) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


@pytest.fixture
def maintain(flow: Flow, spark: SparkSession) -> Maintain:
    """Compaction, expiry of everything that may go, and a trim of everything that may go."""

    def run(*, retain_last: int = 1, compacted: bool = True) -> None:
        with flow.session() as session:
            session.read_only()
            session.bind()
            work = Work(session, SparkProcedures(lambda: spark, flow.pipeline.catalog), lambda _step: None)
            if compacted:
                compact(work, Compact(cron=NEVER, lag=0.0, min_files=2)).raise_failures()
            expire(work, Expire(cron=NEVER, older_than=0.0, retain_last=retain_last)).raise_failures()
            trim(session, older_than_s=0)

    return run


def proof(flow: Flow) -> VerifyReport:
    with flow.session() as session:
        return verify(session, deep=True)


def test_a_writer_that_appends_and_keeps_one_snapshot_takes_and_doubles_nothing(
    flow: Flow, spark: SparkSession
) -> None:
    """The ancestry between our tag and the head is gone after each round; our files are still in the head."""
    expected: list[int] = []
    for number in range(4):
        ours = range(10 * number, 10 * number + 10)
        flow.produce(ours)
        flow.run()
        table = f"{flow.attached(spark)}.db.events"
        for extra in (1000 + 2 * number, 1001 + 2 * number):
            spark.sql(f"INSERT INTO {table} (id, text) VALUES ({extra}, 'theirs')")
            expected.append(extra)
        spark.sql(
            f"CALL {flow.catalog}.system.expire_snapshots(table => 'db.events', "
            "older_than => timestamp'2100-01-01 00:00:00', retain_last => 1)"
        )
        expected += ours
        assert flow.ids() == sorted(expected)
    flow.produce(range(100, 110))
    flow.run()
    assert flow.ids() == sorted([*expected, *range(100, 110)])
    assert flow.spark_ids(spark) == flow.ids()
    report = proof(flow)
    assert report.proven, report.violations
    unproven = [part.why for part in report.not_checked if part.subject == "db.events"]
    assert any("4" in why.split() for why in unproven), "a warning: of so many batches the snapshots are gone"


def test_after_compaction_expiry_and_trim_everything_goes_on(flow: Flow, maintain: Maintain) -> None:
    for number in range(4):
        flow.produce(range(10 * number, 10 * number + 10))
        flow.run()
        maintain()
    assert flow.ids() == list(range(40))
    report = proof(flow)
    assert report.proven, report.violations


def test_a_roll_back_after_expiry_and_trim_is_found(flow: Flow, maintain: Maintain) -> None:
    for number in range(3):
        flow.produce(range(10 * number, 10 * number + 10))
        flow.run()
    maintain(retain_last=2, compacted=False)
    older, newer = (snapshot.snapshot_id for snapshot in flow.load_table().metadata.snapshots)
    flow.load_table().manage_snapshots().rollback_to_snapshot(older).commit()
    flow.produce(range(30, 40))
    with raises(finding("table-rolled-back")) as found:
        flow.run()
    assert (found.value.finding, found.value.subject) == ("table-rolled-back", "db.events")
    assert str(newer) in found.value.stored
    assert str(older) in found.value.found
    assert flow.ids() == list(range(20)), "nothing was guessed"
    report = proof(flow)
    assert not report.proven
    assert any(violation.subject == "db.events" for violation in report.violations)
