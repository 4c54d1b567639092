"""Which files there are, and what an address shows of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from calve.sink_core.codes import Code
from calve.sink_core.source.base import Limits
from calve.sink_core.source.files.listing import Address, Found
from calve.sink_core.source.files.place import Place
from calve.sink_core.source.files.plan import forgotten, unread
from calve.sink_core.source.files.source import MOST_FILES
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.systems import FILES
from tests.codes import names, raises, says
from tests.support import unique
from tests.unit.source.files.reading import ALL, append, reading


class Forbidding(LocalFileSystem):
    """A folder of this host in which one file may not be opened: root may open all."""

    protocol = "forbidding"
    cachable = False

    def open(self, path: str, *args: Any, **options: Any) -> Any:
        if path.endswith("a.jsonl"):
            raise PermissionError(13, "Permission denied")
        return super().open(path, *args, **options)


def test_names_are_those_below_the_folder_that_is_read(tmp_path: Path) -> None:
    for name in ("a.csv", "b/c.csv", "b/d/e.csv", ".hidden.csv", "_SUCCESS", "b/_temporary/f.csv", "g.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        append(tmp_path / name, "x\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "b" / "c.csv")
    (tmp_path / "folder.csv").symlink_to(tmp_path / "b")

    def found(path: Path) -> list[str]:
        return [each.name for each in Address(str(path), {}).files()]

    assert found(tmp_path) == ["a.csv", "g.txt", "link.csv"]
    assert found(tmp_path / "*.csv") == ["a.csv", "link.csv"]
    assert found(tmp_path / "**" / "*.csv") == ["a.csv", "b/c.csv", "b/d/e.csv", "link.csv"]
    assert found(tmp_path / "b" / "c.csv") == ["c.csv"]
    [link] = [each for each in Address(str(tmp_path), {}).files() if each.name == "link.csv"]
    assert (link.size, link.mtime) == (2, (tmp_path / "b" / "c.csv").stat().st_mtime)


def test_links_out_of_the_folder_are_left_out_and_counted_unless_they_are_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "secrets"
    for folder in (inside, outside):
        folder.mkdir()
    append(outside / "secret.env", "DB_PASSWORD=PLANTED\n")
    append(inside / "a.jsonl", '{"n":1}\n')
    (inside / "x.jsonl").symlink_to(outside / "secret.env")
    (inside / "up.jsonl").symlink_to("../secrets/secret.env")
    (inside / "same.jsonl").symlink_to(inside / "a.jsonl")
    (inside / "folder").symlink_to(outside)
    lines = reading(inside)
    assert lines.values() == ['{"n":1}'] * 2
    names(lines.waiting(), 2, "x.jsonl", "up.jsonl", "source.files.follow_links")
    assert Address(str(inside / "*" / "*.env"), {}).files() == []
    followed = Address(str(inside), {}, followed=True)
    assert len(followed.files()) == 4
    with followed.open("x.jsonl", ahead=1) as file:
        assert file.read() == b"DB_PASSWORD=PLANTED\n"
    assert reading(inside, follow_links=True).waiting().startswith("4 files")


def test_a_folder_that_is_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    append(tmp_path / "in" / "a.jsonl", '{"n":1}\n')
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert reading(tmp_path / "link").values() == ['{"n":1}']


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_has_taken_the_place_of_a_file_since_it_was_listed_is_not_opened(kind: str, tmp_path: Path) -> None:
    """A pipe would keep the task until somebody writes to it."""
    (tmp_path / "in").mkdir()
    append(tmp_path / "secret", "DB_PASSWORD=PLANTED\n")
    file, address = tmp_path / "in" / "a.jsonl", Address(str(tmp_path / "in"), {})
    append(file, '{"n":1}\n')
    assert len(address.files()) == 1
    file.unlink()
    match kind:
        case "link":
            file.symlink_to(tmp_path / "secret")
        case "pipe":
            os.mkfifo(file)
        case _:
            file.mkdir()
    with pytest.raises(FileNotFoundError):
        address.open("a.jsonl", ahead=1)


def test_a_folder_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "nothing" / "*.csv"):
        with raises(Code.NO_FILES_ADDRESS, "there", "/nothing"):
            Address(str(path), {}).files()
    assert Address(str(tmp_path / "*.csv"), {}).files() == []
    assert Address(f"memory://{unique('none')}/*.csv", {}).files() == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.zip"])
def test_compressed_lines_are_refused_by_name_and_others_read(name: str, tmp_path: Path) -> None:
    append(tmp_path / name, "x", settled=True)
    append(tmp_path / "b.jsonl", "{}\n")
    lines = reading(tmp_path)
    assert lines.values() == ["{}"]
    [blocker] = lines.blockers()
    says(blocker.why, Code.FILE_COMPRESSED, name)


def test_a_name_that_is_no_utf_8_is_told_and_others_are_read(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_bytes(b"{}\n")
    append(tmp_path / "b.jsonl", '{"n":1}\n')
    lines = reading(tmp_path)
    assert lines.values() == ['{"n":1}']
    [blocker] = lines.blockers()
    assert blocker.where == "caf\\xe9.jsonl"
    says(blocker.why, Code.FILE_NAME)
    blocker.why.encode()


def test_a_file_that_may_not_be_opened_is_told_and_others_are_read(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        append(tmp_path / name, "{}\n")
    fsspec.register_implementation("forbidding", Forbidding, clobber=True)
    lines = reading(f"forbidding://{tmp_path}/*.jsonl")
    assert lines.values() == ["{}"]
    [blocker] = lines.blockers()
    says(blocker.why, Code.FILE_FORBIDDEN, "a.jsonl")


def test_files_that_the_pattern_does_not_meet_are_told(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.json", ".hidden", "deep/c.json", "deep/d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        append(tmp_path / name, "{}\n")
    said = reading(tmp_path / "*.jsonl").waiting()
    names(said, 1, "b.json")
    assert "c.json" not in said
    names(reading(tmp_path / "**" / "*.jsonl").waiting(), 2, "b.json", "deep/c.json")
    assert reading(tmp_path).waiting() == "2 files, 6 bytes"


def test_an_address_without_its_package_is_said_to_be() -> None:
    spec = SourceSpec(FILES, {"path": "nope://in/*", "format": "csv", "topic": "rows"})
    with raises(Code.NO_FILES_ADDRESS, "source.files.path"):
        OpenedSource(spec)


def test_what_is_read_has_no_secrets(tmp_path: Path) -> None:
    assert Address("memory://user:p*w@in/a?.csv", {}).shown == "memory://in/a?.csv"
    assert Address("https://user:pw@host/in/a.csv?sig=token", {}).shown == "https://host/in/a.csv"
    assert Address(str(tmp_path / "*.csv"), {}).shown == f"file://{tmp_path}/*.csv"
    with reading(tmp_path, options={"secret": "hush"}).opened() as source:
        assert source.fingerprint == f"json_lines of file://{tmp_path}"


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_an_address_of_fsspec_is_read_as_a_path_is(scheme: str, tmp_path: Path) -> None:
    folder = f"memory:///{unique('in')}" if scheme == "memory" else f"file://{tmp_path}"
    fs, path = fsspec.core.url_to_fs(folder)
    fs.makedirs(f"{path}/b")
    fs.pipe(f"{path}/b/a.jsonl", b'{"n":1}\n')
    lines = reading(f"{folder}/*/*.jsonl")
    assert lines.values() == ['{"n":1}']
    assert lines.offset("b/a.jsonl")["position"] == 8
    fs.pipe(f"{path}/b/a.jsonl", b'{"n":1}\n{"n":2}\n')
    assert lines.values() == ['{"n":2}']


def test_a_run_ends_with_what_was_there_when_it_began(tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, '{"n":1}\n')
    with lines.opened() as source:
        until = source.waiting(lines.stored).until
    append(file, '{"n":2}\n')
    append(tmp_path / "b.jsonl", '{"n":3}\n')
    as_of = Limits(ALL.max_records, ALL.max_bytes, until)
    assert lines.values(as_of) == ['{"n":1}']
    assert lines.plan(as_of) == ()
    assert sorted(lines.values()) == ['{"n":2}', '{"n":3}']


def test_a_file_that_settles_during_a_run_is_not_cut_where_it_was(tmp_path: Path) -> None:
    lines, file = reading(tmp_path, settle="1h"), tmp_path / "a.jsonl"
    append(file, '{"n":', settled=True)
    with lines.opened() as source:
        until = source.waiting(lines.stored).until
    append(file, "1}\n", settled=True)
    assert lines.values(Limits(ALL.max_records, ALL.max_bytes, until)) == ['{"n":1}']


def test_a_plan_has_no_more_files_than_an_event_can_name(tmp_path: Path) -> None:
    lines = reading(tmp_path, forget_after="1h")
    for number in range(MOST_FILES + 1):
        append(tmp_path / f"{number}.jsonl", "{}\n", settled=True)
    assert [len(lines.read()) for _ in range(3)] == [MOST_FILES, 1, 0]
    for number in range(MOST_FILES + 1):
        (tmp_path / f"{number}.jsonl").unlink()
    append(tmp_path / "there.jsonl", "{}\n")
    assert [(len(lines.read()), len(lines.stored)) for _ in range(3)] == [(0, 1), (1, 1), (0, 1)]


def test_those_that_have_not_changed_for_longest_come_first() -> None:
    found = [Found("a", 9, 3.0), Found("b", 9, 1.0), Found("c", 9, 2.0), Found("empty", 0, 0.0)]
    assert [each.name for each in unread(found, {}, 10.0, 0)] == ["b", "c", "a"]
    assert [each.name for each in unread(found, {}, 4.0, 2.0)] == ["b", "c"]
    with raises(Code.NO_FILES_ADDRESS):
        unread([Found("a", 9)], {}, 4.0, 2.0)


def test_only_what_differs_from_what_was_stored_is_looked_at() -> None:
    place = Place(9, 9, 1.0, "x")
    found = [Found("a", 9, 1.0, "x"), Found("a", 9, 2.0, "x"), Found("a", 9, 1.0)]
    assert [each for each in found if unread([each], {"a": place}, 4.0, 0)] == found[1:]
    assert unread([Found("a", 12, 1.0, "x")], {"a": place}, 4.0, 0)


def test_a_file_is_forgotten_by_the_time_of_its_last_change() -> None:
    places = {"a": Place(9, 9, 1.0), "b": Place(9, 9, 2.0), "there": Place(9, 9, 1.0), "unknown": Place(9)}
    there = [Found("there", 9, 1.0)]
    assert forgotten(there, places, 10.9, 10.0) == []
    assert forgotten(there, places, 11.0, 10.0) == ["a"]
    assert forgotten(there, places, 99.0, 10.0) == ["a", "b"]
    # As a folder looks that isn't mounted.
    assert forgotten([], places, 99.0, 10.0) == []


def test_a_forgotten_file_loses_its_offset_and_others_keep_theirs(tmp_path: Path) -> None:
    lines = reading(tmp_path, forget_after="1h")
    for name in "abc":
        append(tmp_path / f"{name}.jsonl", f'{{"n":"{name}"}}\n')
    os.utime(tmp_path / "a.jsonl", (1.0, 1.0))
    assert len(lines.read()) == 3
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.jsonl").unlink()
    append(tmp_path / "c.jsonl", '{"n":"more"}\n')
    assert lines.values() == ['{"n":"more"}']
    # That of b is there as long as it may come back.
    assert sorted(str(partition["file"]) for partition in lines.stored) == ["b.jsonl", "c.jsonl"]
    assert lines.plan() == ()
