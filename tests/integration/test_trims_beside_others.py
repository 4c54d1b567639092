"""Trims of the control topic beside runs, readers and other trims, and trims that are killed: nobody notices."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.events import Event
from calve.sink_core.control.log import REQUIRED_CONFIG, ControlLog
from calve.sink_core.control.trim import trim
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import DataComplete, StartCommit, TableCheckpoint
from tests import support
from tests.launch import forked
from tests.pipelines import Died, Flow, reached
from tests.support import TopicFactory
from tests.trimming import log_start, proof, run, trimmed, untried


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return untried(tmp_path, broker, kafka_topic(2))


@pytest.mark.parametrize("place", ["trim.after-checkpoint", "trim.before-delete"])
def test_two_trims_at_once_and_a_run_beside_them_do_no_harm(flow: Flow, place: str) -> None:
    run(flow, 3)

    def others() -> None:
        trimmed(flow)
        run(flow, 1, start=15)
        trimmed(flow)

    with reached(place, others):
        done = trimmed(flow)
    assert done.changed or str(log_start(flow)) in done.did.split(), "or nothing was left to be trimmed"
    assert flow.run().batches == []
    assert flow.ids() == list(range(20))
    assert proof(flow).violations == ()


def test_a_checkpoint_that_a_publish_overtakes_is_written_again(flow: Flow) -> None:
    run(flow, 3)
    append = ControlLog.append

    def publish_before(log: ControlLog, event: Event) -> Any:
        if isinstance(event, TableCheckpoint) and len(flow.events(TableCheckpoint)) < 1:
            run(flow, 1, start=15)
        return append(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlLog, "append", publish_before)
        assert trimmed(flow).changed
    # The first has gone with what it was written for.
    assert len(flow.events(TableCheckpoint)) >= 1
    assert flow.run().batches == []
    assert proof(flow).violations == ()


def test_a_trim_that_is_overtaken_again_and_again_leaves_it_to_the_next(flow: Flow) -> None:
    run(flow, 2)
    append, numbers = ControlLog.append, iter(range(10, 1000, 5))

    def publish_before(log: ControlLog, event: Event) -> Any:
        if isinstance(event, TableCheckpoint):
            run(flow, 1, start=next(numbers))
        return append(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlLog, "append", publish_before)
        done = trimmed(flow)
    assert (done.changed, log_start(flow)) == (False, 0)
    assert "5" in done.did.split(), "checkpoints that were overtaken"
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
    assert "3" in report.not_checked[0].why.split()


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
    assert "control-topic-" in done.did
    assert log_start(flow) == 0


@pytest.mark.parametrize("place", ["trim.after-checkpoint", "trim.before-delete"])
def test_a_killed_trim_is_made_good_by_the_next(flow: Flow, place: str) -> None:
    run(flow, 3)
    command = ("maintain", flow.pipeline.path, "trim", "--json")
    killed = forked(*command, **{VARIABLE: f"{place}=kill"})
    assert killed.returncode == -signal.SIGKILL, killed
    assert (log_start(flow), len(flow.events(TableCheckpoint))) == (0, 1)
    assert proof(flow).violations == ()
    run(flow, 1, start=15)
    done = forked(*command)
    assert done.returncode == 0, done
    [outcome] = json.loads(done.stdout)["done"]
    assert (outcome["task"], outcome["changed"]) == ("trim", True)
    assert log_start(flow) > 0
    assert flow.run().batches == []
    assert flow.ids() == list(range(20))
    assert proof(flow).violations == ()
