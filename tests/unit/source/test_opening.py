"""What a source returns is held to the rules of `Source`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from calve import RetriableError, TerminalError
from calve.sink_core.codes import Code
from calve.sink_core.source.base import Limits, Record, Rows, Stored, Topic, Update, Work
from calve.sink_core.source.batches import by_slot
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from tests.codes import raises
from tests.lines_source import Lines

A, B = FlatMap({"file": "a.txt"}), FlatMap({"file": "b.txt"})
ONE = FlatMap({"line": 1})
LIMITS = Limits(10, 10)
WORK = Work(A, None, ONE, 1)


RAISED: Mapping[str, Exception] = {
    "OSError": OSError("gone"),
    "TimeoutError": TimeoutError("gone"),
    "ValueError": ValueError("gone"),
    "503": RetriableError("HTTP 503"),
    "403": TerminalError("HTTP 403"),
}


class Broken(Lines):
    """Does what a source must not, as it is told."""

    def __init__(self, does: str, **options: Any) -> None:
        super().__init__(**options)
        self._does = does

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        if self._does == "twice":
            return [WORK, WORK]
        if self._does == "elsewhere":
            return [Work(A, ONE, ONE)]
        return super().plan(stored, limits)

    def topics(self) -> Sequence[Topic]:
        return ["topic"] if self._does == "type" else super().topics()  # type: ignore[list-item]  # pyright: ignore

    def read(self, work: Work) -> Iterator[Rows]:  # noqa: ARG002 - as it is
        if self._does in RAISED:
            raise RAISED[self._does]
        yield Rows(ONE, [Record("other", None, b"x")])

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - as it is
        return {B: {"line": 1}} if self._does == "update" else {B: ONE, A: None}  # pyright: ignore


def opened(folder: Path, does: str, reserved: Sequence[str] = ()) -> OpenedSource:
    (folder / "a.txt").write_text("x\n")
    options = {"does": does, "folder": str(folder), "topic": "lines"}
    return OpenedSource(SourceSpec("tests.unit.source.test_opening:Broken", options, tuple(reserved)))


@pytest.mark.parametrize(
    ("does", "asks", "code", "named"),
    [
        ("twice", lambda s: s.plan({}, LIMITS), Code.SOURCE_BROKE_RULES, ["plan()", A.json]),
        ("elsewhere", lambda s: s.plan({}, LIMITS), Code.SOURCE_BROKE_RULES, ["plan()", A.json, ONE.json, None]),
        ("type", lambda s: s.topics(), Code.SOURCE_BROKE_RULES, ["topics()", "str", "Topic"]),
        ("topic", lambda s: list(s.read(WORK)), Code.SOURCE_BROKE_RULES, ["read()", "other", "topics()"]),
        ("OSError", lambda s: list(s.read(WORK)), Code.SOURCE_AWAY, [A.json, "OSError: gone"]),
        ("TimeoutError", lambda s: list(s.read(WORK)), Code.SOURCE_AWAY, [A.json, "TimeoutError: gone"]),
        ("ValueError", lambda s: list(s.read(WORK)), Code.SOURCE_FAILED, [A.json, "ValueError: gone", "calve resume"]),
        ("update", lambda s: s.update_offsets({}), Code.SOURCE_BROKE_RULES, ["update_offsets()", "dict", "FlatMap"]),
    ],
)
def test_it_is_told_what_it_did(does: str, asks: Any, code: Code, named: list[object], tmp_path: Path) -> None:
    with opened(tmp_path, does) as source, raises(code, "test_opening:Broken", *named):
        asks(source)


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        ("OSError", RetriableError),
        ("TimeoutError", RetriableError),
        ("503", RetriableError),
        ("ValueError", TerminalError),
        ("403", TerminalError),
    ],
)
def test_what_may_pass_and_what_needs_a_person_are_told_apart(does: str, kind: type, tmp_path: Path) -> None:
    with opened(tmp_path, does) as source, pytest.raises(kind) as raised:
        list(source.read(WORK))
    assert type(raised.value) is kind


def test_calves_own_topics_are_not_to_be_named(tmp_path: Path) -> None:
    with (
        opened(tmp_path, "", reserved=["lines"]) as source,
        raises(Code.SOURCE_BROKE_RULES, "lines"),
    ):
        source.topics()


def test_an_update_is_laid_over_what_is_pending(tmp_path: Path) -> None:
    with opened(tmp_path, "") as source:
        assert source.update_offsets({A: ONE}) == {A: None, B: ONE}


@pytest.mark.parametrize(
    ("type_", "options", "named"),
    [
        ("nowhere.at_all:Class", {}, ["source.type", "'nowhere'"]),
        ("tests.lines_source:Nothing", {}, ["source.type", "'Nothing'"]),
        ("tests.lines_source:Lines", {"folder": "x"}, ["source.options", "'topic'"]),
    ],
)
def test_a_class_that_cannot_be_used_is_named(type_: str, options: dict[str, str], named: list[str]) -> None:
    with raises(Code.NO_SOURCE_CLASS, type_, *named):
        OpenedSource(SourceSpec(type_, options))


def test_work_is_given_largest_first_to_whom_has_least() -> None:
    sizes = {"a": 5, "b": 4, "c": 3, "d": 3}
    work = [Work(FlatMap({"file": name}), None, ONE, size) for name, size in sizes.items()]
    names = [[each.partition["file"] for each in given] for given in by_slot(work, 2)]
    assert names == [["a", "d"], ["b", "c"]]
    assert by_slot([], 4) == [()]
    assert len(by_slot(work, 9)) == 4
