"""Trims of the control topic beside runs, readers and other trims, and trims that are killed: nobody notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.events import Event
from calve.sink_core.control.log import REQUIRED_CONFIG, ControlLog
from calve.sink_core.control.trim import trim
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import TableCheckpoint
from tests import support
from tests.gate import only
from tests.pipelines import Flow, reached
from tests.support import TopicFactory
from tests.trimming import log_start, proof, run, trimmed, untried


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return untried(tmp_path, broker, kafka_topic(2))


def test_two_trims_at_once_and_a_run_beside_them_do_no_harm(flow: Flow) -> None:
    run(flow, 3)

    def others() -> None:
        trimmed(flow)
        run(flow, 1, start=15)
        trimmed(flow)

    with reached("trim.before-delete", others):
        done = trimmed(flow)
    assert done.changed or str(log_start(flow)) in done.did.split(), "or nothing was left to be trimmed"
    assert flow.run().batches == []
    assert flow.ids() == list(range(20))
    assert proof(flow).violations == ()


def test_a_checkpoint_that_is_overtaken_is_written_again_and_the_fifth_time_left_to_the_next_trim(flow: Flow) -> None:
    run(flow, 2)
    append, numbers = ControlLog.append, iter(range(10, 40, 5))

    def publish_before(log: ControlLog, event: Event) -> Any:
        if isinstance(event, TableCheckpoint) and (first := next(numbers, None)) is not None:
            run(flow, 1, start=first)
        return append(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlLog, "append", publish_before)
        done = trimmed(flow)
        assert (done.changed, log_start(flow)) == (False, 0)
        assert "5" in done.did.split(), "checkpoints that were overtaken"
        # Its first checkpoint is overtaken too.
        assert trimmed(flow).changed
    assert flow.run().batches == []
    assert proof(flow).violations == ()


FENCED = "publish.after-fence"
MIDDLE = ("plan.after-start-commit", "write.after-manifests", FENCED, "commit.after-check", "commit.after-list")


@pytest.mark.parametrize("place", only([FENCED], of=MIDDLE))
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
    assert "3" in report.not_checked[0].why.split()


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
    assert "control-topic-" in done.did
    assert log_start(flow) == 0
