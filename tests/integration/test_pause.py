"""Pausing and resuming: what a run in progress still does, what nobody does any more, nothing lost by it."""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control import pausing, publisher
from calve.sink_core.control.events import BatchAbandoned, Event, Paused, PipelineBound, Resumed
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.errors import TableUnusable, UnknownOutcome
from calve.sink_core.sink.batches import BatchReport
from calve.sink_core.sink.loop.coordinator import CommitReport
from calve.sink_core.sink.run import RunReport, run_pipeline
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import CommitToTable, DataComplete, StartCommit
from calve.sink_core.tables.log.fold import SINK
from tests import support
from tests.codes import finding, raises, says
from tests.launch import forked
from tests.pipelines import Died, Flow, reached
from tests.support import TIMEOUT_S, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline whose batches take no more than ten records."""
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra={"batch": {"max_records": 10}})


def calve(flow: Flow, command: str, *options: object) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, [command, str(flow.pipeline.path), *map(str, options)])


def document(flow: Flow, command: str, *options: object) -> Any:
    return json.loads(calve(flow, command, *options, "--json").stdout)


def run(flow: Flow, **options: Any) -> RunReport:
    with flow.session() as session:
        return run_pipeline(session, **options)


def die_after_planning(flow: Flow) -> None:
    """What a killed run leaves: a batch that was announced and that nobody will publish."""

    def die() -> None:
        raise Died

    with reached("plan.after-start-commit", die), pytest.raises(Died):
        flow.run()


def proven(flow: Flow) -> bool:
    with flow.session() as session:
        return verify(session, deep=True).proven


def names(text: str, pause: Paused) -> bool:
    """Whether a text says whose pause it is, and why."""
    return pause.by in text and pause.reason in text


def test_a_new_pipeline_can_be_paused_before_anything_is_read(flow: Flow) -> None:
    flow.produce(range(5))
    paused = calve(flow, "pause", "--reason", "not yet")
    ran = forked("run", flow.pipeline.path)
    assert (paused.exit_code, ran.returncode, ran.stderr) == (0, 0, "")
    [event] = flow.events(Paused)
    assert event.reason == "not yet"
    assert names(paused.stdout, event)
    assert names(ran.stdout, event)
    assert [type(event) for event in flow.events(Event)] == [PipelineBound, Paused]
    assert flow.positions() == {}
    assert not flow.lake.exists() or not list(flow.lake.rglob("*.parquet"))
    assert document(flow, "status")["paused"]["reason"] == "not yet"
    planned = document(flow, "plan")
    assert (planned["bootstrapped"], planned["batch"]["offsets"]) == (False, 5)
    assert document(flow, "verify")["violations"] == []
    assert names(document(flow, "commit")["ended"], event)
    assert names(calve(flow, "resume").stdout, event)
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(5))


def test_a_run_under_way_finishes_its_batch_and_nothing_is_lost(flow: Flow) -> None:
    flow.produce(range(35))

    def pause_after_the_second(batch: BatchReport) -> None:
        if batch.lag_after == 15:
            calve(flow, "pause", "--reason", "enough")

    report = run(flow, on_batch=pause_after_the_second)
    [event] = flow.events(Paused)
    assert event.reason == "enough"
    assert names(report.ended, event)
    assert [batch.records for batch in report.batches] == [10, 10]
    assert flow.ids() == list(range(20))
    assert len(flow.events(StartCommit)) == 2
    assert flow.run().batches == []
    assert flow.ids() == list(range(20))
    calve(flow, "resume")
    flow.run()
    assert flow.ids() == list(range(35))
    assert proven(flow)


def test_a_run_with_a_commit_interval_commits_what_it_published(flow: Flow) -> None:
    flow = flow.but(extra={"batch": {"max_records": 10}, "commit": {"every": "1h"}})
    flow.produce(range(25))
    report = run(flow, on_batch=lambda _: calve(flow, "pause"))
    assert [batch.records for batch in report.batches] == [10]
    assert flow.ids() == list(range(10))


def test_a_pause_ends_a_run_that_waits_for_more(flow: Flow) -> None:
    flow.produce(range(5))
    report = run(
        flow,
        bounds=Bounds(max_batches=9, max_duration_s=600, linger_s=600),
        on_progress=lambda step: calve(flow, "pause") if step.phase == "wait" else None,
    )
    assert names(report.ended, flow.events(Paused)[-1])
    assert flow.ids() == list(range(5))


def test_a_batch_announced_after_the_pause_gives_way(flow: Flow) -> None:
    flow.produce(range(5))
    with reached("plan.after-start-commit", lambda: calve(flow, "pause")):
        report = flow.run()
    assert report.batches == []
    assert names(report.ended, flow.events(Paused)[-1])
    assert [event.kind for event in flow.events(DataComplete)] == ["bootstrap"]
    assert calve(flow, "pause", "--wait", "--timeout", 0).exit_code == 0
    calve(flow, "resume")
    flow.run()
    assert flow.ids() == list(range(5))


def test_a_paused_run_leaves_what_others_published_alone(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    calve(flow, "pause")
    assert flow.run().commits == []
    assert flow.ids() == []


def test_pausing_what_is_paused_says_so_and_writes_nothing(flow: Flow) -> None:
    first = document(flow, "pause", "--reason", "first")
    [event] = flow.events(Paused)
    assert event.by.count("@") == 1
    assert first["written"]
    assert {key: first["paused"][key] for key in ("by", "reason")} == {"by": event.by, "reason": "first"}
    assert document(flow, "pause", "--reason", "second") == {**first, "written": False}
    said = calve(flow, "pause")
    assert said.exit_code == 0
    assert all(first["paused"][key] in said.stdout for key in ("since", "by", "reason"))
    assert flow.events(Paused) == [event]
    assert document(flow, "resume") == {
        "pipeline": flow.name,
        "resumed_by": event.by,
        "was_paused": first["paused"],
    }


def test_resuming_what_is_not_paused_is_written_too(flow: Flow) -> None:
    assert calve(flow, "resume").exit_code == 0
    assert document(flow, "resume")["was_paused"] is None
    assert len(flow.events(Resumed)) == 2
    calve(flow, "pause")
    with flow.session() as session:
        session.read_only()
        state = session.log.state
    assert state.resumed == flow.events(Resumed)[-1]
    assert state.paused == flow.events(Paused)[-1]


def test_waiting_ends_at_once_when_no_batch_is_under_way(flow: Flow) -> None:
    flow.produce(range(5))
    flow.run()
    assert calve(flow, "pause", "--wait", "--timeout", 0).exit_code == 0
    again = document(flow, "pause", "--wait", "--timeout", 0)
    assert (again["written"], again["given_up"]) == (False, [])


def test_waiting_ends_when_the_batch_under_way_is_published(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.produce(range(15))
    writing, waiting = threading.Event(), threading.Event()

    def hold() -> None:
        writing.set()
        assert waiting.wait(TIMEOUT_S)

    def sleep(_seconds: float) -> None:
        waiting.set()
        time.sleep(0.05)

    monkeypatch.setattr(pausing, "sleep", sleep)
    with reached("write.after-files", hold), ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run)
        assert writing.wait(TIMEOUT_S)
        waited = calve(flow, "pause", "--wait")
        report = running.result()
    assert waited.exit_code == 0
    assert [batch.records for batch in report.batches] == [10]
    assert report.batches[0].batch_id not in waited.stdout, "it is not given up"
    assert names(report.ended, flow.events(Paused)[-1])
    assert flow.ids() == list(range(10))


def test_waiting_for_a_batch_of_a_dead_run_gives_up_and_names_it(flow: Flow) -> None:
    flow.produce(range(5))
    die_after_planning(flow)
    [dead] = flow.events(StartCommit)
    waited = calve(flow, "pause", "--wait", "--timeout", 0)
    assert waited.exit_code == 1
    says(waited.stderr, Code.STILL_UNDER_WAY, dead.batch_id)
    told = calve(flow, "pause", "--wait", "--timeout", 0, "--json")
    shown = json.loads(told.stdout)
    assert (told.exit_code, shown["written"], shown["code"]) == (1, False, Code.STILL_UNDER_WAY)
    assert dead.batch_id in shown["message"]
    assert flow.run().batches == []
    calve(flow, "resume")
    flow.run()
    assert calve(flow, "pause", "--wait", "--timeout", 0).exit_code == 0
    assert flow.ids() == list(range(5))


def test_a_run_that_ended_with_an_error_is_not_waited_for(flow: Flow) -> None:
    def fail() -> None:
        raise TableUnusable("no more of this")

    flow.produce(range(5))
    with reached("write.after-files", fail), raises(Code.TABLE_UNUSABLE):
        flow.run()
    [failed] = flow.events(StartCommit)
    assert [event.batch_id for event in flow.events(BatchAbandoned)] == [failed.batch_id]
    assert calve(flow, "pause", "--wait", "--timeout", 0).exit_code == 0
    calve(flow, "resume")
    flow.run()
    assert flow.ids() == list(range(5))


def test_a_publish_of_unknown_outcome_is_not_said_to_be_given_up(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise UnknownOutcome("no answer")

    flow.produce(range(5))
    monkeypatch.setattr(publisher, "ATTEMPTS", 1)
    with reached("publish.after-commit", unknown), raises(Code.UNKNOWN_OUTCOME):
        flow.run()
    assert flow.events(BatchAbandoned) == []


def test_what_is_still_under_way_after_the_wait_is_given_up_on_demand_and_never_published(flow: Flow) -> None:
    flow.produce(range(5))
    die_after_planning(flow)
    [dead] = flow.events(StartCommit)

    def give_up() -> None:
        waited = calve(flow, "pause", "--wait", "--timeout", 0, "--give-up")
        sleeping = flow.events(StartCommit)[-1]
        assert all(batch.batch_id in waited.stdout for batch in (dead, sleeping))

    with reached("write.after-files", give_up):
        report = flow.run()
    assert ([batch.given_up for batch in report.batches], flow.ids()) == ([True], [])
    assert document(flow, "pause", "--wait", "--timeout", 0)["given_up"] == []
    calve(flow, "resume")
    flow.run()
    assert flow.ids() == list(range(5))
    assert proven(flow)


def test_giving_up_without_waiting_is_refused_before_anything_is_written(flow: Flow) -> None:
    refused = calve(flow, "pause", "--give-up")
    assert refused.exit_code == 2
    says(refused.stderr, Code.OPTION, "--give-up", "--wait")
    assert flow.pipeline.control_topic not in flow.admin.list_topics(timeout=TIMEOUT_S).topics


def test_waiting_goes_on_while_a_transaction_may_hide_a_batch(flow: Flow) -> None:
    flow.produce(range(5))
    flow.run()
    producer = Producer({"bootstrap.servers": flow.bootstrap, "transactional.id": support.unique("tx")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(flow.pipeline.control_topic, SINK.encode(Resumed(pipeline_id="", by="nobody")))
    assert producer.flush(TIMEOUT_S) == 0
    waited = calve(flow, "pause", "--wait", "--timeout", 0)
    assert waited.exit_code == 1
    says(waited.stderr, Code.STILL_UNDER_WAY)
    [published] = flow.events(StartCommit)
    assert published.batch_id not in waited.stderr, "none is known that is in progress"
    producer.abort_transaction(TIMEOUT_S)
    assert calve(flow, "pause", "--wait").exit_code == 0
    assert len(flow.events(Paused)) == 1


def test_a_user_without_a_name_is_told_by_number(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000650000")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert document(flow, "pause")["paused"]["by"] == f"{os.getuid()}@{socket.gethostname()}"


def test_waiting_ends_when_somebody_resumes(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.produce(range(5))
    die_after_planning(flow)
    monkeypatch.setattr(pausing, "sleep", lambda _seconds: resume_as(flow, "bo"))
    waited = calve(flow, "pause", "--wait")
    assert waited.exit_code == 1
    says(waited.stderr, Code.RESUMED, "bo")


def resume_as(flow: Flow, by: str) -> None:
    with flow.session() as session:
        session.log.append(Resumed(pipeline_id=session.bind().pipeline_id, by=by))


def test_a_run_that_is_not_to_commit_leaves_it_to_others(flow: Flow) -> None:
    flow.produce(range(25))
    told: list[CommitReport] = []
    report = run(flow, committing=False, on_commit=told.append)
    assert [batch.records for batch in report.batches] == [10, 10, 5]
    assert (report.ended, report.commits, told) == ("caught up", [], [])
    assert (flow.ids(), flow.events(CommitToTable)) == ([], [])
    committed = document(flow, "commit")
    assert committed["failed"] == {}
    assert flow.ids() == list(range(25))
    assert proven(flow)


def test_the_caller_is_told_what_landed_before_a_failure_is_raised(flow: Flow) -> None:
    flow.produce(range(5))
    told: list[CommitReport] = []
    with (
        reached("publish.after-commit", flow.recreate_table, skip=1),
        raises(finding("table-recreated")),
    ):
        run(flow, on_commit=told.append)
    report = told[-1]
    assert list(report.failed) == [flow.table]
    assert [commit.table for commit in report.landed] == [flow.pipeline.ledger_table]


def test_a_batch_and_a_commit_tell_what_was_in_them(flow: Flow) -> None:
    flow.produce(range(4))
    support.produce(flow.bootstrap, flow.topic, [None, b"{"], partition=1)
    told: list[CommitReport] = []
    [batch] = run(flow, on_commit=told.append).batches
    assert (batch.records, batch.tombstones, batch.dead_lettered, batch.gaps) == (6, 1, 1, 0)
    flow.produce(range(4, 6))
    run(flow, on_commit=told.append)
    landed = [commit for report in told for commit in report.landed if commit.table == flow.table]
    snapshots = [snapshot.summary for snapshot in flow.load_table().metadata.snapshots if snapshot.summary]
    keys = ("total-records", "total-data-files", "total-files-size")
    assert [(c.total_rows, c.total_files, c.total_bytes) for c in landed] == [
        tuple(int(summary.additional_properties[key]) for key in keys) for summary in snapshots
    ]
    assert [commit.total_rows for commit in landed] == [4, 6]
    with flow.session() as session:
        shown = next(table for table in status(session).tables if table.table == flow.table)
    assert (shown.rows, shown.files) == (6, landed[-1].total_files)
