"""Deletes of one partition beside deletes for all: `python -m bench.delete_places`.

Two tables of 40 partitions and a million rows get the same batches of changes. In one the equality deletes of a batch
lie in their partitions, in the other under a spec without fields. Spark and ClickHouse read both: all of it, and a
partition. Prints one JSON document: seconds, CPU-seconds and whether the rows are right. Ends with 1 if rows are wrong
where deletes lie in partitions. `--keep` leaves the tables there, for other readers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from typing import Any

import chdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from bench.measure import ROOT, Meter
from bench.progress import say
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.changes.equality import with_global_spec
from calve.sink_core.iceberg.changes.writer import ChangeWriter
from calve.sink_core.iceberg.commit.append import build_append
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.outputs import output_of
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.changes.rows import change_schema
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.row_changes import RowChanges
from calve.spark_jobs.catalog import attach
from calve.spark_jobs.engine import SparkEngine

DIRECTORY = ROOT / ".bench" / "delete_places"
PARTITIONS, READ = 40, 7
"""Of each table, and the one that is read alone."""

SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "region"))
SCHEMA = Schema(
    NestedField(1, "region", LongType(), required=True),
    NestedField(2, "id", LongType(), required=True),
    NestedField(3, "v", LongType(), required=True),
)
Counted = tuple[int, int]
"""Rows, and the sum of their `v`."""

Ask = Callable[[str, str], Counted]
"""By a table's name and a condition."""


@dataclass(frozen=True, slots=True)
class Size:
    """Rows of a table, batches of changes, changes of each, and how often each reader reads."""

    rows: int
    batches: int
    changes: int
    reads: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document."""
    given = _options().parse_args(arguments)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    properties = {"type": "sql", "uri": f"sqlite:///{DIRECTORY / 'catalog.db'}", "warehouse": f"file://{DIRECTORY}"}
    found = _measure(
        CatalogSettings("lake", properties, {}), Size(given.rows, given.batches, given.changes, given.reads)
    )
    if not given.keep:
        shutil.rmtree(DIRECTORY)
    print(json.dumps(found, indent=2))
    return 0 if all(each["right"] for each in found if each["deletes"] == "partitions") else 1


def _measure(settings: CatalogSettings, size: Size) -> list[dict[str, Any]]:
    catalog = open_catalog(settings)
    catalog.create_namespace("db")
    values = _write(catalog, "partitions", size)
    _write(catalog, "all", size)
    found: list[dict[str, Any]] = []
    with SparkEngine(SparkSettings(master="local[2]")) as engine:
        attach(engine.session, settings)
        readers: dict[str, Ask] = {"Spark": _by_spark(engine.session), "ClickHouse": _by_clickhouse(catalog)}
        for reader, ask in readers.items():
            for deletes in ("partitions", "all"):
                for what, condition in (("table", "1 = 1"), ("partition", f"region = {READ}")):
                    right = _expected(values, READ if what == "partition" else None)
                    found.append(
                        {"reader": reader, "deletes": deletes, "reads": what}
                        | _read(ask, deletes, condition, right, size.reads)
                    )
                    say(str(found[-1]))
    return found


def _read(ask: Ask, table: str, condition: str, right: Counted, times: int) -> dict[str, Any]:
    """Medians, after a first read that doesn't count."""
    answer, cost = ask(table, condition), list[tuple[float, float]]()
    for _ in range(times):
        meter = Meter()
        ask(table, condition)
        seen = meter.read(0)
        cost.append((seen.wall_s, seen.cpu_s))
    wall_s, cpu_s = (round(statistics.median(each), 2) for each in zip(*cost, strict=True))
    return {"s": wall_s, "cpu_s": cpu_s, "rows": answer[0], "right": answer == right}


def _by_spark(spark: Any) -> Ask:
    def ask(table: str, condition: str) -> Counted:
        row = spark.table(f"lake.db.{table}").where(condition).selectExpr("count(*)", "sum(v)").collect()[0]
        return int(row[0]), int(row[1])

    return ask


def _by_clickhouse(catalog: Catalog) -> Ask:
    def ask(table: str, condition: str) -> Counted:
        location = catalog.load_table(f"db.{table}").metadata.location.removeprefix("file://")
        # It reads files below the working directory only.
        with chdir("/"):
            found = f"icebergLocal('{location}') WHERE {condition}"
            answer = chdb.query(f"SELECT count(), sum(v) FROM {found}", "CSV")  # noqa: S608 - our own names
        rows, values = str(answer).strip().split(",")
        return int(rows), int(values)

    return ask


def _write(catalog: Catalog, deletes: str, size: Size) -> dict[int, int]:
    """A table `db.<deletes>`; the `v` of each id in it. An id's region is what is left of it by `PARTITIONS`."""
    name = f"db.{deletes}"
    table = catalog.create_table(name, SCHEMA, partition_spec=SPEC, properties={"format-version": "2"})
    if deletes == "all":
        table = with_global_spec(catalog, table)
    say(f"{name}: {size.rows:,} rows")
    ids = np.arange(size.rows)
    rows = TableWriter(table.io, table.metadata, "rows")
    for batch in _rows(ids, np.zeros_like(ids)).cast(rows.schema).to_batches(max_chunksize=50_000):
        rows.write(batch)
    _commit(catalog, table, rows.close())
    values = dict.fromkeys(range(size.rows), 0)
    draw = np.random.default_rng(1)
    for number, (changed, gone) in enumerate(_changes(draw, size), 1):
        _commit(catalog, table := catalog.load_table(name), _written(table, changed, gone, number))
        values |= dict.fromkeys(changed.tolist(), number)
        for each in changed[gone].tolist():
            del values[each]
        values = {**values}
    return values


def _changes(draw: np.random.Generator, size: Size) -> Iterator[tuple[Any, Any]]:
    """Ids that change, each once, and which of them go."""
    left = draw.permutation(size.rows)[: size.batches * size.changes]
    for number in range(size.batches):
        changed = left[number * size.changes : (number + 1) * size.changes]
        yield changed, np.arange(len(changed)) % 2 == 0


def _rows(ids: Any, values: Any) -> pa.Table:
    return pa.table({"region": ids % PARTITIONS, "id": ids, "v": values})


def _written(table: Table, changed: Any, gone: Any, number: int) -> list[WrittenFile]:
    writer = ChangeWriter(
        table.io, table.metadata, f"b{number}", changes=RowChanges((1, 2)), table="db.t", topics=("t",)
    )
    rows = _rows(changed, np.full_like(changed, number))
    further = {
        "calve:deletes": pa.array(gone),
        "calve:source": pa.array(np.zeros(len(rows), np.int32)),
        "calve:offset": pa.array(np.arange(len(rows))),
    }
    schema = change_schema(table.schema())
    given = {name: rows[name] for name in rows.column_names} | further
    for batch in pa.table([given[name] for name in schema.names], names=schema.names).cast(schema).to_batches():
        writer.write(batch)
    return writer.close()


def _commit(catalog: Catalog, table: Table, files: Sequence[WrittenFile]) -> None:
    output = output_of("b", ".".join(table.name()), table, files)
    attempt = build_append(table, [Step(output.manifests, {})], tag="calve-bench")
    catalog.commit_table(table, attempt.requirements, attempt.updates)


def _expected(values: dict[int, int], partition: int | None) -> Counted:
    found = [v for each, v in values.items() if partition is None or each % PARTITIONS == partition]
    return len(found), sum(found)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.delete_places", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="of each table (1,000,000)")
    parser.add_argument("--batches", type=int, default=5, metavar="N", help="of changes (5)")
    parser.add_argument("--changes", type=int, default=1_000, metavar="N", help="of a batch, half deletes (1,000)")
    parser.add_argument("--reads", type=int, default=5, metavar="N", help="of each, the medians count (5)")
    parser.add_argument("--keep", action="store_true", help="leave the tables in .bench/delete_places")
    return parser


if __name__ == "__main__":
    sys.exit(main())
