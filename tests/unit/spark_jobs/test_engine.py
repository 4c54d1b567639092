"""What a engine makes of the results that Spark hands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import ProtocolError
from calve.spark_jobs.engine import SparkEngine


class Wayward:
    """In the place of a Spark session: runs tasks of these numbers, whatever was asked for."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self._rows: list[dict[str, Any]] = []

    def range(self, *_: int) -> Wayward:
        return self

    def mapInArrow(  # noqa: N802 - Spark's name
        self, each: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str
    ) -> Wayward:
        batches = [pa.RecordBatch.from_pydict({"id": [number]}) for number in self._numbers]
        self._rows = [row for batch in each(batches) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self._rows


def run(*numbers: int) -> list[str]:
    """Three tasks on a Spark that runs these."""
    session = cast(SparkSession, Wayward(*numbers))
    return SparkEngine(SparkSettings(master="local[2]"), session=lambda: session).run(str, 3)


def test_results_come_in_the_order_of_the_tasks() -> None:
    assert run(2, 0, 1) == ["0", "1", "2"]


@pytest.mark.parametrize("numbers", [(0, 1, 2, 1), (0, 1, 1), (0, 1)])
def test_a_task_without_a_result_or_with_two_stops_the_batch(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match=rf"Spark returned {len(numbers)} results for 3 tasks.*\n.*see Spark's log"):
        run(*numbers)
