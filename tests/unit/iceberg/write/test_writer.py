"""Files and manifests: the same partitions and metrics as pyiceberg's own, and readable once a snapshot adds them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.sink_core.codes import Code
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.iceberg.commit.append import build_append
from calve.sink_core.iceberg.files.manifests import write_manifest
from calve.sink_core.iceberg.files.written import WrittenFile, data_file
from calve.sink_core.iceberg.write.outputs import FEW, write_ledger
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.columns.arrow import arrow_schema, conform, file_schema
from calve.sink_core.tables.batch import BatchPlan, ManifestRef
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.internal import LEDGER_SCHEMA
from tests.codes import raises

SCALARS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "i", IntegerType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "d", DateType()),
    NestedField(5, "t", TimeType()),
    NestedField(6, "ts", TimestampType()),
    NestedField(7, "tz", TimestamptzType()),
    NestedField(8, "dec", DecimalType(9, 2)),
    NestedField(9, "big", DecimalType(30, 4)),
    NestedField(10, "b", BinaryType()),
    NestedField(11, "f", FixedType(4)),
    NestedField(12, "flag", BooleanType()),
    NestedField(13, "x", DoubleType()),
    NestedField(14, "at", StructType(NestedField(15, "tz", TimestamptzType()))),
)
MOMENT = datetime(2024, 2, 28, 22, 30, tzinfo=UTC)


def row(i: int) -> dict[str, Any]:
    moment = MOMENT + timedelta(hours=7 * i, microseconds=i)
    return {
        "id": i,
        "i": -i,
        "s": f"user/{i % 3} ä",
        "d": moment.date(),
        "t": moment.time(),
        "ts": moment.replace(tzinfo=None) - timedelta(days=365 * 60),
        "tz": moment,
        "dec": Decimal(i % 4) / 4 - 1,
        "big": Decimal(f"{i}000000000000000000.1234"),
        "b": bytes([i % 3, 255]),
        "f": bytes([i % 2] * 4),
        "flag": i % 2 == 0,
        "x": i / 8,
        "at": {"tz": moment} if i % 5 else None,
    }


def nulls(i: int) -> dict[str, Any]:
    return {"id": i, **dict.fromkeys([field.name for field in SCALARS.fields[1:]])}


def batch(rows: list[dict[str, Any]], schema: Schema = SCALARS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))


ROWS = [nulls(i) if i % 11 == 0 else row(i) for i in range(60)]


def spec_of(*fields: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    return PartitionSpec(*(PartitionField(source, 1000 + i, t, f"p{i}") for i, (source, t) in enumerate(fields)))


@pytest.fixture
def tables(catalog: SqlCatalog) -> Callable[..., Table]:
    """Create a table nobody else has: `tables(schema, spec, **properties)`."""
    catalog.create_namespace("ns")

    def create(schema: Schema = SCALARS, spec: PartitionSpec = PartitionSpec(), **properties: str) -> Table:  # noqa: B008
        return catalog.create_table(f"ns.t{uuid.uuid4().hex}", schema, partition_spec=spec, properties=properties)

    return create


def write(table: Table, *batches: pa.RecordBatch, **options: Any) -> list[WrittenFile]:
    writer = TableWriter(table.io, table.metadata, "calve-b-0", **options)
    for rows in batches:
        writer.write(rows)
    return writer.close()


def add(table: Table, files: list[WrittenFile]) -> ManifestRef:
    path = table.location_provider().new_metadata_location("m.avro")
    ref = write_manifest(table.io, table.metadata, table.metadata.default_spec_id, files, path)
    attempt = build_append(table, [Step([ref], {})], tag="calve-test")
    table.catalog.commit_table(table, attempt.requirements, attempt.updates)
    table.refresh()
    return ref


def entries(table: Table) -> list[DataFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = [entry for manifest in snapshot.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]
    assert {entry.sequence_number for entry in found} == {snapshot.sequence_number}
    assert {entry.snapshot_id for entry in found} == {snapshot.snapshot_id}
    return [entry.data_file for entry in found]


def by_partition(table: Table) -> dict[str, tuple[Any, ...]]:
    """What a manifest says of each partition's file, its path and sizes aside."""
    return {
        str(file.partition): (
            file.record_count,
            file.value_counts,
            file.null_value_counts,
            file.nan_value_counts,
            file.lower_bounds,
            file.upper_bounds,
            file.column_sizes.keys(),
            file.file_path.removeprefix(f"{table.location()}/data/").rpartition("/")[0],
        )
        for file in entries(table)
    }


TRANSFORMS: list[tuple[int, Transform[Any, Any]]] = [
    *((field.field_id, IdentityTransform()) for field in SCALARS.fields if field.name not in {"x", "at"}),
    *((field, BucketTransform(5)) for field in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11)),
    *((field, TruncateTransform(3)) for field in (1, 2, 3, 8, 9)),
    *((field, transform) for field in (4, 6, 7) for transform in (YearTransform(), MonthTransform(), DayTransform())),
    *((field, HourTransform()) for field in (6, 7)),
    (15, DayTransform()),
]


@pytest.mark.parametrize(("source", "transform"), TRANSFORMS, ids=lambda value: str(value))
def test_partitions_and_metrics_are_those_pyiceberg_writes(
    tables: Any, source: int, transform: Transform[Any, Any]
) -> None:
    spec = spec_of((source, transform))
    ours, theirs = tables(spec=spec), tables(spec=spec)
    theirs.append(pa.Table.from_batches([batch(ROWS)]))
    ref = add(ours, write(ours, batch(ROWS[:17]), batch(ROWS[17:])))
    assert by_partition(ours) == by_partition(theirs)
    snapshot = theirs.current_snapshot()
    (manifest,) = snapshot.manifests(theirs.io)
    summaries = [(p.contains_null, p.contains_nan, p.lower_bound, p.upper_bound) for p in manifest.partitions]
    assert summaries == [(p.contains_null, p.contains_nan, p.lower_bound, p.upper_bound) for p in ref.partitions]
    assert (ref.rows, ref.files) == (len(ROWS), manifest.added_files_count)
    assert sorted(ours.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == ROWS


def test_transforms_pyiceberg_reads_and_does_not_write(tables: Any) -> None:
    schema = Schema(NestedField(1, "t", TimeType()), NestedField(2, "b", BinaryType()), NestedField(3, "u", UUIDType()))
    columns = {"t": time(10, 0, 0, 7), "b": b"\x00\xffabc", "u": uuid.UUID(int=2**100 + 7).bytes}
    spec = spec_of((1, BucketTransform(16)), (2, TruncateTransform(2)), (3, BucketTransform(16)))
    (file,) = write(tables(schema, spec), batch([columns], schema))
    expected = [
        BucketTransform(16).transform(TimeType())(36_000_000_007),
        b"\x00\xff",
        BucketTransform(16).transform(UUIDType())(uuid.UUID(bytes=columns["u"])),
    ]
    assert list(data_file(file, spec, schema).partition) == expected


def test_several_partition_fields_also_on_one_column(tables: Any) -> None:
    spec = spec_of((3, BucketTransform(2)), (3, TruncateTransform(6)), (12, IdentityTransform()), (1, VoidTransform()))
    table = tables(spec=spec)
    add(table, write(table, batch(ROWS)))
    expected = {}
    bucket = BucketTransform(2).transform(StringType())
    for r in ROWS:
        key = f"Record[{bucket(r['s'])}, {r['s'] and r['s'][:6]}, {r['flag']}, None]"
        expected[key] = expected.get(key, 0) + 1
    assert {str(file.partition): file.record_count for file in entries(table)} == expected
    assert len(table.scan().to_arrow()) == len(ROWS)


def test_rows_keep_their_order_within_a_partition(tables: Any) -> None:
    table = tables(spec=spec_of((12, IdentityTransform())))
    for file in write(table, *(batch([row(i)]) for i in range(50))):
        ids = pq.read_table(file.path.removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids)


NESTED = Schema(
    NestedField(1, "uid", UUIDType(), required=True),
    NestedField(2, "odd name.x", LongType()),
    NestedField(
        3,
        "s",
        StructType(
            NestedField(4, "uid", UUIDType()),
            NestedField(5, "l", ListType(6, UUIDType(), element_required=False)),
            NestedField(7, "must", LongType(), required=True),
        ),
    ),
    NestedField(8, "m", MapType(9, StringType(), 10, StructType(NestedField(11, "uid", UUIDType())))),
)


def test_nested_columns_and_uuids_arrive_in_the_file_with_their_field_ids(tables: Any) -> None:
    table = tables(NESTED)
    one, other = uuid.uuid4(), uuid.uuid4()
    values = [
        {
            "uid": one.bytes,
            "odd name.x": 1,
            "s": {"uid": other.bytes, "l": [one.bytes, None], "must": 5},
            "m": [("k", {"uid": one.bytes})],
        },
        {"uid": other.bytes, "odd name.x": None, "s": None, "m": None},
    ]
    files = write(table, batch(values, table.schema()))
    parquet = pq.ParquetFile(files[0].path.removeprefix("file://"))
    logical = {parquet.schema.column(i).path: str(parquet.schema.column(i).logical_type) for i in range(7)}
    assert logical["uid"] == logical["s.l.list.element"] == "UUID"
    add(table, files)
    read = table.scan().to_arrow().to_pylist()
    assert [(r["uid"], r["odd name.x"]) for r in read] == [(one, 1), (other, None)]
    assert read[0]["s"] == {"uid": other, "l": [one, None], "must": 5}
    assert (read[0]["m"], read[1]["s"]) == ([("k", {"uid": one})], None)


def test_files_roll_at_the_target_size(tables: Any) -> None:
    table = tables(**{"write.target-file-size-bytes": "20000", "write.parquet.compression-codec": "uncompressed"})
    files = write(table, *(batch([row(i) for i in range(k, k + 100)]) for k in range(0, 3_000, 100)))
    assert len(files) > 5
    assert sum(file.rows for file in files) == 3_000
    assert all(20_000 <= file.size < 60_000 for file in files[:-1])
    assert [file.size for file in files] == [len(table.io.new_input(file.path)) for file in files]


def test_memory_is_bounded_however_many_partitions(tables: Any) -> None:
    table = tables(spec=spec_of((1, IdentityTransform())))
    writer = TableWriter(table.io, table.metadata, "calve-b-0", budget=Budget(4_000, max_open_files=8))
    open_before = _open_files()
    for k in range(0, 300, 30):
        writer.write(batch([row(i) for i in range(k, k + 30)]))
        assert _open_files() - open_before <= 8
    files = writer.close()
    assert sorted(data_file(f, table.spec(), table.schema()).partition[0] for f in files) == list(range(300))
    assert _open_files() == open_before


def test_a_row_group_property_of_the_table_is_followed(tables: Any) -> None:
    table = tables(**{"write.parquet.row-group-size-bytes": "10000", "write.parquet.compression-codec": "gzip"})
    (file,) = write(table, *(batch([row(i) for i in range(50)]) for _ in range(10)))
    metadata = pq.ParquetFile(file.path.removeprefix("file://")).metadata
    assert metadata.num_row_groups == len(file.split_offsets) > 3
    assert metadata.row_group(0).column(0).compression == "GZIP"


def test_file_names_say_who_wrote_them_and_never_collide(tables: Any) -> None:
    table = tables(spec=spec_of((4, MonthTransform())))
    files = write(table, batch(ROWS)) + write(table, batch(ROWS))
    assert len({file.path for file in files}) == len(files)
    assert all("/data/p0=" in file.path and "/calve-b-0-" in file.path for file in files)


def test_without_rows_there_is_no_file(tables: Any) -> None:
    assert write(tables(), batch([])) == []


def test_columns_calve_does_not_write_are_null_or_refused(tables: Any) -> None:
    rows = batch(ROWS).select(["id", "s"])
    table = tables()
    add(table, write(table, rows))
    assert table.scan().to_arrow()["x"].null_count == len(ROWS)
    with raises(Code.FOREIGN_COLUMNS, "id"):
        write(table, rows.select(["s"]))
    with raises(Code.FOREIGN_COLUMNS, "large_string", "int64"):
        write(table, pa.RecordBatch.from_pydict({"id": [1], "s": [2]}))


def test_a_manifest_names_its_content(tables: Any) -> None:

    table = tables()
    files = write(table, batch(ROWS))
    ref = add(table, files)
    content = Path(ref.path.removeprefix("file://")).read_bytes()
    assert (ref.length, ref.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert (ref.files, ref.rows, ref.data_bytes) == (1, len(ROWS), files[0].size)


def test_types_in_memory_and_in_files_are_one_conform_apart() -> None:
    storage = batch([{"uid": b"0" * 16, "s": None, "m": None}], NESTED)
    in_file = conform(storage.columns, file_schema(NESTED))
    assert conform(in_file.columns, arrow_schema(NESTED)).equals(storage)


def _open_files() -> int:
    return psutil.Process().num_fds()


def test_memory_is_bounded_however_many_tables(tables: Any) -> None:
    """100 tables of 24 partitions, all written to at once: 32 KB gathered and 16 files open at most."""
    table = tables(spec=spec_of((1, IdentityTransform())))
    budget, open_before = Budget(32 * 1024, max_open_files=16), _open_files()
    writers = [TableWriter(table.io, table.metadata, f"calve-{n}", budget=budget) for n in range(100)]
    rows = batch([row(i) for i in range(24)])
    for writer in [*writers, *writers[:50]]:
        writer.write(rows)
        assert budget.gathered_bytes <= 32 * 1024
        assert budget.open_files == _open_files() - open_before <= 16
    files = [file for writer in writers for file in writer.close()]
    assert sum(file.rows for file in files) == 150 * 24
    assert (budget.gathered_bytes, budget.open_files, _open_files()) == (0, 0, open_before)


@pytest.mark.parametrize(("rows", "codec"), [(FEW, "UNCOMPRESSED"), (FEW + 1, "ZSTD")])
def test_a_few_rows_of_the_ledger_are_not_compressed(tables: Callable[..., Table], rows: int, codec: str) -> None:
    table = tables(LEDGER_SCHEMA, **{"write.parquet.compression-codec": "zstd"})
    counts = [PartitionCounts("t", partition, 0, 1, 1) for partition in range(rows)]
    [file] = write_ledger(BatchPlan("b2", "b1", (), (), {"t": "id"}, 0, 100), counts, table)
    footer = pq.read_metadata(file.path.removeprefix("file://"))
    assert (footer.num_rows, footer.row_group(0).column(0).compression) == (rows, codec)
