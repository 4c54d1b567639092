"""Row changes against a dictionary, as Spark and ClickHouse read them, whatever comes in which batch and commit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import SparkSession

from calve.sink_core.error_codes.records import KEY_IN_TWO_PARTITIONS
from tests.changing import Change, by_chdb, by_spark, commit, written
from tests.codes import raises

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


keys = st.integers(0, 4)
changes = st.one_of(st.builds(put, keys, st.sampled_from(["nl", "be"]), st.integers(0, 99)), st.builds(drop, keys))
commits = st.lists(st.lists(st.lists(changes, max_size=6), min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits)
def test_a_table_is_the_dictionary_after_each_commit_as_clickhouse_reads_it(
    lake: SqlCatalog, waiting: Sequence[Sequence[Sequence[Change]]]
) -> None:
    name, state = create(lake), State()
    for batches in waiting:
        there = [batch for batch in batches if batch]
        if not there:
            continue
        take_in(lake, name, *there)
        for batch in there:
            state = after(state, batch)
        assert as_state(by_chdb(lake.load_table(name))) == state


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits, st.sampled_from([PartitionSpec(), BY_COUNTRY]), st.integers(0, 3))
def test_a_table_is_the_dictionary_whatever_its_specs_as_spark_reads_it(
    lake: SqlCatalog,
    spark: SparkSession,
    waiting: Sequence[Sequence[Sequence[Change]]],
    spec: PartitionSpec,
    evolved_before: int,
) -> None:
    name, state = create(lake, spec), State()
    for number, batches in enumerate(waiting):
        if number == evolved_before:
            with lake.load_table(name).update_spec() as update:
                update.add_field("id", BucketTransform(2), "bucket")
        there = [batch for batch in batches if batch]
        if there:
            take_in(lake, name, *there)
        for batch in there:
            state = after(state, batch)
    assert as_state(by_spark(spark, f"lake.{name}")) == state


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


def test_a_key_in_two_partitions_of_one_batch_is_refused(lake: SqlCatalog) -> None:
    name, other = create(lake), Change({"id": 1}, partition=1)
    with raises(KEY_IN_TWO_PARTITIONS, 1, "t[0]", "t[1]"):
        written(lake, lake.load_table(name), ["id"], [put(1), put(2), other])


def test_deletes_reach_rows_of_a_compaction_that_was_faster(lake: SqlCatalog, spark: SparkSession) -> None:
    name = create(lake)
    take_in(lake, name, [put(1), put(2)], [put(1, v=1)])
    waiting = written(lake, lake.load_table(name), ["id"], [put(2, v=2), drop(1)])
    rewrite = f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    assert spark.sql(rewrite).collect()
    commit(lake, name, [waiting])
    assert as_state(by_spark(spark, f"lake.{name}")) == {2: ("nl", 2)}
