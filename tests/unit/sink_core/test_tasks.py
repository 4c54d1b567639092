"""What is said of the engine of a batch."""

from __future__ import annotations

import pytest

from calve.sink_core.tasks import InProcessTasks, Size, WrittenBy
from tests.codes import names

ON_SPARK = WrittenBy("spark", 4, "local-1", "local[*]", "http://127.0.0.1:4040")


@pytest.mark.parametrize("by", [ON_SPARK, WrittenBy("spark", 1), WrittenBy("in-process", 1)])
def test_an_event_says_all_that_is_known(by: WrittenBy) -> None:
    assert WrittenBy.from_map(by.to_map()) == by


def test_an_event_of_an_earlier_version_says_nothing() -> None:
    assert WrittenBy.from_map({}) is None


@pytest.mark.parametrize(
    ("by", "named"),
    [
        (ON_SPARK, ["spark", "local-1", "local[*]", 4, "http://127.0.0.1:4040"]),
        (WrittenBy("spark", 2), ["spark", 2]),
        (InProcessTasks().written_by(1, records=7), ["in-process", 1]),
    ],
)
def test_people_read_application_master_and_tasks(by: WrittenBy, named: list[object]) -> None:
    names(str(by), *named)


def test_sizes_of_tasks_add_up() -> None:
    assert sum([Size(1, 10), Size(2, 20)], Size()) == Size(3, 30)
