"""Where work goes, by its size and by what only Spark can do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.loop.engine import BySize, InProcess, joined


@dataclass(frozen=True)
class Named(InProcess):
    """An engine that remembers what it was given."""

    done: list[int] = field(default_factory=list[int])

    def run(self, task, n, *, records, job=None):
        self.done.append(records)
        return super().run(task, n, records=records, job=job)


def part(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


def test_pieces_of_a_partition_become_one_task_and_what_does_not_adjoin_stays_apart() -> None:
    tasks = [(part(0, 5), part(0, 3, 1)), (part(5, 9), part(7, 8, 1)), (part(20, 30),)]
    assert joined(tasks) == [[part(0, 9), part(0, 3, 1)], [part(7, 8, 1)], [part(20, 30)]]


@pytest.mark.parametrize(("records", "on_spark"), [(0, False), (99, False), (100, True), (10_000, True)])
def test_work_goes_to_spark_from_so_many_records_on(records: int, on_spark: bool) -> None:
    spark, small = Named(8), Named()
    engine = BySize(spark, 100, small)
    assert engine.run(str, 3, records=records) == ["0", "1", "2"]
    assert (spark.done, small.done) == (([records], []) if on_spark else ([], [records]))
    assert engine.parallelism(records) == (8 if on_spark else 1)


def test_without_a_threshold_all_is_sparks() -> None:
    spark, small = Named(), Named()
    assert BySize(spark, 0, small).run(str, 1, records=0) == ["0"]
    assert (spark.done, small.done) == ([0], [])
