"""A table that can't be loaded holds back the topics that feed it, alone: all others are read, published, committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.control.trim import trim
from calve.sink_core.errors import TableUnusable
from calve.sink_core.sink.run import RunReport, run_pipeline
from calve.sink_core.sink.status import status
from tests.codes import raises, says
from tests.pipelines import COLUMNS, Flow, reached
from tests.support import TIMEOUT_S, TopicFactory

GOOD, BAD = "db.good", "db.bad"


def _flow(directory: Path, broker: Broker, kafka_topic: TopicFactory, **bad: object) -> Flow:
    """Two tables, each of a topic of its own unless `bad` says otherwise of the second."""
    topics = kafka_topic(2), kafka_topic(2)
    columns = {"auto_create": {"columns": COLUMNS}}
    tables = [{"name": GOOD, "topics": [topics[0]], **columns}, {"name": BAD, "topics": [topics[1]], **columns, **bad}]
    return Flow.create(directory, broker.bootstrap, *topics, tables=(GOOD, BAD), extra={"tables": tables})


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = _flow(tmp_path, broker, kafka_topic)
    _produce(flow, range(5))
    flow.run()
    return flow


def _format_of(flow: Flow, value: str) -> None:
    with flow.load_table(BAD).transaction() as change:
        change.set_properties({"write.format.default": value})


def _produce(flow: Flow, ids: range) -> None:
    for topic in flow.topics:
        flow.produce(ids, topic=topic)


def _run(flow: Flow, bounds: Bounds | None = None) -> RunReport:
    with flow.session() as session:
        return run_pipeline(session, bounds=bounds)


def _metadata_of(flow: Flow, name: str) -> Path:
    return Path(flow.load_table(name).metadata_location.removeprefix("file://"))


def _gone(path: Path) -> None:
    path.unlink()


def _damaged(path: Path) -> None:
    path.write_text('{"format-version": 2, "table-uuid"')


def _no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


def _of_a_later_format(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format-version": 9}))


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (_gone, Code.METADATA_GONE),
        (_damaged, Code.METADATA_DAMAGED),
        (_no_text, Code.METADATA_DAMAGED),
        (_of_a_later_format, Code.METADATA_DAMAGED),
    ],
)
def test_all_other_topics_are_read_and_what_it_lacks_comes_once_it_loads(
    flow: Flow, spoil: Callable[[Path], None], kind: Code
) -> None:
    metadata = _metadata_of(flow, BAD)
    before = metadata.read_bytes()
    spoil(metadata)
    for upper in (10, 15):
        _produce(flow, range(upper - 5, upper))
        report = _run(flow)
        assert flow.ids(GOOD) == list(range(upper))
        assert list(report.failed) == [BAD]
        with raises(kind, BAD, of=TableUnusable) as raised:
            report.raise_failures()
        assert (raised.value.alone, raised.value.held) == ((BAD,), (flow.topics[1],))
        [blocker] = report.blockers
        assert blocker.where == BAD
        says(blocker.why, kind, f"{upper - 5} records", flow.topics[1])
        says(report.ended, kind, BAD)
        with flow.session() as session:
            shown = status(session)
        assert shown.blockers == (blocker,)
        assert blocker.since_ms is not None
        assert {topic.topic: topic.lag for topic in shown.topics} == {flow.topics[0]: 0, flow.topics[1]: upper - 5}
        # No record of it is published, so that none has to be committed to it.
        assert {at.topic: p.offset for at, p in flow.positions().items() if at.partition == 0} == {
            flow.topics[0]: upper,
            flow.topics[1]: 5,
        }
    metadata.write_bytes(before)
    assert not flow.run().blockers
    assert flow.ids(GOOD) == flow.ids(BAD) == list(range(15))
    with flow.session() as session:
        assert not status(session).blockers


def test_one_that_breaks_between_plan_and_write_is_held_back_in_the_same_run(flow: Flow) -> None:
    _produce(flow, range(5, 10))
    with reached("plan.after-start-commit", lambda: _format_of(flow, "orc")):
        report = _run(flow)
    assert (list(report.failed), flow.ids(GOOD)) == ([BAD], list(range(10)))
    assert [batch.records for batch in report.batches] == [5]
    _format_of(flow, "parquet")
    flow.run()
    assert flow.ids(BAD) == list(range(10))


def test_one_that_loads_and_can_t_be_written_is_held_back_too(flow: Flow) -> None:
    _format_of(flow, "orc")
    _produce(flow, range(5, 10))
    report = _run(flow)
    says(str(report.failed[BAD]), Code.NOT_PARQUET, BAD)
    assert flow.ids(GOOD) == list(range(10))
    with flow.session() as session:
        assert [each.where for each in status(session).blockers] == [BAD]
    _format_of(flow, "parquet")
    flow.run()
    assert flow.ids(BAD) == list(range(10))


def test_where_nothing_is_left_to_read_the_run_fails_as_a_whole(flow: Flow) -> None:
    for name in (GOOD, BAD):
        _metadata_of(flow, name).unlink()
    with raises(Code.METADATA_GONE, of=TableUnusable) as raised:
        flow.run()
    assert raised.value.alone == ()


def test_a_run_that_waits_for_records_waits_beside_held_topics(flow: Flow) -> None:
    """What is held back is not pending: a run would plan at full speed, and find nothing to read."""
    metadata = _metadata_of(flow, BAD)
    metadata.unlink()
    _produce(flow, range(5, 10))
    plans = list[str]()
    with flow.session() as session:
        run_pipeline(
            session,
            bounds=Bounds(max_batches=50, max_duration_s=TIMEOUT_S, linger_s=1.0),
            on_progress=lambda step: plans.append(step.phase),
        )
    assert plans.count("plan") <= 4
    assert flow.ids(GOOD) == list(range(10))


def test_a_shared_topic_goes_on_where_the_bad_table_may_read_it_again(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    """With `history: replay` the table is left out of batches, and gets them as a table does that was added."""
    flow = _flow(tmp_path, broker, kafka_topic)
    shared = [
        {"name": name, "topics": list(flow.topics), "auto_create": {"columns": COLUMNS}, **more}
        for name, more in ((GOOD, {}), (BAD, {"history": "replay"}))
    ]
    flow = flow.but(extra={"tables": shared})
    _produce(flow, range(5))
    flow.run()
    twice = sorted([*range(5)] * 2)
    assert flow.ids(GOOD) == flow.ids(BAD) == twice
    metadata = _metadata_of(flow, BAD)
    before = metadata.read_bytes()
    metadata.unlink()
    for upper in (10, 15):
        _produce(flow, range(upper - 5, upper))
        report = _run(flow)
        assert flow.ids(GOOD) == sorted([*range(upper)] * 2)
        with raises(Code.METADATA_GONE, of=TableUnusable) as raised:
            report.raise_failures()
        assert raised.value.held == ()
    metadata.write_bytes(before)
    report = flow.run()
    assert sum(job.rows for job in report.history) == 20
    assert not report.blockers
    assert flow.ids(GOOD) == flow.ids(BAD) == sorted([*range(15)] * 2)


def test_a_shared_topic_is_held_back_for_one_that_may_not(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = _flow(tmp_path, broker, kafka_topic)
    one, other = flow.topics
    columns = {"auto_create": {"columns": COLUMNS}}
    flow = flow.but(
        extra={
            "tables": [
                {"name": GOOD, **columns, "topics": [one, other]},
                {"name": BAD, **columns, "topics": [other], "where": {"field": "text", "matches": "n[1-9]"}},
            ]
        }
    )
    _produce(flow, range(5))
    flow.run()
    metadata = _metadata_of(flow, BAD)
    before = metadata.read_bytes()
    metadata.unlink()
    _produce(flow, range(5, 10))
    assert _run(flow).failed[BAD].held == (other,)
    assert flow.ids(GOOD) == sorted([*range(10), *range(5)])
    metadata.write_bytes(before)
    flow.run()
    assert flow.ids(GOOD) == sorted([*range(10)] * 2)
    assert flow.ids(BAD) == list(range(1, 10))


def test_a_trim_keeps_what_it_may_lack_and_deletes_the_rest(flow: Flow) -> None:
    metadata = _metadata_of(flow, BAD)
    for upper in (10, 15):
        _produce(flow, range(upper - 5, upper))
        flow.run()
    metadata = _metadata_of(flow, BAD)
    before = metadata.read_bytes()
    metadata.unlink()
    with flow.session() as session:
        session.bind()
        first = session.log.state.written[BAD][0].offset
        outcome = trim(session, older_than_s=0.0)
        assert outcome.changed
        assert session.log.refresh_to_end().written[BAD][0].offset == first
    metadata.write_bytes(before)
    flow.produce(range(15, 16), topic=flow.topics[1])
    flow.run()
    assert flow.ids(BAD) == list(range(16))
