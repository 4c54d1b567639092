"""Trimming the control topic: what nobody needs is gone, and everything that was found before is found after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.broker import Broker
from orchestration.cli.main import app
from sink_core.control.events import Checkpoint, DataComplete, DataWritten, Event, Paused, StartCommit
from sink_core.control.log import REQUIRED_CONFIG, ControlLog
from sink_core.errors import FindingError, UnknownOutcome
from sink_core.failpoints import VARIABLE
from sink_core.kafka import clients
from sink_core.maintenance.report import TaskOutcome
from sink_core.maintenance.trim import trim
from sink_core.offsets import TopicPartition
from sink_core.status import status
from sink_core.verify.report import VerifyReport
from sink_core.verify.verify import verify
from spark_jobs.run import run_pipeline
from tests import support
from tests.integration import test_findings as damage
from tests.pipelines import Died, Flow, InProcess, reached
from tests.support import TopicFactory

CALVE = Path(sys.executable).with_name("calve")
AT_ONCE = {"maintenance": {"trim": {"older_than": "0s"}}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline without a batch, whose trim may take everything."""
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra=AT_ONCE)


def run(flow: Flow, batches: int, start: int = 0) -> None:
    """Batches of five ids each, in turn on the two partitions."""
    for number in range(batches):
        first = start + 5 * number
        flow.produce(range(first, first + 5), partition=number % 2)
        flow.run()


def trimmed(flow: Flow, **options: Any) -> TaskOutcome:
    with flow.session() as session:
        session.bind()
        return trim(session, **{"older_than_s": 0, **options})


def log_start(flow: Flow) -> int:
    settings = flow.pipeline.kafka.properties
    return ControlLog(settings, flow.pipeline.control_topic, admin=clients.admin(settings)).log_start()


def proof(flow: Flow, *, deep: bool = True) -> VerifyReport:
    with flow.session() as session:
        return verify(session, deep=deep)


def kinds(report: VerifyReport) -> list[str]:
    return [violation.kind for violation in report.violations]


def test_a_trimmed_pipeline_is_proven_goes_on_and_is_trimmed_again(flow: Flow) -> None:
    flow = flow.but(extra={**AT_ONCE, "batch": {"max_records": 5}})
    flow.produce(range(30))
    flow.produce(range(30, 60), partition=1)
    flow.run()
    before, events = proof(flow), len(flow.events(Event))
    done = trimmed(flow)
    last = flow.events(DataComplete)
    assert len(last) == 1
    assert done.changed
    assert f"deleted; the last publish is at control offset {log_start(flow)}" in done.did
    assert done.before["events"] > events > done.after["events"]
    for deep in (False, True):
        report = proof(flow, deep=deep)
        assert report.violations == ()
        assert [part.subject for part in report.not_checked] == [flow.pipeline.control_topic]
        assert "12 batches against their events: these were trimmed" in report.not_checked[0].why
    assert {k: v for k, v in report.facts.items() if k != "batches"} == {
        **{k: v for k, v in before.facts.items() if k != "batches"},
        "control events": report.facts["control events"],
    }
    run(flow, 3, start=60)
    assert flow.ids() == list(range(75))
    assert proof(flow).violations == ()
    assert trimmed(flow).changed
    assert proof(flow).violations == ()
    assert flow.run().batches == []


def test_a_second_trim_right_after_has_nothing_to_do(flow: Flow) -> None:
    run(flow, 2)
    trimmed(flow)
    events = flow.events(Event)
    again = trimmed(flow)
    assert (again.changed, again.before) == (False, again.after)
    start = log_start(flow)
    assert again.did == (
        f"nothing to do: the log begins at control offset {start}, and the last publish is at control offset {start}"
    )
    assert flow.events(Event) == events


def test_a_pipeline_that_never_published_has_nothing_to_trim(flow: Flow) -> None:
    done = trimmed(flow)
    assert not done.changed
    assert "has not published anything yet" in done.did
    assert flow.events(Checkpoint) == []


def test_young_events_stay(flow: Flow) -> None:
    run(flow, 2)
    done = trimmed(flow, older_than_s=3600)
    assert (done.changed, log_start(flow)) == (False, 0)
    assert done.did.endswith("and events from control offset 0 on are younger than 3,600 s")


def test_a_dry_run_says_what_would_be_deleted_and_writes_nothing(flow: Flow) -> None:
    run(flow, 2)
    events = flow.events(Event)
    done = trimmed(flow, dry_run=True)
    assert (done.changed, done.before) == (False, done.after)
    assert "would be deleted" in done.did
    assert (flow.events(Event), log_start(flow)) == (events, 0)


def test_a_table_that_is_behind_holds_back_from_its_first_pending_event_on(flow: Flow) -> None:
    flow = flow.but(tables=("db.good", "db.bad"))
    run(flow, 2)
    for start in (10, 15):
        flow.produce(range(start, start + 5))
        with flow.session() as session:
            run_pipeline(session, InProcess(), committing=False)
    with flow.session() as session, pytest.MonkeyPatch.context() as patch:
        session.bind()
        real = session.catalog.commit_table

        def edge(table: Any, *args: Any) -> Any:
            if ".".join(table.name()) == "db.bad":
                raise PermissionError("403: not allowed to write db.bad")
            return real(table, *args)

        patch.setattr(session.catalog, "commit_table", edge)
        assert list(session.coordinator().commit().failed) == ["db.bad"]
    lacking = [event for event in flow.events(DataWritten) if event.table == "db.bad"][-2]
    done = trimmed(flow)
    assert done.changed
    assert "db.bad has not taken in the event at control offset" in done.did
    left = [event for event in flow.events(DataWritten) if event.table == "db.bad"]
    assert left[0].event_id == lacking.event_id
    assert proof(flow).violations == ()
    flow.commit()
    assert flow.ids("db.good") == flow.ids("db.bad") == list(range(20))
    assert trimmed(flow).did.endswith(f"the last publish is at control offset {log_start(flow)}")
    assert proof(flow).violations == ()


def test_a_silent_table_holds_nothing_back(flow: Flow) -> None:
    support.produce(flow.bootstrap, flow.topic, [b"{"])
    run(flow, 3)
    trimmed(flow)
    dead_letters = flow.pipeline.dead_letter_table
    assert dead_letters not in {event.table for event in flow.events(DataWritten)}
    run(flow, 2, start=15)
    assert trimmed(flow).changed
    support.produce(flow.bootstrap, flow.topic, [b"{"])
    run(flow, 1, start=25)
    assert len(flow.rows(dead_letters)) == 2
    assert proof(flow).violations == ()


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (damage.roll_back, "table-rolled-back"),
        (damage.remove_tag, "tag-removed"),
        (damage.restore_the_catalog, "table-restored"),
        (damage.restore_the_catalog_from_before_the_first_commit, "table-restored"),
        (Flow.recreate_table, "table-recreated"),
        (damage.drop_the_table, "table-dropped"),
        (damage.reset_backwards, "positions-changed"),
        (damage.reset_forwards, "positions-changed"),
        (damage.delete_the_group, "positions-missing"),
        (damage.lose_records_to_retention, "records-lost-to-retention"),
        (damage.recreate_the_source_topic, "topic-recreated"),
        (damage.recreate_the_control_topic, "control-topic-recreated"),
        (damage.configure_another_catalog, "other-catalog"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_finding_is_found_after_a_trim_and_after_another_with_the_finding_there(
    flow: Flow, break_it: Callable[[Flow], Flow | None], finding: str
) -> None:
    for start in (0, 10):
        flow.produce(range(start, start + 10))
        flow.run()
    flow.produce(range(20, 30))
    assert trimmed(flow).changed
    broken = break_it(flow) or flow
    for _ in range(2):
        with pytest.raises(FindingError) as caught:
            broken.run()
        assert caught.value.finding == finding
        # What stands against the binding stops whoever trims before it trims.
        with suppress(FindingError):
            trimmed(broken)


def test_a_log_that_lost_its_checkpoint_is_truncated(flow: Flow) -> None:
    run(flow, 3)
    trimmed(flow)
    with flow.session() as session:
        session.read_only()
        end = session.log.state.next_offset
    flow.delete_records(flow.pipeline.control_topic, end)
    with pytest.raises(FindingError, match=rf"control-topic-truncated.*log start {end}, no checkpoint"):
        flow.run()


def test_a_log_that_lost_more_than_a_trim_took_is_truncated(flow: Flow) -> None:
    """A checkpoint stands for the events, but not for the files that one of them names and no table has."""
    run(flow, 2)
    flow.produce(range(10, 15))
    flow.publish()
    assert trimmed(flow).changed
    with flow.session() as session:
        session.read_only()
        lacking = session.log.state.written[flow.table][-1].offset
    flow.delete_records(flow.pipeline.control_topic, lacking + 1)
    with pytest.raises(FindingError, match=rf"control-topic-truncated.*log start {lacking + 1}"):
        flow.commit()


def test_a_log_that_lost_its_end_after_a_trim_is_truncated(flow: Flow) -> None:
    """Restored from an older state: the offsets are there again, and hold other events."""
    run(flow, 2)
    trimmed(flow)
    flow.produce(range(10, 15))
    flow.run()
    with flow.session() as session:
        session.read_only()
        written = session.log.state.written[flow.table]
        written[:] = [replace(logged, event=replace(logged.event, event_id="another")) for logged in written]
        with pytest.raises(FindingError, match=r"control-topic-truncated.*no such event"):
            session.committer().load_checked(flow.table)


def test_a_table_put_back_to_before_a_commit_that_nobody_reported_is_found(flow: Flow) -> None:
    """Its events are gone: only what the trim saw in the table tells that they are missing."""

    def die() -> None:
        raise UnknownOutcome("the coordinator is gone")

    run(flow, 1)
    flow.produce(range(5, 10))
    flow.publish()
    for table in (flow.pipeline.ledger_table, flow.table):
        with flow.session() as session:
            session.bind()
            with reached("commit.after-swap", die), pytest.raises(UnknownOutcome):
                session.committer().commit(table)
    flow.produce(range(10, 15))
    flow.publish()
    before = flow.load_table().metadata.metadata_log[-1].metadata_file
    assert trimmed(flow).changed
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
        catalog.register_table(flow.table, before)
    with pytest.raises(FindingError, match="table-restored"):
        flow.run()


def test_what_was_broken_before_the_trim_is_found_after_it(flow: Flow) -> None:
    run(flow, 4)
    flow.load_table().delete("id = 7")
    flow.load_table(flow.pipeline.ledger_table).delete("partition = 0 and start_offset = 0")
    # The first is what the deletion wrote.
    path = flow.load_table().inspect.files().to_pylist()[-1]["file_path"]
    trimmed(flow)
    Path(path.removeprefix("file://")).unlink()
    report = proof(flow)
    assert {"file-missing", "ledger-gap", "range-rows"} <= set(kinds(report))
    gap = next(violation for violation in report.violations if violation.kind == "ledger-gap")
    assert gap.ranges == (f"{flow.topic}[0] [0, 5)",)
    lost = [v.ranges for v in report.violations if v.kind == "range-rows"]
    assert (f"{flow.topic}[1] [2, 3)",) in lost


def test_a_batch_that_the_ledger_invents_is_noticed_after_the_trim(flow: Flow) -> None:
    run(flow, 3)
    ledger = flow.load_table(flow.pipeline.ledger_table)
    rows = ledger.scan().to_arrow()
    row = {**rows.to_pylist()[0], "batch_id": "invented", "start_offset": 5, "end_offset": 5, "records": 0, "gaps": 0}
    row |= {"written": [], "value_bytes": 0}
    ledger.append(rows.from_pylist([row], schema=rows.schema))
    trimmed(flow)
    report = proof(flow, deep=False)
    assert "batch-not-in-log" in kinds(report)


def test_a_pause_keeps_its_reason_and_its_time(flow: Flow) -> None:
    run(flow, 2)
    with flow.session() as session:
        bound = session.bind()
        session.log.append(Paused(pipeline_id=bound.pipeline_id, by="ana", reason="moving house"))
        before = status(session).paused
        # As if a table had got something since: otherwise the pause lies above the last publish, and stays.
        trim(session, older_than_s=0)
        end = session.log.refresh_to_end().checkpoint
        assert end is not None
        later = replace(end.event, event_id="later", delete_below=end.event.up_to_offset)
        session.log.append(later)
        session.log.delete_below(later.delete_below)
    assert flow.events(Paused) == []
    with flow.session() as session:
        assert status(session).paused == before
    assert flow.run().ended == "paused by ana: moving house"
    assert [proof(flow).violations, flow.ids()] == [(), list(range(10))]


@pytest.mark.parametrize("place", ["trim.after-checkpoint", "trim.before-delete"])
def test_two_trims_at_once_and_a_run_beside_them_do_no_harm(flow: Flow, place: str) -> None:
    run(flow, 3)

    def others() -> None:
        trimmed(flow)
        run(flow, 1, start=15)
        trimmed(flow)

    with reached(place, others):
        done = trimmed(flow)
    assert done.changed or "nothing to do" in done.did
    assert flow.run().batches == []
    assert flow.ids() == list(range(20))
    assert proof(flow).violations == ()


def test_a_checkpoint_that_a_publish_overtakes_is_written_again(flow: Flow) -> None:
    run(flow, 3)
    append = ControlLog.append

    def publish_before(log: ControlLog, event: Event) -> Any:
        if isinstance(event, Checkpoint) and len(flow.events(Checkpoint)) < 1:
            run(flow, 1, start=15)
        return append(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlLog, "append", publish_before)
        assert trimmed(flow).changed
    # The first has gone with what it was written for.
    assert len(flow.events(Checkpoint)) >= 1
    assert flow.run().batches == []
    assert proof(flow).violations == ()


def test_a_trim_that_is_overtaken_again_and_again_leaves_it_to_the_next(flow: Flow) -> None:
    run(flow, 2)
    append, numbers = ControlLog.append, iter(range(10, 1000, 5))

    def publish_before(log: ControlLog, event: Event) -> Any:
        if isinstance(event, Checkpoint):
            run(flow, 1, start=next(numbers))
        return append(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlLog, "append", publish_before)
        done = trimmed(flow)
    assert (done.changed, log_start(flow)) == (False, 0)
    assert "5 checkpoints were overtaken" in done.did
    assert trimmed(flow).changed
    assert proof(flow).violations == ()


@pytest.mark.parametrize(
    "place",
    [
        "plan.after-start-commit",
        "write.after-manifests",
        "publish.after-fence",
        "commit.after-check",
        "commit.after-list",
    ],
)
def test_a_trim_in_the_middle_of_a_run_is_not_noticed(flow: Flow, place: str) -> None:
    run(flow, 3)
    flow.produce(range(15, 20))
    with reached(place, lambda: trimmed(flow)):
        report = flow.run()
    assert report.ended == "caught up"
    assert len(report.batches) == 1
    assert flow.ids() == list(range(20))
    assert log_start(flow) > 0
    assert proof(flow).violations == ()


def test_a_reader_that_a_trim_overtakes_begins_again(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    run(flow, 3)
    trimmed(flow)
    real, asked = ControlLog.log_start, list[int]()

    def stale_at_first(log: ControlLog) -> int:
        asked.append(real(log))
        return 0 if len(asked) == 1 else asked[-1]

    monkeypatch.setattr(ControlLog, "log_start", stale_at_first)
    with flow.session() as session:
        held = session.log.state
        session.read_only()
        assert session.log.state is held
        assert (held.log_start, held.published) == (asked[-1], 3)
    assert len(asked) == 3


def test_a_proof_whose_log_was_trimmed_since_it_was_read_begins_again(flow: Flow) -> None:
    run(flow, 3)
    with flow.session() as session:
        session.read_only()
        trimmed(flow)
        report = verify(session, deep=True)
    assert report.violations == ()
    assert "3 batches" in report.not_checked[0].why


def test_a_batch_under_way_stays_listed(flow: Flow) -> None:
    def die() -> None:
        raise Died

    run(flow, 2)
    flow.produce(range(10, 15))
    with reached("plan.after-start-commit", die), pytest.raises(Died):
        flow.run()
    trimmed(flow)
    with flow.session() as session:
        [batch] = status(session).in_flight
    assert batch.batch_id == flow.events(StartCommit)[-1].batch_id


def test_a_topic_put_back_after_a_trim_goes_on_where_it_was(flow: Flow, kafka_topic: TopicFactory) -> None:
    both = flow.but(topics=(flow.topic, kafka_topic(1)))
    both.produce(range(5), topic=both.topics[1])
    both.run()
    alone = flow.but()
    run(alone, 2, start=10)
    trimmed(alone)
    assert all(event.positions.keys() == {flow.topic} for event in flow.events(DataComplete))
    with alone.session() as session:
        session.bind()
        assert session.publisher.keep_alive() == 3
        assert TopicPartition(both.topics[1], 0) in session.log.state.partitions
    both.produce(range(30, 33), topic=both.topics[1])
    both.run()
    assert both.ids() == [*range(5), *range(10, 20), *range(30, 33)]
    assert proof(both).violations == ()


def test_nothing_is_trimmed_while_the_control_topic_is_not_what_it_was(flow: Flow) -> None:
    run(flow, 2)
    topic = flow.pipeline.control_topic
    with flow.session() as session:
        session.bind()
        events = support.consume(flow.bootstrap, topic)
        flow.recreate_topic(topic, 1, REQUIRED_CONFIG)
        support.produce(flow.bootstrap, topic, [*events, *events[:1] * 50])
        done = trim(session, older_than_s=0)
    assert not done.changed
    assert done.did.startswith("not trimmed: control-topic-")
    assert log_start(flow) == 0


@pytest.mark.parametrize("place", ["trim.after-checkpoint", "trim.before-delete"])
def test_a_killed_trim_is_made_good_by_the_next(flow: Flow, place: str) -> None:
    run(flow, 3)
    command = [str(CALVE), "maintain", str(flow.pipeline.path), "trim", "--json"]
    killed = subprocess.run(command, env={**os.environ, VARIABLE: f"{place}=kill"}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed
    assert (log_start(flow), len(flow.events(Checkpoint))) == (0, 1)
    assert proof(flow).violations == ()
    run(flow, 1, start=15)
    done = subprocess.run(command, capture_output=True, check=True)
    [outcome] = json.loads(done.stdout)["done"]
    assert (outcome["task"], outcome["changed"]) == ("trim", True)
    assert log_start(flow) > 0
    assert flow.run().batches == []
    assert flow.ids() == list(range(20))
    assert proof(flow).violations == ()


def test_status_says_how_much_the_control_topic_holds_and_since_when(flow: Flow) -> None:
    run(flow, 2)
    trimmed(flow)
    oldest = flow.events(Event)[0]
    said = CliRunner().invoke(app, ["status", str(flow.pipeline.path)]).stdout
    shown = json.loads(CliRunner().invoke(app, ["status", str(flow.pipeline.path), "--json"]).stdout)["control_topic"]
    assert (shown["start"], shown["events"]) == (log_start(flow), shown["end"] - shown["start"])
    assert shown["oldest_age_s"] > 0
    assert isinstance(oldest, DataComplete)
    assert f"{shown['events']} events since {shown['oldest']}" in " ".join(said.split())
