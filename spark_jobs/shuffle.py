"""A batch whose rows go to the tasks that write them through Spark's shuffle: `write.distribution-mode` hash or range.

    read     each task reads its ranges, as without a shuffle, and hands on pieces in place of files
    divide   for range: the keys of a sample make boundaries, by which pieces are cut
    write    the pieces of a bucket become files of its partitions, or of its range

Changes of rows meet in a bucket what the table has of their keys, which `existing_rows.py` sends there: of files that
may have keys of the batch, between whose least and greatest they lie.

Everything a task hands on, its counts included, travels in rows of Spark's own, of which one attempt of each task
counts, whatever is tried again. In the end the rows that were received must be those that were sent, task by task.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, RetriableError
from calve.sink_core.iceberg.changes.existing_rows import all_bounds, existing_rows_schema
from calve.sink_core.iceberg.files.sort_order import Order
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.format.target import iceberg_target
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.sink.write.outputs import Output
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import TaskResult, run_task
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.pieces import Bounds, Outbox, Piece, keys_of, pieces, rows_of
from calve.sink_core.tables.row_changes import ExistingRows
from calve.spark_jobs.existing_rows import existing_pieces, existing_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESULT, _SAMPLE, _PIECE, _FAILED, _WRITTEN, _STANDING = range(6)
_COLUMNS = "kind int, task long, bucket int, table int, rows long, data binary"
_ARROW = pa.schema(
    [
        ("kind", pa.int32()),
        ("task", pa.int64()),
        ("bucket", pa.int32()),
        ("table", pa.int32()),
        ("rows", pa.int64()),
        ("data", pa.binary()),
    ]
)
_PIECES_AT_ONCE = "16"
_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"

Batches = Iterable[pa.RecordBatch]
Boundaries = Mapping[int, pa.Table]


@dataclass(frozen=True, slots=True)
class _Read:
    """What a task that reads says of itself; by number of the table how many rows it handed on, and what the keys of
    changes lie between.
    """

    result: TaskResult
    sent: Mapping[int, int]
    bounds: Mapping[int, Sequence[Bounds | None]] = field(default_factory=dict[int, Sequence[Bounds | None]])


@dataclass(frozen=True, slots=True)
class _Written:
    """What a task that writes has received, by number of the task and of the table, and made of it."""

    files: Mapping[str, tuple[WrittenFile, ...]]
    taken: Mapping[tuple[int, int], int]


def run_shuffled(
    spec: IngestSpec, tasks: Sequence[Sequence[OffsetRange]], session: SparkSession, buckets: int
) -> list[TaskResult]:
    """Results of the tasks that read, then of those that write, which count nothing. Raises what they raise, and
    RetriableError if rows that were sent did not come, or came twice.
    """
    with _small_batches(session):
        read = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(
            partial(_read, spec, tuple(tasks), buckets), _COLUMNS
        )
        if spec.looks_at_tables or any(table.target.distribution == "range" for table in spec.tables):
            # What was read is kept: the second look at it does not read the topics again.
            read = read.persist()
            try:
                rows = _looked_at(spec, read, buckets, session)
            finally:
                read.unpersist()
        else:
            rows = _write(read, spec, buckets, session, {})
    return _results(spec, len(tasks), rows)


@contextmanager
def _small_batches(session: SparkSession) -> Generator[None]:
    """Spark hands rows to Python by their number, which here are megabytes each."""
    before = session.conf.get(_AT_ONCE)
    session.conf.set(_AT_ONCE, _PIECES_AT_ONCE)
    try:
        yield
    finally:
        session.conf.set(_AT_ONCE, cast(str, before))


def _looked_at(spec: IngestSpec, read: DataFrame, buckets: int, session: SparkSession) -> list[Any]:
    """As `_write`, once all was read and its keys are known."""
    samples: dict[int, list[pa.Table]] = {}
    bounds: dict[int, list[Bounds | None]] = {}
    for row in read.where(f"kind in ({_RESULT}, {_SAMPLE}, {_FAILED})").collect():
        if row["kind"] == _FAILED:
            raise _error(row["data"])
        if row["kind"] == _SAMPLE:
            samples.setdefault(row["table"], []).append(keys_of(row["data"]))
            continue
        found: _Read = pickle.loads(row["data"])  # noqa: S301 - written by our own tasks
        for table, parts in found.bounds.items():
            bounds.setdefault(table, []).extend(parts)
    boundaries = {
        table: _order(spec, table).boundaries(pa.concat_tables(keys), buckets) for table, keys in samples.items()
    }
    pieces = read.where(f"kind != {_SAMPLE}")
    if boundaries:
        pieces = pieces.mapInArrow(partial(_divide, spec, boundaries), _COLUMNS)
    return _write(pieces, spec, buckets, session, {table: all_bounds(parts) for table, parts in bounds.items()})


def _write(
    pieces: DataFrame, spec: IngestSpec, buckets: int, session: SparkSession, bounds: Mapping[int, Bounds | None]
) -> list[Any]:
    """What the tasks that write make of pieces. Of tables with changes `bounds` says what keys lie between."""
    existing = {number: each for number, each in _existing(spec).items() if number in bounds}
    for number, each in existing.items():
        schema, table = _schema(spec, number), spec.tables[number].name
        rows = existing_rows(session, spec.catalog, table, each, schema, spec.topics, bounds[number])
        pieces = pieces.union(rows.mapInArrow(partial(_stand, spec, number, each, buckets), _COLUMNS))
    placed = pieces.repartitionById(buckets, "bucket")
    if existing:
        # By their kind: a table's rows come when all changes of the bucket are there to be held against them.
        placed = placed.sortWithinPartitions("kind")
    return placed.mapInArrow(partial(_write_bucket, spec), _COLUMNS).collect()


def _existing(spec: IngestSpec) -> dict[int, ExistingRows]:
    """By number of the table the rows that its changes are held against."""
    return {number: table.existing for number, table in enumerate(spec.tables) if table.existing}


def _results(spec: IngestSpec, tasks: int, rows: Sequence[Any]) -> list[TaskResult]:
    for row in sorted(rows, key=lambda row: row["task"]):
        if row["kind"] == _FAILED:
            raise _error(row["data"])
    found = [(row["kind"], row["task"], pickle.loads(row["data"])) for row in rows]  # noqa: S301 - written by our own tasks
    read: dict[int, _Read] = {task: given for kind, task, given in found if kind == _RESULT}
    written: list[_Written] = [given for kind, _task, given in found if kind == _WRITTEN]
    sent = Counter({(task, table): rows for task, each in read.items() for table, rows in each.sent.items()})
    taken: Counter[tuple[int, int]] = sum((Counter(each.taken) for each in written), Counter())
    if len(read) != tasks or sent != taken:
        raise RetriableError(
            f"{len(read)} of {tasks} tasks sent {sent.total():,} rows through Spark's shuffle, and {taken.total():,} "
            "came, or not those of each task; nothing was published",
            hint="run again; an executor may be lost whose topic was compacted before it was read again",
            code=Code.SPARK_LOST,
        )
    nothing = dict.fromkeys((table.name for table in spec.tables), tuple[WrittenFile, ...]())
    return [
        *(read[task].result for task in sorted(read)),
        *(TaskResult({**nothing, **each.files}, ()) for each in written),
    ]


def _read(
    spec: IngestSpec, tasks: Sequence[Sequence[OffsetRange]], buckets: int, batches: Batches
) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        with Outbox(buckets) as outbox:
            try:
                result = run_task(spec, tasks[number], number, outbox)
            except CalveError as error:
                yield _row(_FAILED, number, data=pickle.dumps(error))
                continue
            read = _Read(result, dict(outbox.sent), outbox.bounds)
            yield _row(_RESULT, number, number % buckets, data=pickle.dumps(read))
            for table, sample in outbox.samples():
                yield _row(_SAMPLE, number, table=table, data=sample)
            for piece in outbox.pieces():
                yield _piece(number, piece)


def _divide(spec: IngestSpec, boundaries: Boundaries, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Pieces of tables that are spread in ranges, cut by them; all else as it is."""
    orders = {number: _order(spec, number) for number in boundaries}
    schemas = {number: arrow_schema(order.schema) for number, order in orders.items()}
    for row in _rows(batches):
        table = row["table"]
        if row["kind"] != _PIECE or table not in boundaries:
            yield pa.RecordBatch.from_pylist([row], schema=_ARROW)
            continue
        whole = pa.Table.from_batches([rows_of(row["data"], schemas[table])])
        for bucket, part in orders[table].divide(whole, boundaries[table]):
            for piece in pieces(bucket, table, part):
                yield _piece(row["task"], piece)


def _stand(
    spec: IngestSpec, number: int, existing: ExistingRows, buckets: int, batches: Batches
) -> Iterator[pa.RecordBatch]:
    schema = _schema(spec, number)
    for piece in existing_pieces(batches, existing, schema, spec.topics, number, buckets):
        yield _row(_STANDING, -1, piece.bucket, number, piece.rows, piece.data)


def _write_bucket(spec: IngestSpec, batches: Batches) -> Iterator[pa.RecordBatch]:
    outputs: dict[int, Output] = {}
    taken: Counter[tuple[int, int]] = Counter()
    schemas: dict[int, pa.Schema] = {}
    held = {n: existing_rows_schema(each, _schema(spec, n)) for n, each in _existing(spec).items()}
    budget = Budget()
    try:
        for row in _rows(batches):
            number = row["table"]
            if row["kind"] == _STANDING:
                if number in outputs:
                    outputs[number].hold_against(rows_of(row["data"], held[number]))
                continue
            if row["kind"] != _PIECE:
                yield pa.RecordBatch.from_pylist([row], schema=_ARROW)
                continue
            if number not in outputs:
                outputs[number] = Output(spec.tables[number], spec, f"calve-{spec.batch_id}-shuffled", budget)
                schemas[number] = outputs[number].row_schema
            outputs[number].write(rows_of(row["data"], schemas[number]))
            taken[row["task"], number] += row["rows"]
        files = {output.name: output.close() for output in outputs.values()}
    except BaseException as error:
        for output in outputs.values():
            output.abort()
        if not isinstance(error, CalveError):
            raise
        yield _row(_FAILED, -1, data=pickle.dumps(error))
        return
    yield _row(_WRITTEN, -1, data=pickle.dumps(_Written(files, dict(taken))))


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for start in range(batch.num_rows):
            yield batch.slice(start, 1).to_pylist()[0]


def _piece(task: int, piece: Piece) -> pa.RecordBatch:
    return _row(_PIECE, task, piece.bucket, piece.table, piece.rows, piece.data)


def _row(kind: int, task: int, bucket: int = 0, table: int = 0, rows: int = 0, data: bytes = b"") -> pa.RecordBatch:
    columns = [[kind], [task], [bucket], [table], [rows], [data]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def _schema(spec: IngestSpec, table: int) -> Schema:
    return spec.tables[table].target.schema


def _order(spec: IngestSpec, table: int) -> Order:
    return Order.of_files(iceberg_target(spec.tables[table].target).metadata)


def _error(pickled: bytes) -> CalveError:
    return cast(CalveError, pickle.loads(pickled))  # noqa: S301 - written by our own task
