"""One topic of a mirror that can't be copied as it is: it stands still and is told, and all others go on."""

from __future__ import annotations

import os
from typing import Any

import pytest

from calve.orchestration.dagster.mirror.verdicts import health
from calve.sink_core.codes import Code
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.failpoints import FailpointReached
from calve.sink_core.mirror.events import TopicRefused
from calve.sink_core.mirror.status import status
from calve.sink_core.mirror.topics import look
from calve.sink_core.mirror.verify import verify
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tasks import InProcessTasks
from tests import raw_batches, support
from tests.codes import names, raises
from tests.integration.conftest import NewMirror
from tests.mirror_flow import MirrorFlow, Record, write
from tests.pipelines import reached
from tests.support import TopicFactory

SMALL: Record = (b"k", b"small", (), 1)
KEYLESS: Record = (None, b"v", (), 1)
LARGE: Record = (b"k", os.urandom(300_000), (), 1)
WIDE = {"max.message.bytes": "2000000"}


def two(kafka_topic: TopicFactory, new_mirror: NewMirror, config: dict[str, str], target: dict[str, Any]) -> MirrorFlow:
    """A mirror of two topics whose remote topics take less than the first has."""
    return new_mirror(kafka_topic(1, config), kafka_topic(1, config), extra={"target": {"config": target}})


def told(mirror: MirrorFlow) -> list[str]:
    """What `status` names as blocked; the check of that name says the same, and the proof does not vouch for it."""
    with mirror.plane() as plane:
        report = status(plane)
        [verdict] = [each for each in health(mirror.pipeline, report) if each.check == "blockers"]
        assert verdict.passed is not report.blockers
        assert verdict.numbers == {"blockers": len(report.blockers)}
        proof = verify(plane)
        assert proof.proven
        assert [each.subject for each in proof.not_checked] == [each.where for each in report.blockers]
        return [str(each) for each in report.blockers]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(
    ("target", "poison", "hint"),
    [({"max.message.bytes": 100_000}, LARGE, "max.message.bytes"), ({"cleanup.policy": "compact"}, KEYLESS, "policy")],
    ids=["large", "keyless"],
)
def test_a_record_that_is_refused_holds_its_topic_alone(
    target: dict[str, Any], poison: Record, hint: str, slots: int, kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = two(kafka_topic, new_mirror, WIDE, target)
    bad, good = mirror.topics
    write(mirror.source, bad, [SMALL, poison, SMALL], **{"message.max.bytes": 2_000_000})
    write(mirror.source, good, [SMALL] * 7)
    # Even where one batch is all that a run may make.
    report = mirror.run(InProcessTasks(slots), Bounds(max_batches=1, max_duration_s=60.0, linger_s=0.0))
    assert (report.records, mirror.assert_same(good), mirror.copied(bad)) == (7, 7, [])
    again = mirror.run(InProcessTasks(slots))
    names(again.ended, bad, Code.REFUSED)
    assert again.ended != "caught up"
    [blocked] = told(mirror)
    names(blocked, f"{bad}[0]", Code.REFUSED)
    assert hint in blocked
    # Once for a reason, however often it is tried; the position of what stands still does not move.
    [event] = mirror.events(TopicRefused)
    assert mirror.state().partitions == {
        TopicPartition(mirror.remote(bad), 0): 0,
        TopicPartition(mirror.remote(good), 0): 7,
    }
    write(mirror.source, good, [SMALL] * 2)
    assert mirror.run().records == 2
    mended = mirror.but(extra={"target": {"config": {"cleanup.policy": "delete"}}})
    done = mended.run()
    assert (done.ended, done.records, mended.assert_same()) == ("caught up", 3, 12)
    assert told(mended) == []
    assert event.offset <= 1


def test_a_record_that_the_client_cannot_send_holds_its_topic_alone(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = two(kafka_topic, new_mirror, {}, {})
    bad, good = mirror.topics
    raw_batches.produce_at(mirror.source, bad, [(0, b"first"), (0, b"second")])
    write(mirror.source, good, [SMALL] * 3)
    names(mirror.run().ended, bad, Code.UNCARRIABLE)
    assert (mirror.assert_same(good), mirror.copied(bad)) == (3, [])
    assert len(told(mirror)) == 1
    mended = mirror.but(extra={"on_uncarriable": "adjust"})
    assert (mended.run().ended, len(mended.copied(bad)), told(mended)) == ("caught up", 2, [])


def test_a_topic_whose_configuration_the_target_refuses_stands_alone_and_a_mirror_of_no_other_stops(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic())
    support.produce(mirror.source, *mirror.topics, [b"x"])
    mirror.run()
    fresh = kafka_topic()
    support.produce(mirror.source, fresh, [b"y"] * 2)
    # What can be created no more: the first topic is there, and gets no configuration.
    wrong = mirror.but(
        topics=(*mirror.topics, fresh), extra={"target": {"sync_config": False, "config": {"retention.ms": "soon"}}}
    )
    names(wrong.run().ended, fresh, Code.KAFKA_SETTING)
    [blocked] = told(wrong)
    names(blocked, fresh)
    support.produce(mirror.source, mirror.topics[0], [b"z"])
    assert wrong.run().records == 1
    # Where it is the only one, somebody has to come.
    alone = wrong.but(topics=(fresh,))
    with raises(Code.KAFKA_SETTING, "retention.ms"):
        alone.run()
    mended = mirror.but(topics=(*mirror.topics, fresh))
    assert (mended.run().ended, mended.assert_same(), told(mended)) == ("caught up", 4, [])


def test_a_run_that_dies_before_it_has_told_tries_the_topic_again(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = two(kafka_topic, new_mirror, {}, {"cleanup.policy": "compact"})
    bad, good = mirror.topics
    write(mirror.source, bad, [KEYLESS])
    write(mirror.source, good, [SMALL])

    def die() -> None:
        raise FailpointReached("copy.after-refused")

    with pytest.raises(FailpointReached), reached("copy.after-refused", die):
        mirror.run()
    assert mirror.events(TopicRefused) == []
    names(mirror.run().ended, bad)
    assert (mirror.assert_same(good), len(mirror.events(TopicRefused))) == (1, 1)
    with mirror.plane() as plane:
        plane.read_only()
        assert set(look(plane).without({bad}).topics) == {good}
