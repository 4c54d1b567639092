"""A file that is not the one that was read is found to be another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.source.files.place import MARKED, Place
from calve.sink_core.source.files.plan import partition_of
from calve.sink_core.source.flat_map import FlatMap
from tests.codes import finding, raises
from tests.unit.source.files.reading import append, reading

LINES = "".join(f'{{"n":{i:06}}}\n' for i in range(1000)).replace(":0", ":1")
"""Each of 13 bytes."""


def test_an_offset_is_flat_and_comes_back() -> None:
    place = Place(5, 9, 1795771291.988003, "x", 3, head="a", tail="b")
    assert Place.of("a", FlatMap.parsed(place.offset.json)) == place
    assert dict(Place(0).offset) == {"position": 0, "size": 0}
    assert Place.of("a", FlatMap({"position": 7, "other": None})) == Place(7)


@pytest.mark.parametrize("json", ["{}", '{"position":-1}', '{"position":"1"}', '{"position":true}', '{"position":1.5}'])
def test_what_is_no_offset_of_a_file_stops(json: str, tmp_path: Path) -> None:
    lines = reading(tmp_path)
    lines.stored[partition_of("a.jsonl")] = FlatMap.parsed(json)
    with raises(Code.NO_FILE_OFFSET, "a.jsonl"):
        lines.plan()


def test_an_offset_that_somebody_wrote_is_gone_on_from(tmp_path: Path) -> None:
    lines = reading(tmp_path)
    append(tmp_path / "a.jsonl", '{"n":1}\n{"n":2}\n')
    lines.stored[partition_of("a.jsonl")] = FlatMap({"position": 8})
    assert lines.values() == ['{"n":2}']
    assert lines.offset("a.jsonl")["tail"]


@pytest.mark.parametrize(
    ("text", "stored", "found"),
    [
        ("", "13,000 bytes", "0 bytes"),
        (LINES[:-13], "13,000 bytes", "12,987 bytes"),
        ("x" + LINES[1:], "checksums", " and "),
        (LINES[:-2] + "x\n", "checksums", " and "),
        ("x" + LINES[1:] + LINES, "checksums", " and "),
        (LINES[:-2] + "x\n" + LINES, "checksums", " and "),
    ],
    ids=["emptied", "cut off", "begins otherwise", "ends otherwise", "longer, begins otherwise", "longer, otherwise"],
)
def test_a_file_that_is_another_stops_with_both_values(text: str, stored: str, found: str, tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, LINES)
    assert len(lines.read()) == 1000
    file.write_text(text)
    os.utime(file, (1.0, 1.0))
    # Whoever doesn't lead plans something, so that somebody leads and finds it.
    assert len(lines.plan()) == 1
    with raises(finding("file-changed"), "a.jsonl") as raised:
        lines.read()
    assert stored in raised.value.stored
    assert found in raised.value.found
    assert raised.value.code == "CLV-9405"


def test_a_change_in_the_middle_of_what_was_read_is_not_noticed(tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, LINES)
    lines.read()
    file.write_text(LINES[: MARKED + 1] + "x" + LINES[MARKED + 2 :])
    os.utime(file, (1.0, 1.0))
    assert lines.values() == []


def test_a_file_that_was_only_touched_is_looked_at_once(tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, LINES)
    lines.read()
    os.utime(file, (1.0, 1.0))
    assert lines.values() == []
    assert lines.offset("a.jsonl")["mtime"] == 1.0
    assert lines.plan() == ()


def test_a_file_that_was_renamed_goes_on_under_its_new_name(tmp_path: Path) -> None:
    lines, old, new = reading(tmp_path), tmp_path / "app.log", tmp_path / "app.log.1"
    append(old, LINES)
    assert len(lines.read()) == 1000
    old.rename(new)
    append(new, '{"n":"late"}\n')
    assert lines.values() == ['{"n":"late"}']
    assert lines.offset("app.log.1")["position"] == new.stat().st_size
    assert lines.plan() == ()
    # What takes the old name is another file, and begins.
    append(old, '{"n":"anew"}\n')
    assert lines.values() == ['{"n":"anew"}']
    # Once more, with both names in use.
    new.rename(tmp_path / "app.log.2")
    old.rename(new)
    append(old, '{"n":"third"}\n')
    assert lines.values() == ['{"n":"third"}']
    assert lines.plan() == ()
    names = {str(partition["file"]) for partition in lines.stored}
    assert names == {"app.log", "app.log.1", "app.log.2"}


def test_a_short_file_that_was_renamed_is_known_if_nothing_has_changed_it(tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, "{}\n")
    assert lines.values() == ["{}"]
    file.rename(tmp_path / "b.jsonl")
    assert (lines.values(), lines.plan()) == ([], ())
    # Another file that says the same is another, though it may have the number of one that is gone.
    (tmp_path / "b.jsonl").unlink()
    append(tmp_path / "c.jsonl", "{}\n")
    os.utime(tmp_path / "c.jsonl", (1.0, 1.0))
    assert lines.values() == ["{}"]


def test_a_task_finds_what_changed_since_the_plan(tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, LINES)
    [work] = lines.plan()
    file.write_text(LINES[:-13])
    with lines.opened() as task, raises(finding("file-changed"), "13,000", "12,987"):
        list(task.read(work))
    file.write_text(LINES)
    lines.read()
    append(file, LINES)
    [work] = lines.plan()
    file.write_text("x" * 13 + LINES + LINES)
    with lines.opened() as task, raises(finding("file-changed"), "a.jsonl", "checksums"):
        list(task.read(work))
