"""What the sensor knows of a system that takes long to name its pending records, or never does."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.dagster.source import watch
from calve.orchestration.dagster.source.watch import Looks
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.source.base import Stored, Waiting
from calve.sink_core.source.flat_map import FlatMap
from tests.codes import raises
from tests.connect_file_source import ConnectFile

PARTITION = FlatMap({"filename": "here"})


class Slow(ConnectFile):
    """Answers once it is let: the position that it was asked for, as a number of records."""

    let = threading.Event()
    asked = threading.Semaphore(0)

    def waiting(self, stored: Stored) -> Waiting:
        type(self).asked.release()
        assert type(self).let.wait(60)
        return Waiting(int(str(stored[PARTITION]["position"])), "lines")


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Looks]:
    (tmp_path / "connections.yaml").write_text("deployment: test\nkafka: {here: {bootstrap.servers: '127.0.0.1:1'}}\n")
    (file := tmp_path / "slow.yaml").write_text(
        f"""
name: slow
kind: source
source: {{type: "{__name__}:Slow", options: {{file: "{tmp_path}/none", topic: lines}}}}
target: {{kafka: here}}
"""
    )
    monkeypatch.setattr(watch, "GRACE_S", 0.05)
    Slow.let.clear()
    yield Looks(load_as(SourcePipeline, file))
    Slow.let.set()


def behind(position: int) -> dict[FlatMap, FlatMap]:
    return {PARTITION: FlatMap({"position": position})}


def answered(looks: Looks, position: int) -> Waiting:
    """What a look says once the system has been heard."""
    while True:
        try:
            return looks.latest(behind(position), position)
        except watch.Unreachable:
            assert Slow.let.is_set()


def test_a_system_that_does_not_answer_is_asked_once_and_nobody_waits(looks: Looks) -> None:
    for _ in range(3):
        with raises(Code.SOURCE_SILENT, "Slow"):
            looks.latest(behind(7), 7)
    assert Slow.asked.acquire(timeout=60)
    assert not Slow.asked.acquire(blocking=False)
    Slow.let.set()
    assert answered(looks, 7).records == 7


def test_an_answer_for_other_offsets_is_none(looks: Looks) -> None:
    with raises(Code.SOURCE_SILENT, "Slow"):
        looks.latest(behind(7), 7)
    Slow.let.set()
    assert answered(looks, 9).records == 9


def test_what_waited_still_does_while_the_next_answer_is_to_come(looks: Looks) -> None:
    Slow.let.set()
    assert answered(looks, 7).records == 7
    Slow.let.clear()
    assert looks.latest(behind(7), 7).records == 7
    with raises(Code.SOURCE_SILENT, "Slow"):
        looks.latest(behind(9), 9)
