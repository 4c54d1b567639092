"""Several slots, on Spark too: whoever tries a slot again goes on, whoever comes late does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.events import GenerationStarted
from calve.sink_core.errors import CalveError, RetriableError
from calve.sink_core.mirror.copy import CopyResult, CopySpec, copy_slot
from calve.sink_core.mirror.events import RecordsCopied
from calve.sink_core.tasks import InProcessTasks, Job, T, Task
from calve.spark_jobs.tasks import SparkTasks
from tests import support
from tests.codes import raises
from tests.integration.conftest import NewMirror
from tests.mirror_flow import MirrorFlow
from tests.pipelines import Died, reached
from tests.raw_batches import produce_at
from tests.support import TopicFactory
from tests.warm_spark import WarmSpark

SMALL = {"batch": {"min_task_bytes": "1KiB"}, "transaction": {"max_bytes": "100KiB"}}


@pytest.fixture
def mirror(kafka_topic: TopicFactory, new_mirror: NewMirror) -> MirrorFlow:
    """Has six partitions of 3,000 records each to copy."""
    mirror = new_mirror(kafka_topic(6), extra=SMALL)
    for partition in range(6):
        support.produce(
            mirror.source, mirror.topics[0], (b"%d-%d" % (partition, n) for n in range(3_000)), partition=partition
        )
    return mirror


@dataclass(frozen=True)
class Around(InProcessTasks):
    """Slots one after the other, each by `way`, which gets the task and its number."""

    tasks: int = 3
    way: Callable[[Task[Any], int], Any] = field(kw_only=True)

    def run(self, task: Task[T], n: int, *, records: int, job: Job | None = None) -> list[T]:  # noqa: ARG002 - as all
        return [self.way(task, number) for number in range(n)]


def test_slots_share_the_partitions_and_each_has_its_own(mirror: MirrorFlow) -> None:
    report = mirror.run(InProcessTasks(3))
    assert [batch.slots for batch in report.batches] == [3]
    assert mirror.assert_same() == report.records == 18_000
    events = mirror.events(RecordsCopied)
    by_slot = [{part.partition for e in events if e.slot == slot for part in e.ranges} for slot in range(3)]
    assert sorted(map(len, by_slot)) == [2, 2, 2]
    assert set.union(*by_slot) == set(range(6))
    # Fewer slots later, and more: a partition may change hands from batch to batch.
    for slots in (1, 5, 2):
        for partition in range(6):
            support.produce(mirror.source, mirror.topics[0], [b"more"] * 50, partition=partition)
        mirror.run(InProcessTasks(slots))
    assert mirror.assert_same() == 18_900
    assert mirror.state().most_slots == 5


def test_slots_on_spark(mirror: MirrorFlow, warm_spark: WarmSpark) -> None:
    on_spark = mirror.but(spark={**warm_spark.settings, "tasks": 3})
    with SparkTasks(on_spark.pipeline.spark) as tasks:
        report = on_spark.run(tasks)
        support.produce(mirror.source, mirror.topics[0], [b"more"])
        on_spark.run(tasks)
    assert [batch.slots for batch in report.batches] == [3]
    assert mirror.assert_same() == 18_001


def test_what_a_slot_on_spark_refuses_is_said_as_it_is(mirror: MirrorFlow, warm_spark: WarmSpark) -> None:
    produce_at(mirror.source, mirror.topics[0], [(0, b"odd")], partition=4)
    on_spark = mirror.but(spark={**warm_spark.settings, "tasks": 2})
    with SparkTasks(on_spark.pipeline.spark) as tasks, raises(Code.UNCARRIABLE, f"{mirror.topics[0]}[4]", 3000):
        on_spark.run(tasks)


@pytest.mark.parametrize(
    "place",
    [
        "slot.after-check",
        "transaction.mid-produce",
        "transaction.after-event",
        "transaction.after-offsets",
        "transaction.after-commit",
    ],
)
def test_a_slot_that_died_goes_on_when_it_is_tried_again(place: str, mirror: MirrorFlow) -> None:
    def twice(task: Task[Any], number: int) -> Any:
        if number == 1:
            with pytest.raises(Died), reached(place, die):
                task(number)
        return task(number)

    report = mirror.run(Around(way=twice))
    assert [batch.slots for batch in report.batches] == [3]
    assert mirror.assert_same() == report.records == 18_000


def die() -> None:
    raise Died


def test_three_attempts_of_one_slot_at_once_copy_everything_once(mirror: MirrorFlow) -> None:
    said: list[CopyResult | CalveError] = []

    def thrice(task: Task[Any], number: int) -> Any:
        def attempt() -> None:
            try:
                said.append(task(number))
            except CalveError as error:
                said.append(error)

        threads = [Thread(target=attempt) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return CopyResult()

    report = mirror.run(Around(way=thrice))
    assert len(said) == 9
    # Whoever was fenced says so by its result, never by an error.
    assert {type(each) for each in said} == {CopyResult}
    # The last to come went on; if it ended before the others had begun, they found nothing left.
    assert sum(not result.overtaken for result in said if isinstance(result, CopyResult)) >= 3
    assert mirror.assert_same() == report.records == 18_000


def test_a_task_of_an_earlier_generation_copies_nothing(mirror: MirrorFlow) -> None:
    kept: list[Task[Any]] = []

    def keep(task: Task[Any], number: int) -> Any:
        kept.append(task)
        return task(number)

    mirror.run(Around(2, way=keep))
    support.produce(mirror.source, mirror.topics[0], [b"more"] * 10)
    mirror.run(InProcessTasks(2))
    before = len(mirror.events(RecordsCopied))
    for number in range(2):
        result = kept[0](number)
        assert mirror.events(GenerationStarted)[-1].batch_id in result.overtaken
    assert len(mirror.events(RecordsCopied)) == before
    assert mirror.assert_same() == 18_010


def test_a_task_whose_token_is_missing_copies_nothing_and_says_so(mirror: MirrorFlow) -> None:
    def elsewhere(task: Task[Any], number: int) -> Any:
        # A group that has no positions: as if the group's offsets were deleted after the generation was led.
        spec: CopySpec = task.args[0]  # pyright: ignore[reportFunctionMemberAccess]
        lost = replace(spec.slots[number], group=support.unique("none"))
        return copy_slot(replace(spec, slots=(lost,) * len(spec.slots)), number)

    with raises(Code.RETRIABLE, "token"):
        mirror.run(Around(way=elsewhere))
    assert [mirror.copied(mirror.topics[0], partition) for partition in range(6)] == [[]] * 6
    mirror.run()
    assert mirror.assert_same() == 18_000


def test_a_slot_that_fails_does_not_take_back_what_others_have_copied(mirror: MirrorFlow) -> None:
    def failing(task: Task[Any], number: int) -> Any:
        if number == 2:
            raise RetriableError("its host is gone")
        return task(number)

    with raises(Code.RETRIABLE, "its host is gone"):
        mirror.run(Around(way=failing))
    there = [len(mirror.copied(mirror.topics[0], partition)) for partition in range(6)]
    assert sorted(there) == [0, 0, 3_000, 3_000, 3_000, 3_000]
    mirror.run()
    assert mirror.assert_same() == 18_000
