"""Pause, resume, keep-alive and trim of a mirror: afterwards everything goes on as before."""

from __future__ import annotations

import time

import pytest

from calve.sink_core.control.keep_alive import keep_alive
from calve.sink_core.control.pausing import pause, resume, wait_until_idle
from calve.sink_core.control.slots.events import GenerationEnded, GenerationStarted
from calve.sink_core.control.trim import trim
from calve.sink_core.mirror.run import run_mirror
from calve.sink_core.mirror.segments import translate
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tasks import InProcessTasks
from tests import support
from tests.integration.conftest import NewMirror
from tests.mirror_flow import MirrorFlow, transact
from tests.pipelines import Died, reached
from tests.support import TopicFactory


@pytest.fixture
def mirror(kafka_topic: TopicFactory, new_mirror: NewMirror) -> MirrorFlow:
    """Has copied what it had, in three generations."""
    mirror = new_mirror(kafka_topic(2), extra={"batch": {"min_task_bytes": "1KiB"}})
    for number in range(3):
        more(mirror, number)
        mirror.run()
    return mirror


def more(mirror: MirrorFlow, number: int) -> None:
    """Five records on each of its two partitions, and an aborted one in between."""
    [topic] = mirror.topics
    for partition in (0, 1):
        support.produce(mirror.source, topic, [b"%d-%d" % (number, n) for n in range(3)], partition=partition)
        transact(mirror.source, topic, [b"never"], partition, commit=False)
        support.produce(mirror.source, topic, [b"%d-%d" % (number, n) for n in (3, 4)], partition=partition)


def test_a_paused_mirror_copies_nothing_until_it_is_resumed(mirror: MirrorFlow) -> None:
    with mirror.plane() as plane:
        pausing = pause(plane, "me", "fail-over")
        assert wait_until_idle(plane, pausing, 10, giving_up=False, on_progress=lambda _said: None) == ()
    more(mirror, 3)
    report = mirror.run()
    assert report.batches == []
    assert "fail-over" in report.ended
    with mirror.plane() as plane:
        assert resume(plane, "me") is not None
    assert mirror.run().records == 10
    assert mirror.assert_same() == 40


def test_a_pause_within_a_run_ends_it_behind_its_batch(mirror: MirrorFlow) -> None:
    more(mirror, 3)
    one_by_one = mirror.but(extra={"batch": {"max_records": 4}})

    def pause_it() -> None:
        with mirror.plane() as plane:
            pause(plane, "me", "upgrade")

    with reached("generation.after-fence", pause_it):
        report = one_by_one.run()
    assert len(report.batches) == 1
    assert "upgrade" in report.ended
    with mirror.plane() as plane:
        resume(plane, "me")
    mirror.run()
    assert mirror.assert_same() == 40


def test_what_a_dead_run_left_is_given_up_by_who_waits_for_a_pause(mirror: MirrorFlow) -> None:
    more(mirror, 3)
    with pytest.raises(Died), reached("generation.after-fence", die):
        mirror.run()
    with mirror.plane() as plane:
        pausing = pause(plane, "me", "")
        left = [logged.event.batch_id for logged in plane.log.refresh().outstanding()]
        assert len(left) == 1
        assert wait_until_idle(plane, pausing, 0, giving_up=True, on_progress=lambda _said: None) == tuple(left)
        assert plane.log.refresh().outstanding() == []
        resume(plane, "me")
    mirror.run()
    assert mirror.assert_same() == 40


def die() -> None:
    raise Died


def test_positions_are_kept_alive_as_they_are_and_copying_goes_on(mirror: MirrorFlow) -> None:
    before, positions = mirror.state(), mirror.positions()
    with mirror.plane() as plane:
        plane.bind()
        assert keep_alive(plane).changed is False
        assert plane.keep_alive() == 3
    after = mirror.positions()
    assert {at: p.offset for at, p in after.items()} == {at: p.offset for at, p in positions.items()}
    # By a generation of its own, which has nothing to do.
    generations = [event.batch_id for event in mirror.events(GenerationStarted)]
    assert len(generations) == 4
    assert [event.why for event in mirror.events(GenerationEnded)] == ["done"] * 3 + ["keep-alive"]
    assert mirror.state().partitions == before.partitions
    more(mirror, 3)
    mirror.run()
    assert mirror.assert_same() == 40


def test_a_run_without_records_keeps_positions_alive_once_that_is_due(
    mirror: MirrorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mirror.run().batches == []
    assert len(mirror.events(GenerationStarted)) == 3
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 50 * 3600 * 10**9)
    assert mirror.run().batches == []
    monkeypatch.undo()
    assert [event.why for event in mirror.events(GenerationEnded)][3:] == ["keep-alive"]


def test_a_keep_alive_beside_a_run_fences_it_and_nothing_is_lost_or_twice(mirror: MirrorFlow) -> None:
    more(mirror, 3)

    def keep() -> None:
        with mirror.plane() as plane:
            plane.bind()
            assert plane.keep_alive() == 3

    with reached("transaction.after-event", keep):
        report = mirror.run()
    assert report.batches[-1].overtaken
    mirror.run()
    assert mirror.assert_same() == 40


def test_after_a_trim_everything_goes_on_and_what_is_left_is_translated(mirror: MirrorFlow) -> None:
    more(mirror, 3)
    before = mirror.state()
    with mirror.plane() as plane:
        plane.bind()
        outcome = trim(plane, older_than_s=0)
    assert "deleted" in outcome.did
    trimmed = mirror.state()
    for name in ("partitions", "records", "target_ends", "begins", "most_slots", "topic_ids", "upstream_ids"):
        assert getattr(trimmed, name) == getattr(before, name), name
    assert trimmed.last_batch_id == before.last_batch_id
    assert mirror.run(InProcessTasks(2)).records == 10
    assert mirror.assert_same() == 40
    remote = TopicPartition(mirror.remote(*mirror.topics), 1)
    ranges = mirror.state().copied[remote]
    there = {m.offset(): m.value() for m in support.messages(mirror.source, mirror.topics[0], partition=1)}
    here = {m.offset(): m.value() for m in support.messages(mirror.target, remote.topic, partition=1)}
    begin = ranges[0].start
    assert begin > 0
    assert {here[translate(ranges, o) or 0] for o in there if o >= begin} == {v for o, v in there.items() if o >= begin}
    assert all(translate(ranges, offset) is None for offset in there if offset < begin)


def test_trims_between_runs_take_what_was_needed_no_longer(mirror: MirrorFlow) -> None:
    for number in range(3, 6):
        with mirror.plane() as plane:
            plane.bind()
            trim(plane, older_than_s=0)
        more(mirror, number)
        with pytest.raises(Died), reached("transaction.after-offsets", die):
            mirror.run()
        with mirror.plane() as plane:
            plane.bind()
            # What a dead run has begun stays.
            trim(plane, older_than_s=0)
            assert plane.log.refresh().generation is not None
            run_mirror(plane)
    assert mirror.assert_same() == 60
    with mirror.plane() as plane:
        plane.bind()
        trim(plane, older_than_s=0)
    support.produce(mirror.source, mirror.topics[0], [b"last"])
    mirror.run()
    assert mirror.assert_same() == 61
