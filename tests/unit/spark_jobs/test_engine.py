"""What a engine makes of the results that Spark hands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import ProtocolError
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.session import Started
from tests.codes import raises


class Wayward:
    """In the place of a Spark session, classic or Connect: runs tasks of these numbers, whatever was asked for."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self._rows: list[Any] = []

    @property
    def sparkContext(self) -> Wayward:  # noqa: N802 - Spark's name
        return self

    def parallelize(self, *_: object) -> Wayward:
        return self

    def map(self, each: Callable[[int], Any]) -> Wayward:
        self._rows = [each(number) for number in self._numbers]
        return self

    def range(self, *_: int) -> Wayward:
        return self

    def mapInArrow(  # noqa: N802 - Spark's name
        self, each: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str
    ) -> Wayward:
        batches = [pa.RecordBatch.from_pydict({"id": [number]}) for number in self._numbers]
        self._rows = [row for batch in each(batches) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[Any]:
        return self._rows


def run(settings: SparkSettings, *numbers: int) -> list[str]:
    """Three tasks on a Spark that runs these."""
    session = cast(SparkSession, Wayward(*numbers))
    return SparkEngine(settings, begin=lambda: Started.given(session)).run(str, 3)


@pytest.fixture(params=["classic", "connect"])
def settings(request: pytest.FixtureRequest) -> SparkSettings:
    return SparkSettings(remote="sc://here") if request.param == "connect" else SparkSettings(master="local[2]")


def test_results_come_in_the_order_of_the_tasks(settings: SparkSettings) -> None:
    assert run(settings, 2, 0, 1) == ["0", "1", "2"]


@pytest.mark.parametrize("numbers", [(0, 1, 2, 1), (0, 1, 1), (0, 1)])
def test_a_task_without_a_result_or_with_two_stops_the_batch(settings: SparkSettings, numbers: tuple[int, ...]) -> None:
    with raises(Code.SPARK_LOST, len(numbers), 3, of=ProtocolError):
        run(settings, *numbers)
