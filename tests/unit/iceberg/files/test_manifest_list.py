"""Manifest lists are what pyiceberg writes."""

from __future__ import annotations

import json
from pathlib import Path

import fastavro
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
    write_manifest_list,
)

from calve.sink_core.iceberg.files.manifest_list import FORMAT_VERSION, write_list

IO = PyArrowFileIO()
SUMMARIES = [
    PartitionFieldSummary(False, None, b"\x01", b"\x09"),
    PartitionFieldSummary(True, True, None, None),
]


def manifest(name: str, sequence_number: int, snapshot_id: int, content: ManifestContent) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=name,
        manifest_length=6_001,
        partition_spec_id=1,
        content=content,
        sequence_number=sequence_number,
        min_sequence_number=sequence_number,
        added_snapshot_id=snapshot_id,
        added_files_count=1,
        existing_files_count=2,
        deleted_files_count=3,
        added_rows_count=4,
        existing_rows_count=5,
        deleted_rows_count=6,
        partitions=SUMMARIES if content is ManifestContent.DATA else None,
        key_metadata=b"k" if content is ManifestContent.DELETES else None,
    )


def written(path: Path, manifests: list[ManifestFile], parent: int | None) -> bytes:
    write_list(IO.new_output(f"file://{path}"), manifests, snapshot_id=7, parent_snapshot_id=parent, sequence_number=9)
    return path.read_bytes()


def header(path: Path) -> tuple[object, dict[str, str]]:
    with path.open("rb") as file:
        said = dict(fastavro.reader(file).metadata)
    return json.loads(said.pop("avro.schema")), said


@pytest.mark.parametrize("parent", [6, None])
def test_a_list_is_what_pyiceberg_writes(tmp_path: Path, parent: int | None) -> None:
    ours, theirs = tmp_path / "ours.avro", tmp_path / "theirs.avro"
    new = manifest("new", UNASSIGNED_SEQ, 7, ManifestContent.DATA)
    old = manifest("old", 3, 6, ManifestContent.DELETES)
    written(ours, [new, old], parent)
    assert new.sequence_number == UNASSIGNED_SEQ, "that of the caller was changed"
    output = IO.new_output(f"file://{theirs}")
    with write_manifest_list(FORMAT_VERSION, output, 7, parent, 9, "deflate") as writer:
        writer.add_manifests([new, old])
    assert header(ours) == header(theirs)
    with ours.open("rb") as one, theirs.open("rb") as other:
        assert list(fastavro.reader(one)) == list(fastavro.reader(other))
    found = list(read_manifest_list(IO.new_input(f"file://{ours}")))
    numbers = [(each.manifest_path, each.sequence_number, each.min_sequence_number) for each in found]
    assert numbers == [("new", 9, 9), ("old", 3, 3)]


def test_a_list_of_no_manifests_has_no_block(tmp_path: Path) -> None:
    # Readers take an empty block of an Avro file for its end.
    content = written(tmp_path / "none.avro", [], None)
    assert content.count(content[-16:]) == 1
    assert list(read_manifest_list(IO.new_input(f"file://{tmp_path}/none.avro"))) == []


def test_a_manifest_of_another_snapshot_has_its_number(tmp_path: Path) -> None:
    lost = manifest("lost", UNASSIGNED_SEQ, 6, ManifestContent.DATA)
    with pytest.raises(ValueError, match=r"\blost: .*\b6\b.*\bsequence_number\b"):
        written(tmp_path / "lost.avro", [lost], None)
