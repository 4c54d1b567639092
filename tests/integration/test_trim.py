"""Trimming the control topic: what nobody needs is gone, and everything that was found before is found after."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Event
from calve.sink_core.errors import FindingError, UnknownOutcome
from calve.sink_core.tables.log.events import CheckpointPart, DataComplete, TableCheckpoint
from calve.sink_core.tables.log.parts import in_parts
from tests import damage
from tests.codes import finding, names, raises
from tests.gate import only
from tests.integration.range_jobs import part, replay
from tests.launch import calve
from tests.pipelines import Died, Flow, reached
from tests.support import TopicFactory
from tests.trimming import AT_ONCE, log_start, proof, run, trimmed, untried


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return untried(tmp_path, broker, kafka_topic(2))


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
    said = calve("status", flow.pipeline.path).stdout
    shown = json.loads(calve("status", flow.pipeline.path, "--json").stdout)["control_topic"]
    assert (shown["start"], shown["events"]) == (log_start(flow), shown["end"] - shown["start"])
    assert shown["oldest_age_s"] > 0
    assert {str(shown["events"]), *shown["oldest"].split()} <= {*said.split()}
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


def test_what_leaves_the_log_as_it_is_says_why(flow: Flow) -> None:
    never = trimmed(flow)
    assert (never.changed, flow.name in never.did, flow.events(TableCheckpoint)) == (False, True, [])
    run(flow, 2)
    events = flow.events(Event)
    young, dry = trimmed(flow, older_than_s=3600), trimmed(flow, dry_run=True)
    assert (young.changed, dry.changed, dry.before) == (False, False, dry.after)
    names(young.did, 0, "3,600")
    assert (flow.events(Event), log_start(flow)) == (events, 0)
    number, _, below = re.findall(r"\d+", trimmed(flow).did)
    start = str(log_start(flow))
    assert (below, [number, below]) == (start, re.findall(r"\d+", dry.did)[:2])
    events, again = flow.events(Event), trimmed(flow)
    assert (again.changed, again.before) == (False, again.after)
    assert re.findall(r"\d+", again.did) == [start] * 2, "where the log begins, and where the last publish is"
    assert flow.events(Event) == events


@pytest.mark.parametrize(
    ("break_it", "finding"),
    only(
        # Of a table and of positions: all else asks the log only, which says after a trim what it said before.
        [(damage.restore_the_catalog, "table-restored"), (damage.reset_backwards, "positions-changed")],
        of=[
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
            with reached("commit.after-swap", die), raises(Code.UNKNOWN_OUTCOME):
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
    assert {"file-missing", "ledger-gap", "range-rows"} <= {each.kind for each in report.violations}
    gap = next(violation for violation in report.violations if violation.kind == "ledger-gap")
    assert gap.ranges == (f"{flow.topic}[0] [0, 5)",)
    lost = [v.ranges for v in report.violations if v.kind == "range-rows"]
    assert (f"{flow.topic}[1] [2, 3)",) in lost
