"""Row changes written and committed as the jobs do it, without Kafka and Spark; and what readers make of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from typing import Any

import chdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.catalog.metadata import without_history
from calve.sink_core.iceberg.changes.equality import key_of, with_spec_of_deletes
from calve.sink_core.iceberg.changes.merging import staged_files
from calve.sink_core.iceberg.changes.writer import ChangeWriter
from calve.sink_core.iceberg.commit.append import build_append
from calve.sink_core.iceberg.commit.merge import MergeOnBranch, MergeWork, Merging
from calve.sink_core.iceberg.commit.plan import Attempt, Built, CommitPlan
from calve.sink_core.iceberg.commit.relisting import RelistDeletes
from calve.sink_core.iceberg.commit.view import view_of
from calve.sink_core.iceberg.files.partition import buckets_of
from calve.sink_core.iceberg.write.outputs import output_of
from calve.sink_core.records.changes.rows import change_schema
from calve.sink_core.tables.batch import TableOutput, ToMerge
from calve.sink_core.tables.history import shares as own
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.history.shares import Events, Step
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.tables.row_changes import RowChanges
from calve.spark_jobs.merge import merge_into

TOPICS = ("t",)
TAG = "calve-test"
WRITERS = 3

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A row that comes; or the key of one that goes, in a row otherwise empty."""

    row: Row
    deletes: bool = False
    partition: int = 0


def written(catalog: Catalog, table: Table, key: Sequence[str], changes: Sequence[Change]) -> TableOutput:
    """The batch of `changes`, whose offsets are their places, shared among several writers."""
    ids = key_of(table.metadata, key, table=".".join(table.name()))
    table = with_spec_of_deletes(catalog, table, ids)
    schema = change_schema(table.schema())
    further = [{"calve:deletes": c.deletes, "calve:source": c.partition} for c in changes]
    rows = [{**c.row, **more, "calve:offset": at} for at, (c, more) in enumerate(zip(changes, further, strict=True))]
    given = pa.Table.from_pylist(rows, schema=schema)
    buckets = buckets_of(given, ids, table.schema(), WRITERS)
    files = []
    for bucket in range(WRITERS):
        writer = ChangeWriter(table.io, table.metadata, "calve-b", changes=RowChanges(ids), table="db.t", topics=TOPICS)
        for batch in given.filter(pa.array(buckets == bucket)).to_batches(max_chunksize=2):
            writer.write(batch)
        files += writer.close()
    return output_of(str(uuid.uuid4()), ".".join(table.name()), table, files, len(changes))


def commit(catalog: Catalog, name: str, outputs: Sequence[TableOutput]) -> None:
    """What a coordinator does with batches that wait: all in one call."""
    table = catalog.load_table(name)
    attempt = attempt_of(table, outputs)
    catalog.commit_table(table, attempt.requirements, attempt.updates)


def attempt_of(table: Table, outputs: Sequence[TableOutput]) -> Attempt:
    """A commit of batches that wait to the table as loaded; with the spec that their deletes need, if it lacks it."""
    events = events_of(".".join(table.name()), outputs)
    if RelistDeletes().build(plan_of(table, events)) is None:
        table = table.catalog.load_table(table.name())
    steps = [Step(own.manifests_of(share.events), {}) for share in own.shares_of(events, len(events), "")]
    return build_append(table, steps, tag=TAG)


def merge(
    catalog: Catalog,
    name: str,
    outputs: Sequence[TableOutput],
    spark: SparkSession,
    settings: CatalogSettings,
    by: ToMerge,
) -> None:
    """What a coordinator does with them under `write_mode: merge`."""

    def merge_changes(table: Table, branch: str, events: Events) -> None:
        files = tuple(staged_files(table.io, events))
        merge_into(spark, MergeWork(settings, name, without_history(table.metadata), files, by, branch))

    case = MergeOnBranch(TAG, Merging(frozenset({name}), merge_changes), lambda *_: {})
    assert isinstance(case.build(plan_of(catalog.load_table(name), events_of(name, outputs))), Built)


def plan_of(table: Table, events: Sequence[Logged[DataWritten]]) -> CommitPlan:
    """A commit of all the events to the table as loaded."""
    view = view_of(table.metadata, table=".".join(table.name()), tag=TAG, keys=SummaryKeys("test", "control", "test"))
    return CommitPlan(table, view, CommitState(), None, 0, events, events, len(events))


def events_of(name: str, outputs: Sequence[TableOutput]) -> list[Logged[DataWritten]]:
    """As the log has them."""
    return [
        Logged(
            at,
            DataWritten(
                pipeline_id="p",
                batch_id=str(at),
                table=name,
                table_uuid=output.table_uuid,
                schema_id=output.schema_id,
                manifests=output.manifests,
                changes=output.changes,
            ),
        )
        for at, output in enumerate(outputs)
        if output.manifests
    ]


def by_chdb(table: Table) -> list[dict[str, Any]]:
    """The rows, in no order, as ClickHouse's reader has them."""
    location = table.metadata.location.removeprefix("file://")
    # It reads files below the working directory only.
    with chdir("/"):
        found = chdb.query(f"SELECT * FROM icebergLocal('{location}')", "JSONEachRow")
    return [json.loads(line) for line in str(found).splitlines()]


def by_spark(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    """The rows, in no order, as Iceberg's own reader has them."""
    return [row.asDict(recursive=True) for row in spark.sql(f"SELECT * FROM {name}").collect()]
