"""A kind of pipeline that is made up here, on the control log and the publisher of all kinds: it counts records that it
copies. Nothing in the product knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control import checks, schemas
from calve.sink_core.control.checkpoint import checkpoint_of
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import (
    BatchPublished,
    BatchStarted,
    Checkpoint,
    Paused,
    PipelineBound,
    Resumed,
)
from calve.sink_core.control.fold import CORE, EventType, Fold
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.log import ControlLog
from calve.sink_core.control.publisher import Publisher
from calve.sink_core.control.state import LogState
from calve.sink_core.errors import ProtocolError
from calve.sink_core.finding import FindingKind
from calve.sink_core.kafka import clients
from calve.sink_core.offsets import Position, Positions, TopicPartition, offsets_to_dense
from calve.sink_core.tables.log.fold import SINK
from tests import support
from tests.support import TopicFactory
from tests.unit.tables.log.build import written

OTHER_SOURCE = FindingKind(
    code="TOY-1",
    name="other-source",
    part="binding",
    title="The source is another one",
    seen_by="the fingerprint",
    meaning="The source of a made-up kind was exchanged.",
    remedy="Put it back.",
    hint="put the source back",
)
PIPELINE_ID = "copies"


@dataclass(frozen=True, slots=True)
class Copy:
    """Records of one topic in a batch."""

    topic: str
    records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyStarted(BatchStarted):
    event_type: ClassVar[str] = "COPY_STARTED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied(BatchPublished):
    event_type: ClassVar[str] = "COPIED"
    copies: tuple[Copy, ...]


@dataclass(slots=True)
class CopyState(LogState[Copied, Checkpoint]):
    """Adds the number of records by topic."""

    records: dict[str, int] = field(default_factory=dict[str, int])

    def copied(self, offset: int, event: Copied) -> None:
        self.publish(offset, event)
        for copy in event.copies:
            self.records[copy.topic] = self.records.get(copy.topic, 0) + copy.records


BATCH = schemas.strings("batch_id", "predecessor")
COPY: schemas.Schema = {
    "type": "record",
    "name": "Copy",
    "fields": [*schemas.strings("topic"), {"name": "records", "type": "long"}],
}
COPIED: schemas.Fields = [
    *BATCH,
    {"name": "topic_ids", "type": schemas.STRING_MAP},
    {"name": "positions", "type": schemas.BY_PARTITION},
    {"name": "copies", "type": {"type": "array", "items": COPY}},
]
COPYING = Fold(
    CopyState,
    (
        *CORE,
        EventType(CopyStarted, BATCH, CopyState.start),
        EventType(Copied, COPIED, CopyState.copied),
        EventType(Checkpoint, schemas.CHECKPOINT, CopyState.restore),
    ),
)
Log = ControlLog[CopyState]


@pytest.fixture
def opened(broker: Broker) -> Generator[Callable[[], Log]]:
    """A reader of one control topic, which the first call creates and binds."""
    settings, topic = {"bootstrap.servers": broker.bootstrap}, support.unique("made-up")
    with ExitStack() as stack:

        def log() -> Log:
            made = ControlLog(settings, topic, COPYING, admin=clients.admin(settings))
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


def publisher(broker: Broker, log: Log) -> Publisher[CopyState]:
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
    assert str(there.paused) == "paused by ana: a move"
    assert there.started["one"].event == begun
    log.append(Resumed(pipeline_id=PIPELINE_ID, by="bo"))
    assert (log.refresh_to_end().paused, log.state.resumed and log.state.resumed.by) == (None, "bo")
    found = checks.binding(bound(log), bound(log, "another"), elsewhere=OTHER_SOURCE)
    assert found is not None
    assert (found.name, found.stored, found.found) == ("other-source", "cluster there", "another")


def test_it_publishes_and_gives_up_by_positions_of_its_own(
    broker: Broker, opened: Callable[[], Log], kafka_topic: TopicFactory
) -> None:
    log, topic = opened(), kafka_topic(2)
    one, two = (TopicPartition(topic, partition) for partition in (0, 1))
    publishing = publisher(broker, log)
    read: list[Positions] = []

    def decide(positions: Positions, state: CopyState) -> Decision:
        read.append(positions)
        return Decision(Verdict.PUBLISH, f"{sum(state.records.values())} records so far")

    both = copied("first", "", {one: 3, two: 4}, Copy(topic, 7))
    publishing.publish(decide, [both], {one: Position(3, "first"), two: Position(4, "first")})
    # Who asks for some positions gets these, and is not held up by what is pending on others.
    more = copied("second", "first", {one: 5, two: 4}, Copy(topic, 2))
    again = publishing.publish(decide, [more], {one: Position(5, "second")})
    assert read == [{}, {one: Position(3, "first")}]
    assert again.why == "7 records so far"
    assert opened().state.records == {topic: 9}
    log.append(started("third", "second"))
    assert publishing.give_up().batch_ids == ("third",)
    assert opened().state.abandoned == {"third"}


def test_it_is_trimmed(broker: Broker, opened: Callable[[], Log], kafka_topic: TopicFactory) -> None:
    log, topic = opened(), kafka_topic(1)
    at = TopicPartition(topic, 0)
    for number, batch_id in enumerate(("first", "second"), 1):
        log.append(copied(batch_id, "", {at: 10 * number}, Copy(topic, 10)))
    log.append(Paused(pipeline_id=PIPELINE_ID, by="ana", reason="a move"))
    state = log.refresh_to_end()
    log.append(checkpoint_of(state, delete_below=state.next_offset))
    log.delete_below(state.next_offset)
    rest = opened().state
    assert rest.log_start == state.next_offset
    assert checks.truncated(rest, log.topic) is None
    assert rest.positions() == {at: 20}
    assert rest.last_batch_id == "second"
    assert (str(rest.paused), rest.bound and rest.bound.fingerprint) == ("paused by ana: a move", "cluster there")


def test_an_event_of_another_kind_stops_it(broker: Broker, opened: Callable[[], Log]) -> None:
    log = opened()
    support.produce(broker.bootstrap, log.topic, [SINK.encode(written("b1"))])
    with pytest.raises(ProtocolError, match="event DATA_WRITTEN is not among the 8 types"):
        log.refresh_to_end()
