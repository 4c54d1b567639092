"""Compaction, manifests and expiry by Iceberg's procedures on the tables of a real pipeline, beside its commits."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.assemble import INLINE_CATALOG
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.table_maintenance import Compact, Expire, Manifests
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.errors import FindingError
from calve.sink_core.iceberg.maintenance.predicate import predicate
from calve.sink_core.iceberg.maintenance.shape import live_files
from calve.sink_core.sink.maintenance.compact import compact, rewrite_manifests
from calve.sink_core.sink.maintenance.expire import expire
from calve.sink_core.sink.maintenance.tasks import run_task
from calve.sink_core.sink.maintenance.work import Work
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.proof import VerifyReport
from calve.spark_jobs.procedures import SparkProcedures
from tests import support
from tests.pipelines import Flow
from tests.support import TopicFactory

NEVER = "0 0 31 2 *"
NOW = Compact(cron=NEVER, lag=0.0)
AT_ONCE = Expire(cron=NEVER, older_than=0.0)
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


@pytest.fixture
def flow(broker: object, kafka_topic: TopicFactory, tmp_path: Path) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def work(flow: Flow, spark: SparkSession) -> Generator[Work]:
    with flow.session() as session:
        said: list[str] = []
        yield Work(session, SparkProcedures(lambda: spark, flow.pipeline.catalog), said.append)


def ready(work: Work) -> Work:
    work.session.read_only()
    work.session.bind()
    return work


def batches(flow: Flow, count: int, start: int = 0) -> None:
    """`count` batches of two records: one file each."""
    for i in range(start, start + count):
        flow.produce(range(2 * i, 2 * i + 2))
        flow.run()


def proof(flow: Flow, *, deep: bool = False) -> VerifyReport:
    with flow.session() as session:
        return verify(session, deep=deep)


def of(report: MaintenanceReport, table: str) -> TaskOutcome:
    assert report.failed == {}
    return next(outcome for outcome in report.done if outcome.subject == table)


def test_small_files_become_one_and_rows_and_proof_stay(flow: Flow, work: Work) -> None:
    batches(flow, 6)
    done = compact(ready(work), NOW)
    events, ledger = of(done, "db.events"), of(done, flow.pipeline.ledger_table)
    assert (events.before["data_files"], events.after["data_files"]) == (6, 1)
    assert (ledger.before["data_files"], ledger.after["data_files"]) == (6, 1)
    assert (of(done, flow.pipeline.dead_letter_table).changed, events.changed) == (False, True)
    batches(flow, 1, start=6)
    assert flow.ids() == list(range(14))
    assert proof(flow, deep=True).proven


def test_nothing_to_do_starts_no_spark_and_says_why(flow: Flow) -> None:
    batches(flow, 2)

    def never() -> SparkSession:
        raise AssertionError("Spark is started")

    with flow.session() as session:
        session.read_only()
        session.bind()
        idle = Work(session, SparkProcedures(never, flow.pipeline.catalog), lambda _step: None)
        few = of(compact(idle, NOW), "db.events")
        assert (few.changed, few.did) == (
            False,
            "nothing to do: 2 small files of 2, in no partition 5 (min_files) older than lag",
        )
        young = of(compact(idle, Compact(cron=NEVER, min_files=2)), "db.events")
        assert not young.changed, "the files are younger than the lag"
        kept = of(rewrite_manifests(idle, Manifests(cron=NEVER)), "db.events")
        assert kept.did == "nothing to do: 2 manifests, fewer than 100 (min_count)"
        assert (
            of(expire(idle, Expire(cron=NEVER)), "db.events").did == "nothing to do: none of the 2 snapshots may go yet"
        )


def test_only_partitions_with_many_small_files_are_rewritten(flow: Flow, spark: SparkSession) -> None:
    flow = flow.but(auto_create={"columns": {"id": "long", "text": "string"}, "partition_by": ["truncate(100, id)"]})
    for i in range(5):
        flow.produce(range(i, i + 1))
        flow.run()
    for i in range(3):
        flow.produce(range(100 + i, 101 + i))
        flow.run()
    with flow.session() as session:
        work = ready(Work(session, SparkProcedures(lambda: spark, flow.pipeline.catalog), lambda _step: None))
        compact(replace(work, tables=("db.events",)), NOW)
        left = [file.partition for file in live_files(flow.load_table())]
        assert (left.count((0,)), left.count((100,))) == (1, 3)
        bounded = compact(work, Compact(cron=NEVER, lag=0.0, min_files=2, max_bytes="1B"))
        assert (of(bounded, "db.events").changed, len(list(live_files(flow.load_table())))) == (True, 2)
        assert "max_bytes is used up" in of(bounded, flow.pipeline.ledger_table).did
    assert flow.ids() == [0, 1, 2, 3, 4, 100, 101, 102]


def test_sorting_follows_the_tables_own_order(flow: Flow, work: Work, spark: SparkSession) -> None:
    for ids in (range(4, 6), range(2), range(2, 4)):
        flow.produce(ids)
        flow.run()
    ready(work)
    work.procedures.rewrite_manifests("db.events")
    spark.sql(f"ALTER TABLE {flow.catalog}.db.events WRITE ORDERED BY id DESC")
    done = compact(work, Compact(cron=NEVER, lag=0.0, min_files=2, strategy="sort"))
    assert [row["id"] for row in flow.rows()] == [5, 4, 3, 2, 1, 0]
    assert of(done, flow.pipeline.ledger_table).changed, "tables without an order are joined as they are"


def test_a_commit_between_is_kept_by_both_sides(flow: Flow, work: Work) -> None:
    """The rewrite is planned on one head and lands on another."""
    batches(flow, 5)
    ready(work)
    original = work.procedures.rewrite_data_files

    class LazySpark(SparkProcedures):
        def rewrite_data_files(self, *args: object, **options: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
            batches(flow, 1, start=20)
            return original(*args, **options)  # pyright: ignore[reportArgumentType]

    lazy = LazySpark(lambda: pytest.fail("not used"), flow.pipeline.catalog)
    late = Work(work.session, lazy, work.on_progress, ("db.events",))
    assert of(compact(late, NOW), "db.events").changed
    batches(flow, 1, start=30)
    assert flow.ids() == [*range(10), 40, 41, 60, 61]
    assert proof(flow, deep=True).proven


def test_manifests_are_rewritten_from_the_threshold_on(flow: Flow, work: Work) -> None:
    batches(flow, 4)
    done = of(rewrite_manifests(ready(work), Manifests(cron=NEVER, min_count=4)), "db.events")
    assert (done.before["manifests"], done.after["manifests"]) == (4, 1)
    batches(flow, 1, start=4)
    assert flow.ids() == list(range(10))
    assert proof(flow, deep=True).proven


def test_expiry_keeps_what_lies_between_tag_and_head(flow: Flow, work: Work) -> None:
    batches(flow, 3)
    flow.append_foreign(100)
    flow.append_foreign(101)
    done = of(expire(ready(work), AT_ONCE), "db.events")
    assert (done.before["snapshots"], done.after["snapshots"]) == (5, 3), "the tagged one and the two above it"
    batches(flow, 1, start=3)
    assert flow.ids() == [*range(8), 100, 101]
    report = proof(flow)
    assert report.proven
    assert any("expired" in part.why for part in report.not_checked)


def test_expiry_after_compaction_deletes_what_was_rewritten(flow: Flow, work: Work) -> None:
    batches(flow, 5)
    compact(ready(work), NOW)
    batches(flow, 1, start=5)
    done = of(expire(work, AT_ONCE), "db.events")
    assert done.after["snapshots"] == 1
    folder = Path(flow.load_table().location().removeprefix("file://")) / "data"
    assert len(list(folder.glob("*.parquet"))) == 2
    assert flow.ids() == list(range(12))
    assert proof(flow, deep=True).proven


def test_a_table_that_is_not_ours_keeps_its_snapshots(flow: Flow, work: Work) -> None:
    with flow.iceberg() as catalog:
        catalog.create_namespace("db")
        catalog.create_table(
            "db.events", Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
        )
    batches(flow, 3)
    kept = of(expire(ready(work), AT_ONCE), "db.events")
    assert (kept.changed, "owned: true" in kept.did) == (False, True)
    claimed = flow.but(extra={"tables": [{"name": "db.events", "owned": True}]})
    with claimed.session() as session:
        ours = ready(Work(session, work.procedures, work.on_progress))
        assert of(expire(ours, AT_ONCE), "db.events").after["snapshots"] == 1


def test_files_of_a_table_that_is_not_ours_are_joined_only_if_somebody_asks(
    flow: Flow, work: Work, spark: SparkSession
) -> None:
    with flow.iceberg() as catalog:
        catalog.create_namespace("db")
        catalog.create_table(
            "db.events", Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
        )
    batches(flow, 5)
    unasked = replace(ready(work), wanted=False)
    joined = compact(unasked, NOW)
    for task in (joined, rewrite_manifests(unasked, Manifests(min_count=2))):
        assert of(task, "db.events").did.startswith("nothing to do: not created by Calve, and nobody has asked for it")
    assert of(joined, flow.pipeline.ledger_table).changed, "our own"
    asked = flow.but(extra={"maintenance": {"compact": {"lag": "0s"}}})
    with asked.session() as session:
        done = run_task("compact", session, SparkProcedures(lambda: spark, asked.pipeline.catalog))
    assert of(done, "db.events").changed
    assert flow.ids() == list(range(10))


def test_a_catalog_with_the_name_of_a_namespace_is_not_taken_for_it(
    broker: Broker, kafka_topic: TopicFactory, tmp_path: Path, spark: SparkSession
) -> None:
    """`calve` is the name of a catalog that is written inline, and the namespace of ledgers."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), catalog_name=INLINE_CATALOG)
    batches(flow, 5)
    with flow.session() as session:
        ours = ready(Work(session, SparkProcedures(lambda: spark, flow.pipeline.catalog), lambda _step: None))
        for report in (compact(ours, NOW), rewrite_manifests(ours, Manifests(min_count=2)), expire(ours, AT_ONCE)):
            report.raise_failures()
    assert len(list(flow.load_table(flow.pipeline.ledger_table).scan().plan_files())) == 1
    assert flow.ids() == list(range(10))
    assert proof(flow, deep=True).proven


def test_a_rolled_back_table_is_left_alone(flow: Flow, work: Work) -> None:
    batches(flow, 2)
    first = flow.load_table().metadata.snapshots[0].snapshot_id
    flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit()
    report = expire(ready(work), AT_ONCE)
    assert isinstance(report.failed["db.events"], FindingError)
    assert len(flow.load_table().metadata.snapshots) == 2


def test_a_branch_that_keeps_snapshots_by_rules_of_its_own_is_refused(
    flow: Flow, work: Work, spark: SparkSession
) -> None:
    batches(flow, 2)
    flow.append_foreign(100)
    flow.append_foreign(101)
    ready(work).procedures.rewrite_manifests("db.events")
    head = flow.load_table().metadata.current_snapshot_id
    spark.sql(
        f"ALTER TABLE {flow.catalog}.db.events REPLACE BRANCH main AS OF VERSION {head} "
        "WITH SNAPSHOT RETENTION 1 SNAPSHOTS 1 DAYS"
    )
    assert of(expire(work, AT_ONCE), "db.events").did == "nothing to do: none of the 5 snapshots may go yet"


KINDS: dict[str, tuple[IcebergType, list[object]]] = {
    "long": (LongType(), [1, -5, None]),
    "int": (IntegerType(), [7, 8]),
    "flag": (BooleanType(), [True, False, None]),
    "text": (StringType(), ["it's", 'a "quote"', "back\\slash", "`tick`", "täxt", "", None]),
    "date": (DateType(), [date(2026, 3, 4), date(1969, 12, 31)]),
    "moment": (TimestampType(), [MOMENT.replace(tzinfo=None), datetime(1969, 12, 31, 23, 59, 59, 1)]),  # noqa: DTZ001
    "moment_tz": (TimestamptzType(), [MOMENT, None]),
    "price": (DecimalType(9, 2), [Decimal("12.30"), Decimal("-0.01")]),
    "ratio": (DoubleType(), [1.5, -2.25, None]),
    "small": (FloatType(), [0.5, -2.25]),
    "raw": (BinaryType(), [b"\x00\xff", b"abcd"]),
    "uid": (UUIDType(), [str(UUID(int=5)), str(UUID(int=2**127))]),
}
CASES: list[tuple[str, Transform]] = [  # pyright: ignore[reportMissingTypeArgument]
    *((kind, IdentityTransform()) for kind in KINDS),
    *((kind, BucketTransform(4)) for kind in ("long", "int", "text", "date", "moment", "moment_tz", "price", "raw")),
    *((kind, TruncateTransform(3)) for kind in ("long", "int", "text", "price", "raw")),
    *(
        (kind, t)
        for kind in ("date", "moment", "moment_tz")
        for t in (YearTransform(), MonthTransform(), DayTransform())
    ),
    *((kind, HourTransform()) for kind in ("moment", "moment_tz")),
    ("long", VoidTransform()),
]


ALIKE = {
    *(("bucket", kind) for kind in ("int", "date", "moment", "moment_tz", "price", "raw")),
    ("truncate", "int"),
    *((unit, kind) for unit in ("year", "month") for kind in ("date", "moment_tz")),
    ("day", "date"),
    ("hour", "moment_tz"),
}
"""Left to `make faults`: a bucket is a number whatever it is of, and these conditions have another case's form."""


def _case(kind: str, transform: Transform) -> Any:  # pyright: ignore[reportMissingTypeArgument]
    marks = [pytest.mark.faults] if (str(transform).partition("[")[0], kind) in ALIKE else []
    return pytest.param(kind, transform, id=f"{transform}-{kind}", marks=marks)


@pytest.mark.parametrize(("kind", "transform"), [_case(*case) for case in CASES])
def test_a_condition_selects_exactly_its_partition(
    kind: str,
    transform: Transform,  # pyright: ignore[reportMissingTypeArgument]
    lake: SqlCatalog,
    lake_dir: Path,
    spark: SparkSession,
) -> None:
    type_, values = KINDS[kind]
    settings = CatalogSettings("lake", {"type": "sql", **support.catalog_properties(lake_dir)}, {})
    namespace = support.unique("ns").replace("-", "_")
    schema = Schema(NestedField(1, "n", IntegerType()), NestedField(2, "odd name", type_))
    lake.create_namespace(namespace)
    table = lake.create_table(
        f"{namespace}.t", schema, partition_spec=PartitionSpec(PartitionField(2, 1000, transform, "p"))
    )
    columns = spark.table(f"lake.{namespace}.t").schema
    spark.createDataFrame(list(enumerate(values)), columns).writeTo(f"lake.{namespace}.t").append()
    table.refresh()
    rows: dict[tuple[object, ...], int] = {}
    for task in table.scan().plan_files():
        key = (task.file.partition[0],)
        rows[key] = rows.get(key, 0) + task.file.record_count
    assert set(rows) == {file.partition for file in live_files(table)}
    for partition, expected in rows.items():
        where = predicate(table.spec(), table.schema(), partition, catalog="lake")
        assert where is not None
        found = spark.sql(f"SELECT * FROM lake.{namespace}.t {f'WHERE {where}' if where else ''}").collect()
        assert len(found) == expected, where
        # Nothing needs to be rewritten, but the procedure takes the condition.
        procedures = SparkProcedures(lambda: spark, settings)
        assert procedures.rewrite_data_files(f"{namespace}.t", strategy="binpack", where=where, options={}).files == 0


def test_what_spark_cannot_say_selects_all() -> None:
    schema = Schema(NestedField(1, "at", TimeType()), NestedField(2, "s", StructType(NestedField(3, "x", LongType()))))
    timed = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "at"))
    assert predicate(timed, schema, (5,), catalog="lake") is None
    nested = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "x"))
    assert predicate(nested, schema, (5,), catalog="lake") == "`s`.`x` = 5"
    dropped = PartitionSpec(PartitionField(9, 1000, IdentityTransform(), "gone"))
    assert predicate(dropped, schema, (5,), catalog="lake") is None


def test_what_is_no_number_has_a_condition_of_its_own() -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    nan = predicate(spec, Schema(NestedField(1, "x", DoubleType())), (float("nan"),), catalog="lake")
    assert nan == "isnan(`x`)"
