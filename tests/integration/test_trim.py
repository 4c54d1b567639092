"""Trimming the control topic: what nobody needs is gone, and everything that was found before is found after."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.events import Event, Paused
from calve.sink_core.control.logged_events import LoggedEvents
from calve.sink_core.control.trim import trim
from calve.sink_core.error_codes.general import UNKNOWN_OUTCOME
from calve.sink_core.errors import FindingError, UnknownOutcome
from calve.sink_core.sink.run import run_pipeline
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import CheckpointPart, DataComplete, DataWritten, TableCheckpoint
from calve.sink_core.tables.log.parts import in_parts
from calve.sink_core.tables.proof import VerifyReport
from tests import damage, support
from tests.codes import finding, raises
from tests.gate import every_second
from tests.integration.range_jobs import part, replay
from tests.launch import calve
from tests.pipelines import Died, Flow, reached
from tests.support import TopicFactory
from tests.trimming import AT_ONCE, log_start, proof, run, trimmed, untried


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return untried(tmp_path, broker, kafka_topic(2))


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
    assert str(log_start(flow)) in done.did.split()
    assert done.before["events"] > events > done.after["events"]
    for deep in (False, True):
        report = proof(flow, deep=deep)
        assert report.violations == ()
        assert [part.subject for part in report.not_checked] == [flow.pipeline.control_topic]
        assert "12" in report.not_checked[0].why.split()
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


def test_range_jobs_of_any_number_go_before_their_checkpoint(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """One trim dies between them, the next one writes all of it again, and the one after takes that away."""
    monkeypatch.setattr("calve.sink_core.sink.loop.needed.in_parts", partial(in_parts, most=3))

    def die() -> None:
        raise Died

    run(flow, 3)
    replays = [replay(flow, part(flow, start, start + 2)).batch_id for start in (0, 2, 5)]
    run(flow, 1, start=15)
    with pytest.raises(Died), reached("trim.after-part", die):
        trimmed(flow)
    assert (log_start(flow), len(flow.events(CheckpointPart)), flow.events(TableCheckpoint)) == (0, 1, [])
    assert trimmed(flow).changed
    for start in (20, 25):
        assert flow.events(TableCheckpoint)[-1].parts == 3
        with flow.session() as session:
            session.bind()
            jobs = session.log.state.range_jobs_of(flow.table)
        assert [job.batch_id for job in jobs] == replays
        assert [(each.start, each.end) for job in jobs for each in job.ranges] == [(0, 2), (2, 4), (5, 7)]
        assert proof(flow).violations == ()
        run(flow, 1, start=start)
        assert trimmed(flow).changed
    assert flow.ids() == list(range(30))


def test_a_second_trim_right_after_has_nothing_to_do(flow: Flow) -> None:
    run(flow, 2)
    trimmed(flow)
    events = flow.events(Event)
    again = trimmed(flow)
    assert (again.changed, again.before) == (False, again.after)
    start = log_start(flow)
    assert re.findall(r"\d+", again.did) == [str(start)] * 2, "where the log begins, and where the last publish is"
    assert flow.events(Event) == events


def test_a_pipeline_that_never_published_has_nothing_to_trim(flow: Flow) -> None:
    done = trimmed(flow)
    assert not done.changed
    assert flow.name in done.did
    assert flow.events(TableCheckpoint) == []


def test_young_events_stay(flow: Flow) -> None:
    run(flow, 2)
    done = trimmed(flow, older_than_s=3600)
    assert (done.changed, log_start(flow)) == (False, 0)
    assert {"0", "3,600"} <= {*done.did.split()}


def test_a_dry_run_says_what_would_be_deleted_and_writes_nothing(flow: Flow) -> None:
    run(flow, 2)
    events = flow.events(Event)
    done = trimmed(flow, dry_run=True)
    assert (done.changed, done.before) == (False, done.after)
    assert (flow.events(Event), log_start(flow)) == (events, 0)
    number, _, below = re.findall(r"\d+", trimmed(flow).did)
    assert (below, [number, below]) == (str(log_start(flow)), re.findall(r"\d+", done.did)[:2])


def test_a_table_that_is_behind_holds_back_from_its_first_pending_event_on(flow: Flow) -> None:
    flow = flow.but(tables=("db.good", "db.bad"))
    run(flow, 2)
    for start in (10, 15):
        flow.produce(range(start, start + 5))
        with flow.session() as session:
            run_pipeline(session, committing=False)
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
    assert {"db.bad", str(log_start(flow))} <= {*done.did.split()}
    left = [event for event in flow.events(DataWritten) if event.table == "db.bad"]
    assert left[0].event_id == lacking.event_id
    assert proof(flow).violations == ()
    flow.commit()
    assert flow.ids("db.good") == flow.ids("db.bad") == list(range(20))
    did = trimmed(flow).did.split()
    assert (str(log_start(flow)) in did, "db.bad" in did) == (True, False)
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
    every_second(
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
        ]
    ),
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
    with raises(finding("control-topic-truncated"), end):
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
    with raises(finding("control-topic-truncated"), lacking + 1):
        flow.commit()


def test_a_log_that_lost_its_end_after_a_trim_is_truncated(flow: Flow) -> None:
    """Restored from an older state: the offsets are there again, and hold other events."""
    run(flow, 2)
    trimmed(flow)
    flow.produce(range(10, 15))
    flow.run()
    with flow.session() as session:
        session.read_only()
        others = LoggedEvents[DataWritten]()
        for logged in session.log.state.written[flow.table]:
            others.append(replace(logged, event=replace(logged.event, event_id="another")))
        session.log.state.written[flow.table] = others
        with raises(finding("control-topic-truncated")):
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
            with reached("commit.after-swap", die), raises(UNKNOWN_OUTCOME):
                session.committer().commit(table)
    flow.produce(range(10, 15))
    flow.publish()
    before = flow.load_table().metadata.metadata_log[-1].metadata_file
    assert trimmed(flow).changed
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
        catalog.register_table(flow.table, before)
    with raises(finding("table-restored")):
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
    ended = flow.run().ended
    assert ("ana" in ended, "moving house" in ended) == (True, True)
    assert [proof(flow).violations, flow.ids()] == [(), list(range(10))]


def test_status_says_how_much_the_control_topic_holds_and_since_when(flow: Flow) -> None:
    run(flow, 2)
    trimmed(flow)
    oldest = flow.events(Event)[0]
    said = calve("status", flow.pipeline.path).stdout
    shown = json.loads(calve("status", flow.pipeline.path, "--json").stdout)["control_topic"]
    assert (shown["start"], shown["events"]) == (log_start(flow), shown["end"] - shown["start"])
    assert shown["oldest_age_s"] > 0
    assert isinstance(oldest, DataComplete)
    assert {str(shown["events"]), *shown["oldest"].split()} <= {*said.split()}
