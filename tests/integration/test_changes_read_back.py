"""What the metadata of row changes says. That a table is the dictionary, tests/row_histories shows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.changing import Change, commit, written

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "country", StringType(), required=False),
    NestedField(3, "v", IntegerType(), required=False),
)
BY_COUNTRY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"))

State = dict[int, tuple[str, int]]


def put(key: int, country: str = "nl", v: int = 0) -> Change:
    return Change({"id": key, "country": country, "v": v})


def drop(key: int) -> Change:
    return Change({"id": key}, deletes=True)


def after(state: State, changes: Sequence[Change]) -> State:
    """What a dictionary makes of the changes."""
    now = State(state)
    for change in changes:
        now.pop(change.row["id"], None)
        if not change.deletes:
            now[change.row["id"]] = (change.row["country"], change.row["v"])
    return now


def as_state(rows: Sequence[Mapping[str, Any]]) -> State:
    """Rows by key; a key that is there twice shows."""
    state = {row["id"]: (row["country"], row["v"]) for row in rows}
    assert len(state) == len(rows), rows
    return state


def create(lake: SqlCatalog, spec: PartitionSpec = PartitionSpec()) -> str:  # noqa: B008
    lake.create_namespace_if_not_exists("changes")
    name = f"changes.t{uuid.uuid4().hex}"
    lake.create_table(name, SCHEMA, partition_spec=spec, properties={"format-version": "2"})
    return name


def take_in(lake: SqlCatalog, name: str, *batches: Sequence[Change]) -> None:
    """All batches in one commit."""
    commit(lake, name, [written(lake, lake.load_table(name), ["id"], batch) for batch in batches])


def test_batches_that_waited_get_a_snapshot_each_in_one_commit(lake: SqlCatalog) -> None:
    name = create(lake)
    take_in(lake, name, [put(1)], [put(1, v=1)], [drop(1)])
    table = lake.load_table(name)
    found = [(s.sequence_number, s.summary.operation.value if s.summary else "") for s in table.metadata.snapshots]
    assert found == [(1, "overwrite"), (2, "overwrite"), (3, "delete")]
    parents = [snapshot.parent_snapshot_id for snapshot in table.metadata.snapshots]
    assert parents == [None, *(snapshot.snapshot_id for snapshot in table.metadata.snapshots[:2])]
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    said = head.summary.additional_properties
    assert (said["total-records"], said["total-delete-files"], said["total-equality-deletes"]) == ("2", "3", "3")


def test_manifests_have_equality_ids_as_ints(lake: SqlCatalog) -> None:
    """As longs, which pyiceberg would write, Spark fails on every read."""
    name = create(lake)
    output = written(lake, lake.load_table(name), ["id"], [put(1)])
    (deletes,) = (manifest for manifest in output.manifests if manifest.deletes)
    with Path(deletes.path.removeprefix("file://")).open("rb") as file:
        reader = fastavro.reader(file)
        (entry,) = reader
    schema: Any = reader.writer_schema
    (data_file,) = (field["type"] for field in schema["fields"] if field["name"] == "data_file")
    (ids,) = (field for field in data_file["fields"] if field["name"] == "equality_ids")
    assert ids["type"][1]["items"] == "int"
    assert entry["data_file"]["equality_ids"] == [1]
    assert (reader.metadata["content"], deletes.rows) == ("deletes", 1)
