"""The proof on a real pipeline: it holds after a run, and names each thing that is broken on purpose."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import EXIT_STOPPED, CalveError
from calve.sink_core.sink.status import StatusReport, status
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import StartCommit
from calve.sink_core.tables.proof import VerifyReport, Violation
from tests import support
from tests.launch import calve
from tests.pipelines import Died, Flow, reached
from tests.support import TopicFactory

BAD = b'{"id": "not a number"}'


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two partitions, two batches: ids 0 to 19 in both, a dead letter and a tombstone, gaps of a transaction."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(10))
    flow.produce(range(10, 15), partition=1)
    flow.run()
    flow.produce(range(15, 20))
    support.produce(flow.bootstrap, flow.topic, [BAD, None], partition=1)
    flow.run()
    return flow


def proof(flow: Flow, *, deep: bool = False) -> VerifyReport:
    with flow.session() as session:
        return verify(session, deep=deep)


def state(flow: Flow) -> StatusReport:
    with flow.session() as session:
        return status(session)


def named(report: VerifyReport, kind: str) -> Violation:
    found = [violation for violation in report.violations if violation.kind == kind]
    assert found, [violation.kind for violation in report.violations]
    return found[0]


def batches(flow: Flow) -> list[str]:
    return [batch_id for _, own in flow.own_snapshots() for batch_id in own.batches]


def data_files(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


def append_rows(flow: Flow, *rows: dict[str, Any]) -> None:
    table = flow.load_table()
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


def place(flow: Flow, offset: int, partition: int = 0) -> dict[str, Any]:
    return {"topic": flow.topic, "partition": partition, "offset": offset, "timestamp": None}


def test_a_sound_pipeline_is_proven_to_its_last_offset(flow: Flow) -> None:
    lines: list[str] = []
    with flow.session() as session:
        report = verify(session, deep=True, on_progress=lines.append)
    assert report.violations == ()
    assert report.not_checked == ()
    assert report.facts["offsets"] == report.facts["offsets recounted"] == 22
    assert report.facts["dead lettered"] == 1
    assert report.facts["batches"] == 2
    assert set(report.uncommitted.values()) == {0}
    assert json.loads(json.dumps(report.to_json()))["proven"] is True
    assert lines


def test_of_a_pipeline_that_has_not_run_there_is_nothing_to_prove(tmp_path: Path, broker: Broker) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, "no-such-topic")
    with pytest.raises(CalveError):
        flow.run()
    for deep in (False, True):
        report = proof(flow, deep=deep)
        assert (report.proven, report.verdict, report.violations) == (False, "nothing-to-prove", ())
    said = calve("verify", flow.pipeline.path, "--deep", "--json")
    assert (said.returncode, json.loads(said.stdout)["verdict"]) == (EXIT_STOPPED, "nothing-to-prove")


def test_published_batches_are_proven_before_they_are_committed(flow: Flow) -> None:
    flow.produce(range(20, 24))
    flow.publish()
    report = proof(flow, deep=True)
    assert report.violations == ()
    assert report.uncommitted[flow.table] == report.uncommitted[flow.pipeline.ledger_table] == 1
    assert report.facts["offsets"] == 26


def test_a_removed_data_file_is_named_with_its_batch_and_its_offsets(flow: Flow) -> None:
    (path, *_) = data_files(flow.load_table())
    Path(path.removeprefix("file://")).unlink()
    report = proof(flow, deep=True)
    missing = named(report, "file-missing")
    assert path in missing.message
    assert missing.subject == flow.table
    assert len(missing.batches) == 1
    assert missing.batches[0] in path
    lost = named(report, "range-rows")
    assert lost.batches == missing.batches
    assert lost.ranges[0].startswith(f"{flow.topic}[")


def test_a_removed_file_of_a_batch_that_is_not_committed_yet_is_named(flow: Flow) -> None:
    flow.produce(range(20, 24))
    before = set(Path(flow.lake).rglob("*.parquet"))
    flow.publish()
    ledger = flow.pipeline.ledger_table.split(".")[1]
    (new,) = (p for p in set(Path(flow.lake).rglob("*.parquet")) - before if ledger in str(p))
    new.unlink()
    report = proof(flow)
    assert named(report, "file-missing").subject == flow.pipeline.ledger_table
    assert named(report, "ledger-gap").ranges == (f"{flow.topic}[0] [15, 19)",)


def test_a_manifest_that_is_gone_is_a_violation_and_no_crash(flow: Flow) -> None:
    table = flow.load_table()
    head = table.current_snapshot()
    assert head is not None
    manifest = head.manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).unlink()
    assert manifest in named(proof(flow, deep=True), "metadata-file-missing").message


def test_a_batch_committed_twice_by_force_is_named(flow: Flow) -> None:
    table = flow.load_table()
    task = next(iter(table.scan().plan_files()))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(task.file)
    shallow = named(proof(flow), "file-twice")
    assert task.file.file_path in shallow.message
    twice = named(proof(flow, deep=True), "offset-twice")
    assert twice.batches[0] in task.file.file_path


def test_a_batch_that_two_snapshots_claim_is_named_with_both(flow: Flow) -> None:
    table, (snapshot, said) = flow.load_table(), flow.own_snapshots()[-1]
    summary = table.metadata.snapshot_by_id(snapshot).summary.additional_properties
    ours = {key: value for key, value in summary.items() if key.startswith(("calve.", "kafka."))}
    table.append(table.schema().as_arrow().empty_table(), snapshot_properties=ours)
    twice = named(proof(flow), "batch-twice")
    assert twice.batches == said.batches
    assert str(snapshot) in twice.message


def test_a_ledger_range_that_is_skipped_is_named(flow: Flow) -> None:
    table = flow.load_table(flow.pipeline.ledger_table)
    table.delete("partition = 0 and start_offset = 10")
    report = proof(flow)
    gap = named(report, "ledger-gap")
    assert gap.ranges == (f"{flow.topic}[0] [10, 15)",)
    assert gap.subject == f"{flow.topic}[0]"
    assert named(report, "ledger-positions").batches == (batches(flow)[-1],)


def test_a_deleted_row_is_named_by_its_offset(flow: Flow) -> None:
    flow.load_table().delete("id = 7")
    by_others = flow.load_table().metadata.current_snapshot_id
    assert [(each.subject, str(by_others) in each.why) for each in proof(flow).not_checked] == [(flow.table, True)]
    lost = named(proof(flow, deep=True), "range-rows")
    assert lost.ranges == (f"{flow.topic}[0] [7, 8)",)
    assert lost.batches == (batches(flow)[0],)


def test_an_extra_row_is_named_whether_it_doubles_an_offset_or_invents_one(flow: Flow) -> None:
    append_rows(flow, {"id": 7, "text": "again", "_kafka": place(flow, 7)})
    append_rows(flow, {"id": 99, "text": "invented", "_kafka": place(flow, 500)})
    report = proof(flow, deep=True)
    assert named(report, "offset-twice").ranges == (f"{flow.topic}[0] [7, 8)",)
    assert named(report, "offset-outside").ranges == (f"{flow.topic}[0] [500, 501)",)


def test_rows_of_another_writer_are_stated_and_no_violation(flow: Flow) -> None:
    flow.append_foreign(100)
    report = proof(flow, deep=True)
    assert report.proven
    assert any("1" in skipped.why.split() for skipped in report.not_checked if skipped.subject == flow.table)


def test_positions_moved_by_others_and_lost_records_are_findings(flow: Flow) -> None:
    at = next(at for at in flow.positions() if at.partition == 0)
    flow.move_positions({at: 3})
    report = proof(flow)
    assert named(report, "positions-changed").subject == flow.topic
    assert re.search(r"\b3\b", named(report, "positions-changed").message)
    flow.delete_records(flow.topic, before=5)
    assert re.search(r"\b2\b", named(proof(flow), "records-lost-to-retention").message)


def test_a_rolled_back_table_is_a_finding_and_the_lost_batch_is_named(flow: Flow) -> None:
    (first, _), (_, second) = flow.own_snapshots()
    with flow.load_table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    report = proof(flow)
    assert named(report, "table-rolled-back").subject == flow.table
    assert named(report, "batch-missing").batches == second.batches


def test_a_dropped_table_is_a_finding(flow: Flow) -> None:
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
    assert named(proof(flow), "table-dropped").subject == flow.table


def test_expired_snapshots_bound_the_claim(flow: Flow) -> None:
    (first, _), _ = flow.own_snapshots()
    flow.load_table().maintenance.expire_snapshots().by_id(first).commit()
    report = proof(flow, deep=True)
    assert report.proven
    assert flow.table in {skipped.subject for skipped in report.not_checked}


def test_records_that_kafka_no_longer_holds_are_not_recounted(flow: Flow) -> None:
    flow.delete_records(flow.topic, before=12)
    report = proof(flow, deep=True)
    assert report.proven
    assert report.facts["offsets no longer in Kafka"] == 15
    assert report.facts["offsets recounted"] == 7


def test_a_pipeline_that_never_ran_has_nothing_to_prove(tmp_path: Path, broker: Broker, kafka_topic: Any) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(4))
    report, now = proof(flow, deep=True), state(flow)
    assert report.verdict == "nothing-to-prove"
    assert report.not_checked[0].subject == flow.pipeline.control_topic
    assert (now.bootstrapped, now.lag, now.control_topic, now.last_batch) == (False, 4, None, None)
    assert {table.exists for table in now.tables} == {False}


def test_status_says_what_waits_where(flow: Flow) -> None:
    flow.produce(range(20, 24))
    flow.publish()
    flow.produce(range(24, 27), partition=1)
    with flow.session() as session:
        ours = session.bind().pipeline_id
        last = flow.positions().popitem()[1].batch_id
        started = StartCommit(pipeline_id=ours, batch_id="b", predecessor=last, file_prefix="", config_fingerprint="")
        session.log.append(started)
        now = status(session)
    assert (now.bootstrapped, now.lag) == (True, 3)
    assert [(p.partition, p.lag) for p in now.partitions] == [(0, 0), (1, 3)]
    assert [(t.lag, t.until_loss) for t in now.topics] == [(3, 7)]
    assert [batch.batch_id for batch in now.in_flight] == ["b"]
    assert now.last_batch is not None
    assert (now.last_batch.batch_id, now.last_batch.records) == (last, 4)
    table = next(table for table in now.tables if table.table == flow.table)
    assert (table.rows, table.snapshots, table.uncommitted.batches, table.uncommitted.rows) == (20, 2, 1, 4)
    assert table.uncommitted.oldest_age_s is not None
    assert table.head_snapshot == str(flow.own_snapshots()[-1][0])
    assert table.valid_through is not None
    assert now.findings == ()
    assert json.loads(json.dumps(now.to_json()))["lag"] == 3


def test_status_answers_while_a_dead_publisher_holds_its_transaction_open(flow: Flow) -> None:
    published = {at.partition: position.offset for at, position in flow.positions().items()}
    flow.produce(range(20, 24))

    def die() -> None:
        raise Died

    with pytest.raises(Died), reached("publish.after-offsets", die):
        flow.run()
    now = state(flow)
    assert now.publish_pending
    assert {p.partition: p.position for p in now.partitions} == published
    assert (now.lag, len(now.in_flight), now.findings) == (4, 1, ())
    flow.run()
    assert proof(flow, deep=True).proven


def test_status_shows_findings_instead_of_raising_them(flow: Flow) -> None:
    at = next(at for at in flow.positions() if at.partition == 0)
    flow.move_positions({at: 3})
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
    now = state(flow)
    assert "positions-changed" in now.findings[0]
    assert "table-dropped" in str(next(table for table in now.tables if table.table == flow.table).finding)


def planned_last(flow: Flow) -> int:
    """When the last batch was planned, in milliseconds."""
    return max(int(row["planned_at"].timestamp() * 1000) for row in flow.rows(flow.pipeline.ledger_table))


def test_a_proof_since_a_moment_looks_at_the_batches_since_then_only(flow: Flow) -> None:
    flow.produce(range(20, 24))
    flow.run()
    with flow.session() as session:
        report = verify(session, deep=True, since_ms=planned_last(flow))
    assert report.violations == ()
    assert report.since is not None
    assert report.facts["batches"] == 1
    assert report.facts["offsets"] == report.facts["offsets recounted"] == report.facts["rows scanned"] == 4
    left_out = {each.subject: each.why.split() for each in report.not_checked}
    assert flow.pipeline.ledger_table in left_out, "the batches before"
    assert {"2", "3"} <= {*left_out[flow.table]}, "of its files"
    with flow.session() as session:
        whole = verify(session, deep=True, since_ms=0)
        none = verify(session, deep=True, since_ms=planned_last(flow) + 1)
    assert (whole.violations, none.violations) == ((), ())
    assert (whole.facts["batches"], none.facts.get("batches", 0)) == (3, 0)


def test_a_proof_since_a_moment_finds_what_was_done_to_rows_since_and_not_before(flow: Flow) -> None:
    flow.produce(range(20, 24))
    flow.run()
    flow.load_table().delete("id = 3")
    with flow.session() as session:
        assert verify(session, deep=True, since_ms=planned_last(flow)).violations == ()
    flow.load_table().delete("id = 21")
    append_rows(flow, {"id": 22, "text": "again", "_kafka": place(flow, 17)})
    with flow.session() as session:
        report = verify(session, deep=True, since_ms=planned_last(flow))
    assert named(report, "range-rows").ranges == (f"{flow.topic}[0] [16, 17)",)
    assert named(report, "offset-twice").ranges == (f"{flow.topic}[0] [17, 18)",)
