"""Files of a batch: their names, their partitions' paths, and how they come into the table."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.errors import ProtocolError
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
from calve.sink_core.tables.batch import ManifestRef
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
    assert read_staged(place, ref) == Staged(T, (file,))
    Path(ref.path).write_text("{}")
    with raises(Code.STAGED_GONE, "SHA-256"):
        read_staged(place, ref)
    Path(ref.path).unlink()
    with raises(Code.STAGED_GONE):
        read_staged(place, ref)


OTHERS = "22222222-2222-4222-8222-222222222222"


@pytest.mark.parametrize(
    "change",
    [
        {"folder": "/home/mallory"},
        {"folder": "../../../mallory"},
        {"folder": f"calve-{BATCH}/.."},
        {"folder": f"x/calve-{BATCH}"},
        {"folder": ""},
        {"partition": "/home/victim/.ssh"},
        {"partition": "c=UA/../../../victim"},
        {"partition": ".."},
        {"partition": ".hoodie"},
        {"partition": "c=UA//d=1"},
        {"name": "../authorized_keys"},
        {"name": "/etc/passwd"},
        {"name": "..", "partition": "c=UA"},
        {"name": ""},
        {"name": "a\0b"},
    ],
)
def test_a_forged_manifest_moves_no_file_of_others(place: Place, change: dict[str, str]) -> None:
    file = replace(staged(place), **change)
    [ref] = write_staged(place, OTHERS, "air.t", "uuid", [replace(file, name=staged(place).name)]).manifests
    ref = rewritten(ref, instant=T, files=[asdict(file)], changes=False)
    with raises(Code.STAGED_FOREIGN, *(repr(value) for value in change.values()), place.staged, of=ProtocolError):
        read_staged(place, ref)
    assert not place.folder.exists()


def test_a_forged_instant_is_no_name_of_a_file(place: Place) -> None:
    [ref] = write_staged(place, OTHERS, "air.t", "uuid", [staged(place)]).manifests
    ref = rewritten(ref, instant="../../x", files=[asdict(staged(place))], changes=False)
    with raises(Code.STAGED_FOREIGN, "'../../x'"):
        read_staged(place, ref)


@pytest.mark.parametrize("where", ["elsewhere", "staged", "up", "no batch"])
def test_a_forged_event_names_no_manifest_elsewhere(place: Place, tmp_path: Path, where: str) -> None:
    [ref] = write_staged(place, OTHERS, "air.t", "uuid", [staged(place)]).manifests
    path = {
        "elsewhere": tmp_path / f"calve-{OTHERS}" / "manifest.json",
        "staged": place.staged / "manifest.json",
        "up": place.staged / ".." / f"calve-{OTHERS}" / "manifest.json",
        "no batch": place.staged / "notes" / "manifest.json",
    }[where]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(Path(ref.path).read_bytes())
    with raises(Code.STAGED_FOREIGN, path, place.staged):
        read_staged(place, replace(ref, path=str(path)))


def test_a_staged_file_that_is_a_link_leads_nowhere(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("PLANTED")
    file = staged(place)
    [ref] = write_staged(place, OTHERS, "air.t", "uuid", [file]).manifests
    (place.staged / file.folder / file.name).unlink()
    (place.staged / file.folder / file.name).symlink_to(secret)
    with raises(Code.STAGED_FOREIGN, repr(file.name)):
        read_staged(place, ref)


def test_a_warehouse_may_be_behind_a_link(place: Place, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    behind = Place(tmp_path / "link" / "t", tmp_path / "link" / ".calve" / "t")
    file = staged(place, "c=UA")
    [ref] = write_staged(behind, OTHERS, "air.t", "uuid", [file]).manifests
    assert read_staged(behind, ref) == Staged(T, (file,))


def rewritten(ref: ManifestRef, **said: object) -> ManifestRef:
    """The manifest with what it says now, and the checksum of that."""
    content = json.dumps(said).encode()
    Path(ref.path).write_bytes(content)
    return replace(ref, sha256=hashlib.sha256(content).hexdigest())


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
    with raises(Code.STAGED_GONE, file.name):
        put_in_place(place, Staged(T, (file,)))


def test_folders_of_a_batch_are_forgotten_and_no_others(place: Place) -> None:
    write_staged(place, BATCH, "air.t", "uuid", [staged(place)])
    other = place.staged / f"calve-{BATCH[:-1]}2-kept-0"
    other.mkdir()
    (place.staged / "notes").mkdir()
    assert set(staged_batches(place).values()) == {BATCH, f"{BATCH[:-1]}2"}
    remove_staged(place, [BATCH])
    assert sorted(path.name for path in place.staged.iterdir()) == [other.name, "notes"]
