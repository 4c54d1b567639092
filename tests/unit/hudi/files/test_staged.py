"""Files of a batch: their names, their partitions' paths, and how they come into the table."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from calve.sink_core.error_codes.hudi import STAGED_GONE
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.staged import (
    NO_VALUE,
    HudiFile,
    Staged,
    file_name,
    partition_path,
    put_in_place,
    read_staged,
    remove_staged,
    staged_batches,
    write_staged,
)
from tests.codes import raises

T = "20260101000000004"
BATCH = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "t", tmp_path / ".calve" / "t")


def staged(place: Place, partition: str = "", content: bytes = b"rows") -> HudiFile:
    folder = f"calve-{BATCH}-0"
    name = file_name("f-0", T)
    (place.staged / folder).mkdir(parents=True, exist_ok=True)
    (place.staged / folder / name).write_bytes(content)
    return HudiFile("f-0", name, folder, partition, 10, len(content))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("UA", "c=UA"),
        ("a/b", "c=a%2Fb"),
        ("50%", "c=50%25"),
        ("", f"c={NO_VALUE}"),
        (None, f"c={NO_VALUE}"),
        (True, "c=true"),
        (date(2026, 1, 2), "c=2026-01-02"),
        (-3, "c=-3"),
        ("é = ü", "c=é %3D ü"),
    ],
)
def test_paths_are_those_of_hive(value: object, path: str) -> None:
    assert partition_path(["c"], [value]) == path


def test_a_manifest_says_what_was_written(place: Place) -> None:
    file = staged(place)
    output = write_staged(place, BATCH, "air.t", "uuid", [file])
    [ref] = output.manifests
    assert (ref.files, ref.rows, ref.data_bytes) == (1, 10, 4)
    assert read_staged(ref) == Staged(T, (file,))
    Path(ref.path).write_text("{}")
    with raises(STAGED_GONE, "SHA-256"):
        read_staged(ref)
    Path(ref.path).unlink()
    with raises(STAGED_GONE):
        read_staged(ref)


def test_files_come_into_the_table_once_however_often_that_is_tried(place: Place) -> None:
    file = staged(place, "c=UA")
    for _ in range(2):
        put_in_place(place, Staged(T, (file,)))
    found = {path.relative_to(place.folder).as_posix() for path in place.folder.rglob("*") if path.is_file()}
    assert found == {f"c=UA/{file.name}", "c=UA/.hoodie_partition_metadata"}
    assert "partitionDepth=1" in (place.folder / "c=UA/.hoodie_partition_metadata").read_text()


def test_a_file_that_is_in_the_table_need_not_be_staged_any_more_and_one_that_is_nowhere_is_missed(
    place: Place,
) -> None:
    file = staged(place)
    put_in_place(place, Staged(T, (file,)))
    (place.staged / file.folder / file.name).unlink()
    put_in_place(place, Staged(T, (file,)))
    (place.folder / file.name).unlink()
    with raises(STAGED_GONE, file.name):
        put_in_place(place, Staged(T, (file,)))


def test_folders_of_a_batch_are_forgotten_and_no_others(place: Place) -> None:
    write_staged(place, BATCH, "air.t", "uuid", [staged(place)])
    other = place.staged / f"calve-{BATCH[:-1]}2-kept-0"
    other.mkdir()
    (place.staged / "notes").mkdir()
    assert set(staged_batches(place).values()) == {BATCH, f"{BATCH[:-1]}2"}
    remove_staged(place, [BATCH])
    assert sorted(path.name for path in place.staged.iterdir()) == [other.name, "notes"]
