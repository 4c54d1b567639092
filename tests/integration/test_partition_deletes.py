"""Equality deletes of one partition: who reads them, and what becomes of them when the spec changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import SparkSession

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.commit.relisting import RelistDeletes
from calve.sink_core.iceberg.commit.replace import live_files
from calve.sink_core.iceberg.files.manifests import rewritten_for
from calve.sink_core.iceberg.files.written import data_file
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.tables.row_changes import RowChanges
from tests import support
from tests.changing import Change, attempt_of, by_chdb, by_spark, commit, events_of, merge, plan_of, written
from tests.integration.test_changes_read_back import State, as_state, create, drop, put, take_in
from tests.row_histories.rules import RULES

BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id_itself"))
BY_TENS = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "tens"))

Rows = list[tuple[int, str, int]]


def deletes_of(table: Table) -> list[tuple[int, str]]:
    """Spec and manifest of the deletes in the head, in the order they were added."""
    head = table.current_snapshot()
    assert head is not None
    found = (m for m in head.manifests(table.io) if m.content is ManifestContent.DELETES)
    return [(m.partition_spec_id, m.manifest_path) for m in sorted(found, key=lambda m: m.sequence_number)]


def rows_of(spark: SparkSession, name: str) -> Rows:
    return sorted((row["id"], row["country"], row["v"]) for row in by_spark(spark, f"lake.{name}"))


def evolve(lake: SqlCatalog, name: str, change: Callable[[UpdateSpec], object] | None = None) -> None:
    """A partition field comes, of a column that is not of the key."""
    with lake.load_table(name).update_spec() as update:
        if change is None:
            update.add_identity("v")
        else:
            change(update)


def rewrite(spark: SparkSession, name: str, *options: str) -> None:
    given = ", ".join(f"'{option}', 'true'" for option in ("rewrite-all", *options))
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map({given}))").collect()


@pytest.mark.parametrize("spec", [BY_BUCKET, BY_ID, BY_TENS], ids=["bucket", "identity", "truncate"])
def test_where_the_key_says_the_partition_deletes_lie_in_it_and_both_read_them(
    spec: PartitionSpec, lake: SqlCatalog, spark: SparkSession
) -> None:
    name = create(lake, spec)
    take_in(lake, name, [put(key) for key in range(30)], [drop(3), put(4, v=1)], [put(3, "be", 2), drop(29)])
    take_in(lake, name, [drop(key) for key in range(10, 20)])
    state: State = dict.fromkeys([*range(10), *range(20, 29)], ("nl", 0)) | {4: ("nl", 1), 3: ("be", 2)}
    table = lake.load_table(name)
    assert len(table.specs()) == 1
    assert [spec_id for spec_id, _ in deletes_of(table)] == [0] * 4
    assert as_state(by_chdb(table)) == state
    assert as_state(by_spark(spark, f"lake.{name}")) == state


def test_what_waits_can_be_merged_as_well(lake: SqlCatalog, lake_dir: Path, spark: SparkSession) -> None:
    name = create(lake, BY_BUCKET)
    settings = CatalogSettings("lake", {"type": "sql", **support.catalog_properties(lake_dir)}, {})
    batches = [[put(key) for key in range(6)], [drop(1), put(2, "be", 2)], [put(1, "de"), drop(3), drop(9)]]
    waiting = [written(lake, lake.load_table(name), ["id"], batch) for batch in batches]
    merge(lake, name, waiting, spark, settings, RowChanges((1,)))
    assert rows_of(spark, name) == [(0, "nl", 0), (1, "de", 0), (2, "be", 2), (4, "nl", 0), (5, "nl", 0)]


@pytest.mark.parametrize("relisted", [True, False])
def test_rows_that_went_to_another_spec_while_their_deletes_waited_go(
    relisted: bool, lake: SqlCatalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = create(lake, BY_BUCKET)
    take_in(lake, name, [put(key) for key in range(4)])
    waiting = written(lake, lake.load_table(name), ["id"], [drop(1), put(2, v=2)])
    evolve(lake, name)
    rewrite(spark, name)
    if not relisted:
        RULES["deletes of a partition are for all once the spec has changed"](monkeypatch)
    commit(lake, name, [waiting])
    right = [(0, "nl", 0), (2, "nl", 2), (3, "nl", 0)]
    assert rows_of(spark, name) == (right if relisted else sorted([*right, (1, "nl", 0), (2, "nl", 0)]))
    # What is listed anew stays right whatever comes.
    if relisted:
        rewrite(spark, name, "remove-dangling-deletes")
        take_in(lake, name, [drop(0)])
        assert rows_of(spark, name) == right[1:]


def test_batches_that_waited_for_one_commit_with_deletes_of_either_kind(lake: SqlCatalog, spark: SparkSession) -> None:
    name = create(lake, BY_BUCKET)
    take_in(lake, name, [put(key) for key in range(6)])

    def batch(*changes: Change) -> Any:
        return written(lake, lake.load_table(name), ["id"], changes)

    waiting = [batch(drop(0), put(1, v=1)), batch(put(2, "be"), drop(1))]
    evolve(lake, name)
    waiting.append(batch(put(0, "de", 3), put(3, v=3)))
    evolve(lake, name, lambda update: update.remove_field("bucket"))
    waiting.append(batch(drop(3), drop(4), put(0, "de", 4)))
    rewrite(spark, name)
    commit(lake, name, waiting)
    assert rows_of(spark, name) == [(0, "de", 4), (2, "be", 0), (5, "nl", 0)]
    table = lake.load_table(name)
    (first, _), *later = deletes_of(table)
    assert first == 0
    assert {spec_id for spec_id, _ in later} == {next(i for i, spec in table.specs().items() if not spec.fields)}
    # Names by which orphan removal tells until when those that were listed anew may still land.
    assert [rewritten_for(path.rpartition("/")[2]) for _, path in later] == [3, 4, None, None]


@pytest.mark.parametrize(
    "change",
    [lambda update: update.add_identity("v"), lambda update: update.remove_field("bucket")],
    ids=["a field comes", "a field goes"],
)
def test_a_commit_fails_if_the_spec_changes_before_it_lands(
    change: Callable[[UpdateSpec], object], lake: SqlCatalog
) -> None:
    name = create(lake, BY_BUCKET)
    take_in(lake, name, [put(1)])
    waiting, table = [written(lake, lake.load_table(name), ["id"], [drop(1)])], lake.load_table(name)
    late = attempt_of(table, waiting)
    evolve(lake, name, change)
    with pytest.raises(CommitFailedException):
        lake.commit_table(table, late.requirements, late.updates)


@pytest.mark.parametrize("relisted", [True, False])
def test_a_rewrite_to_the_new_spec_may_land_after_the_deletes(
    relisted: bool, lake: SqlCatalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the commit no file lies under the new spec. Rows that are rewritten keep their sequence number."""
    name = create(lake, BY_BUCKET)
    take_in(lake, name, [put(1), put(2)])
    waiting = written(lake, lake.load_table(name), ["id"], [drop(1), put(2, v=2)])
    evolve(lake, name)
    planned = lake.load_table(name)
    if not relisted:
        RULES["deletes of a partition are for all once the spec has changed"](monkeypatch)
    commit(lake, name, [waiting])
    rewritten_by_java(spark, name, planned, [{"id": key, "country": "nl", "v": 0} for key in (1, 2)])
    right = [(2, "nl", 2)]
    assert rows_of(spark, name) == (right if relisted else sorted([*right, (1, "nl", 0), (2, "nl", 0)]))


def rewritten_by_java(spark: SparkSession, name: str, planned: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """What Spark's compaction commits: files with `rows`, by the spec as it was, in place of those that were there."""
    writer = TableWriter(planned.io, planned.metadata, "rewritten")
    writer.write(pa.RecordBatch.from_pylist(list(rows), schema=writer.schema))
    java: Any = spark._jvm
    table = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.{name}")
    table.refresh()
    head = planned.metadata.current_snapshot_id
    rewrite = table.newRewrite().validateFromSnapshot(head).dataSequenceNumber(planned.metadata.last_sequence_number)
    tasks = table.newScan().useSnapshot(head).planFiles()
    for task in java.com.google.common.collect.Lists.newArrayList(tasks):
        rewrite.deleteFile(task.file())
    for file in writer.close():
        entry, spec = data_file(file, planned.spec(), planned.schema()), table.specs().get(file.spec_id)
        place = "/".join(f"{f.name}={value}" for f, value in zip(planned.spec().fields, entry.partition, strict=True))
        made = java.org.apache.iceberg.DataFiles.builder(spec).withPath(file.path).withFormat("parquet")
        made = made.withFileSizeInBytes(file.size).withRecordCount(file.rows).withPartitionPath(place)
        rewrite.addFile(made.build())
    rewrite.commit()


def test_a_spec_that_was_added_for_a_commit_that_never_came_is_used_by_the_next(
    lake: SqlCatalog, spark: SparkSession
) -> None:
    name = create(lake, BY_BUCKET)
    take_in(lake, name, [put(1), put(2)])
    output = written(lake, lake.load_table(name), ["id"], [drop(1)])
    evolve(lake, name)
    assert RelistDeletes().build(plan_of(lake.load_table(name), events_of(name, [output]))) is None
    specs = lake.load_table(name).specs()
    assert len(specs) == 3
    commit(lake, name, [output])
    assert lake.load_table(name).specs() == specs
    assert rows_of(spark, name) == [(2, "nl", 0)]


LAST = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
AWARE = [LAST, LAST - timedelta(days=400, hours=7), LAST + timedelta(days=20_000, microseconds=1)]
MOMENTS = [moment.replace(tzinfo=None) for moment in AWARE]
IDENTITY, BUCKETS = IdentityTransform(), BucketTransform(16)
OF_DECIMALS = [IDENTITY, BUCKETS, TruncateTransform(50)]
OF_TIMES = [IDENTITY, BUCKETS, YearTransform(), MonthTransform(), DayTransform(), HourTransform()]
KEYS: list[tuple[PrimitiveType, Sequence[Any], Sequence[Transform[Any, Any]]]] = [
    (LongType(), [-1, -(2**62), 2**40 + 7], [IDENTITY, BUCKETS, TruncateTransform(10)]),
    (IntegerType(), [-1, -(2**31), 12], [IDENTITY, BUCKETS, TruncateTransform(7)]),
    (StringType(), ["", "ä€𐍈 text", "a/b=c%"], [IDENTITY, BUCKETS, TruncateTransform(3)]),
    (BinaryType(), [b"", b"\xff\x00ab", b"abc"], [IDENTITY, BUCKETS, TruncateTransform(2)]),
    (
        DecimalType(9, 2),
        [Decimal("-0.01"), Decimal("-1234.56"), Decimal("9.99")],
        [IDENTITY, BUCKETS, TruncateTransform(5)],
    ),
    (
        DecimalType(30, 4),
        [Decimal("-0.0001"), Decimal(-(10**24)), Decimal(10**20)],
        [IDENTITY, BUCKETS, TruncateTransform(50)],
    ),
    (DateType(), [date(1969, 12, 31), date(1900, 1, 1), date(2024, 2, 29)], OF_TIMES[:-1]),
    (TimestampType(), MOMENTS, OF_TIMES),
    (TimestamptzType(), AWARE, OF_TIMES),
    # Tables partitioned by fixed bytes themselves are refused.
    (FixedType(2), [b"\0\0", b"\xff\0", b"ab"], [BUCKETS]),
    (UUIDType(), [UUID(int=number).bytes for number in (0, 7, 2**127)], [IDENTITY, BUCKETS]),
    (BooleanType(), [True, False, True], [IDENTITY]),
]


def test_java_puts_every_key_into_the_partition_that_its_deletes_are_in(lake: SqlCatalog, spark: SparkSession) -> None:
    """Compaction works out the partition of each row anew."""
    fields = [NestedField(at, f"k{at}", kind, required=True) for at, (kind, _, _) in enumerate(KEYS, 1)]
    ways = [(at, transform) for at, (_, _, transforms) in enumerate(KEYS, 1) for transform in transforms]
    spec = PartitionSpec(*(PartitionField(at, 1000 + i, way, f"p{i}") for i, (at, way) in enumerate(ways)))
    lake.create_namespace_if_not_exists("changes")
    table = lake.create_table("changes.kinds", Schema(*fields), partition_spec=spec, properties={"format-version": "2"})
    names = [field.name for field in fields]
    rows = [{name: values[at] for name, (_, values, _) in zip(names, KEYS, strict=True)} for at in range(3)]

    def take(*changes: Change) -> None:
        commit(lake, "changes.kinds", [written(lake, lake.load_table("changes.kinds"), names, changes)])

    take(*(Change(row) for row in rows))
    partitions = {str(file.partition) for file in live_files(table.refresh())}
    rewrite(spark, "changes.kinds")
    head = lake.load_table("changes.kinds").current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert int(head.summary.additional_properties["deleted-data-files"]) == 3
    assert len(partitions) == 3
    take(*(Change(row, deletes=True) for row in rows))
    assert len(lake.load_table("changes.kinds").specs()) == 1
    assert by_spark(spark, "lake.changes.kinds") == []
