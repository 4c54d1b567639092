"""A kind of pipeline that nothing in the product knows of, the toy, on what all kinds have: control log and publisher,
control plane, and commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load_as
from calve.sink_core.control import checks, keep_alive
from calve.sink_core.control.checkpoint import checkpoint_of
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import Paused, PipelineBound, Resumed
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.log import ControlLog
from calve.sink_core.control.publisher import Publisher
from calve.sink_core.errors import EXIT_STOPPED
from calve.sink_core.kafka import clients
from calve.sink_core.offsets import Position, Positions, TopicPartition, offsets_to_dense
from calve.sink_core.tables.log.fold import SINK
from tests import support, toy_kind
from tests.codes import finding, raises, says
from tests.support import TopicFactory
from tests.toy_kind import OTHER_FILE, TOY, Copied, Copy, CopyStarted, ToyPipeline, ToyPlane, ToyState
from tests.unit.tables.log.build import written

PIPELINE_ID = "copies"
Log = ControlLog[ToyState]


@pytest.fixture
def opened(broker: Broker) -> Generator[Callable[[], Log]]:
    """A reader of one control topic, which the first call creates and binds."""
    settings, topic = {"bootstrap.servers": broker.bootstrap}, support.unique("made-up")
    with ExitStack() as stack:

        def log() -> Log:
            made = ControlLog(settings, topic, TOY, admin=clients.admin(settings))
            stack.enter_context(closing(made))
            if not made.open(create=False):
                made.open(create=True)
                made.append(bound(made))
            made.refresh_to_end()
            return made

        yield log


def bound(log: Log, fingerprint: str = "cluster there") -> PipelineBound:
    return PipelineBound(
        pipeline_id=PIPELINE_ID,
        pipeline="copies",
        deployment="test",
        fingerprint=fingerprint,
        cluster_id="cluster here",
        control_topic_id=log.topic_id,
    )


def started(batch_id: str, predecessor: str = "") -> CopyStarted:
    return CopyStarted(pipeline_id=PIPELINE_ID, batch_id=batch_id, predecessor=predecessor)


def copied(batch_id: str, predecessor: str, ends: dict[TopicPartition, int], *copies: Copy) -> Copied:
    return Copied(
        pipeline_id=PIPELINE_ID,
        batch_id=batch_id,
        predecessor=predecessor,
        topic_ids={at.topic: "id" for at in ends},
        positions=offsets_to_dense(ends),
        copies=copies,
    )


def publisher(broker: Broker, log: Log) -> Publisher[ToyState]:
    settings = {"bootstrap.servers": broker.bootstrap}
    return Publisher(settings, transactional_id=log.topic, group=SourceGroup(settings, f"{log.topic}.group"), log=log)


def test_it_binds_appends_reads_back_pauses_and_resumes(opened: Callable[[], Log]) -> None:
    log, begun = opened(), started("one")
    log.append(begun)
    log.append(Paused(pipeline_id=PIPELINE_ID, by="ana", reason="a move"))
    there = opened().state
    assert there == log.refresh_to_end()
    assert there.bound is not None
    assert (there.bound.pipeline_id, there.bound.fingerprint) == (PIPELINE_ID, "cluster there")
    assert there.paused is not None
    assert (there.paused.by, there.paused.reason) == ("ana", "a move")
    assert there.started["one"].event == begun
    log.append(Resumed(pipeline_id=PIPELINE_ID, by="bo"))
    assert (log.refresh_to_end().paused, log.state.resumed and log.state.resumed.by) == (None, "bo")
    found = checks.binding(bound(log), bound(log, "another"), elsewhere=OTHER_FILE)
    assert found is not None
    assert (found.name, found.stored, found.found) == ("other-file", "cluster there", "another")


def test_it_publishes_and_gives_up_by_positions_of_its_own(
    broker: Broker, opened: Callable[[], Log], kafka_topic: TopicFactory
) -> None:
    log, topic = opened(), kafka_topic(2)
    one, two = (TopicPartition(topic, partition) for partition in (0, 1))
    publishing = publisher(broker, log)
    read: list[Positions] = []

    def decide(positions: Positions, state: ToyState) -> Decision:
        read.append(positions)
        return Decision(Verdict.PUBLISH, f"{sum(state.lines.values())} lines so far")

    both = copied("first", "", {one: 3, two: 4}, Copy("in.txt", 7))
    publishing.publish(decide, [both], {one: Position(3, "first"), two: Position(4, "first")})
    # Who asks for some positions gets these, and is not held up by what is pending on others.
    more = copied("second", "first", {one: 5, two: 4}, Copy("in.txt", 2))
    again = publishing.publish(decide, [more], {one: Position(5, "second")})
    assert read == [{}, {one: Position(3, "first")}]
    assert again.why == "7 lines so far"
    assert opened().state.lines == {"in.txt": 9}
    log.append(started("third", "second"))
    assert publishing.give_up().batch_ids == ("third",)
    assert opened().state.abandoned == {"third"}


def test_it_is_trimmed(broker: Broker, opened: Callable[[], Log], kafka_topic: TopicFactory) -> None:
    log, topic = opened(), kafka_topic(1)
    at = TopicPartition(topic, 0)
    for number, batch_id in enumerate(("first", "second"), 1):
        log.append(copied(batch_id, "", {at: 10 * number}, Copy("in.txt", 10)))
    log.append(Paused(pipeline_id=PIPELINE_ID, by="ana", reason="a move"))
    state = log.refresh_to_end()
    log.append(checkpoint_of(state, delete_below=state.next_offset))
    log.delete_below(state.next_offset)
    rest = opened().state
    assert rest.log_start == state.next_offset
    assert checks.truncated(rest, log.topic) is None
    assert rest.positions() == {at: 20}
    assert rest.last_batch_id == "second"
    assert rest.paused is not None
    assert (rest.paused.by, rest.paused.reason) == ("ana", "a move")
    assert rest.bound is not None
    assert rest.bound.fingerprint == "cluster there"


def test_an_event_of_another_kind_stops_it(broker: Broker, opened: Callable[[], Log]) -> None:
    log = opened()
    support.produce(broker.bootstrap, log.topic, [SINK.encode(written("b1"))])
    with raises(finding("other-kind"), "sink", "toy"):
        log.refresh_to_end()


@pytest.fixture
def file(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a toy on a real cluster, which nobody has run yet."""
    toy_kind.register(monkeypatch)
    toy = {"name": support.unique("toy").replace("-", "_"), "kind": "toy", "kafka": "main"}
    toy |= {"reads": "in.txt", "writes": "out.txt", "maintenance": {"trim": {"older_than": "0s"}}}
    connections = {"deployment": "test", "kafka": {"main": {"bootstrap.servers": broker.bootstrap}}}
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(connections))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy))
    return tmp_path / "toy.yaml"


def calve(command: str, file: Path, *options: str) -> Result:
    return CliRunner().invoke(app, [command, str(file), *options])


def document(command: str, file: Path, *options: str) -> dict[str, Any]:
    done = calve(command, file, *options, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plane(file: Path) -> ToyPlane:
    return ToyPlane(load_as(ToyPipeline, file))


def publish(file: Path, batch_id: str, predecessor: str, at: TopicPartition, end: int) -> None:
    with plane(file) as opened:
        opened.bind()
        event = replace(copied(batch_id, predecessor, {at: end}, Copy("in.txt", 1)), pipeline_id=opened.pipeline_id)
        opened.publisher.publish(lambda *_: Decision(Verdict.PUBLISH, ""), [event], {at: Position(end, batch_id)})


def test_its_pipeline_is_paused_and_resumed(file: Path, kafka_topic: TopicFactory) -> None:
    first, again = document("pause", file, "--reason", "a move"), document("pause", file)
    assert (first["written"], again["written"]) == (True, False)
    assert first["paused"]["reason"] == again["paused"]["reason"] == "a move"
    publish(file, "first", "", TopicPartition(kafka_topic(1), 0), 1)
    with plane(file) as opened:
        assert opened.read_only()
        assert opened.bound is not None
        assert (opened.bound.fingerprint, opened.log.state.paused is not None) == ("file in.txt", True)
        opened.log.append(replace(started("dead", "first"), pipeline_id=opened.pipeline_id))
    assert calve("pause", file, "--wait", "--timeout", "0").exit_code == EXIT_STOPPED
    assert document("pause", file, "--wait", "--timeout", "0", "--give-up")["given_up"] == ["dead"]
    assert document("resume", file)["was_paused"]["reason"] == "a move"
    with plane(file) as opened:
        assert opened.read_only()
        assert (opened.log.state.paused, opened.log.state.abandoned) == (None, {"dead"})


def test_its_pipeline_is_stopped_where_it_is_bound_to_something_else(file: Path, kafka_topic: TopicFactory) -> None:
    publish(file, "first", "", TopicPartition(kafka_topic(1), 0), 1)
    file.write_text(file.read_text().replace("in.txt", "other.txt"))
    refused = calve("pause", file)
    assert refused.exit_code == EXIT_STOPPED
    says(refused.stderr, OTHER_FILE, OTHER_FILE.name, "file in.txt", "file other.txt")


def test_its_pipeline_is_maintained(file: Path, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    at = TopicPartition(kafka_topic(1), 0)

    def maintained(task: str) -> dict[str, Any]:
        [outcome] = document("maintain", file, task)["done"]
        return outcome

    for task in ("trim", "keep-alive"):
        assert maintained(task)["changed"] is False
    publish(file, "first", "", at, 1)
    assert maintained("keep-alive")["changed"] is False
    monkeypatch.setattr(keep_alive, "KEEP_ALIVE_AFTER_S", 0)
    kept = maintained("keep-alive")
    assert (kept["changed"], kept["after"]) == (True, {"offsets": 1})
    publish(file, "second", "first", at, 2)
    with plane(file) as opened:
        assert opened.read_only()
        complete = opened.log.state.complete
    assert complete is not None
    trimmed = maintained("trim")
    assert (trimmed["changed"], str(complete.offset) in trimmed["did"]) == (True, True)
    with plane(file) as opened:
        assert opened.read_only()
        assert opened.log.state.log_start == complete.offset
        assert (opened.log.state.positions(), opened.log.state.last_batch_id) == ({at: 2}, "second")
        assert opened.bind().pipeline_id == complete.event.pipeline_id
