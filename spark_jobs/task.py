"""One Spark task: its offset ranges become data files of every table the batch feeds. No rows leave the task."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from sink_core.batch import PartitionCounts
from sink_core.config.effective import CatalogSettings, ValueSettings
from sink_core.config.pipeline import Transform
from sink_core.decode.decoded import FIT, BadValue, Decoded
from sink_core.errors import BadRecord
from sink_core.formats import Format, format_of
from sink_core.offsets import OffsetRange, TopicPartition
from sink_core.tables.catalog import unreachable_as_ours
from sink_core.tables.files import WrittenFile
from sink_core.tables.gathered import BUFFER_BYTES
from sink_core.tables.internal import DeadLetter, Headers, dead_letter_rows
from sink_core.tables.io import open_io
from sink_core.tables.kafka_column import (
    KAFKA_COLUMN,
    has_kafka_column,
    kafka_array,
    kafka_with_more,
    without_kafka_column,
)
from sink_core.tables.sort_order import Distribution
from sink_core.tables.writer import TableWriter
from spark_jobs.messages import Int64s, Messages, only
from spark_jobs.pieces import Outbox, PieceWriter
from spark_jobs.reader import RangeReader

if TYPE_CHECKING:
    from sink_core.transform.transform import Origins, Transforming

_COLLECT_AFTER = 500_000
# The client returns a list and leaves an exception set. A call written as `record.headers()` is, once it is hot,
# specialised to one that does not look for that: the exception then surfaces anywhere, and the list crashes its reader.
_ask_headers = methodcaller("headers")
_UNNAMEABLE = "; headers left out: the name of one is not UTF-8"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as it was when the batch was planned. `metadata` is its metadata file's JSON without history.

    Unless its `distribution` is `none` its rows go through Spark's shuffle to the tasks that write them.
    """

    name: str
    metadata: str
    target_file_size: int
    distribution: Distribution = "none"
    transform: Transform | None = None


@dataclass(frozen=True, slots=True)
class IngestSpec:
    """What all tasks of a batch have in common. Connections are unresolved: each task reads its own environment.

    `skip` are offsets of records that are dead letters already: a range job leaves them there.
    """

    batch_id: str
    group: str
    catalog: CatalogSettings
    tables: tuple[TableSpec, ...]
    dead_letters: TableSpec
    stop_on_bad_record: bool
    value: ValueSettings
    kafka: Mapping[str, Any] = field(repr=False)
    skip: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict[TopicPartition, tuple[int, ...]])


@dataclass(frozen=True, slots=True, order=True)
class FirstBad:
    """A record that can't be stored, as messages name it."""

    topic: str
    partition: int
    offset: int
    stage: str
    error: str

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}: {self.stage}: {self.error}"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Files by table, tables without any included, and what became of each slice's offsets.

    `first_bad` is the first record that went to the dead letters, by topic, partition and offset.
    """

    files: Mapping[str, tuple[WrittenFile, ...]]
    counts: tuple[PartitionCounts, ...]
    first_bad: FirstBad | None = None


def run_task(spec: IngestSpec, slices: Sequence[OffsetRange], task: int, outbox: Outbox | None = None) -> TaskResult:
    """Read `slices` and write their records to all tables; those of tables that are shuffled into `outbox`, if given.

    Raises BadRecord if the pipeline stops on bad records, TableUnusable, and what `RangeReader`, decoders and the
    table's storage raise. Files written until then are nobody's: orphan cleanup removes them.
    """
    with _rare_collections(), RangeReader(spec.kafka, slices, group=spec.group) as reader:
        work = _Work(spec, reader.slices, reader.counts, f"calve-{spec.batch_id}-{task}", outbox)
        try:
            for messages in reader:
                work.store(messages)
            files = {output.name: output.close() for output in work.outputs}
        except BaseException:
            for output in work.outputs:
                output.abort()
            raise
    return TaskResult(files, tuple(reader.counts), work.first_bad)


@contextmanager
def _rare_collections() -> Generator[None]:
    """Let Python look for cycles rarely: 10,000 messages come and go with each batch and are in none.

    Collections took a sixth of a task's time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Output:
    """A table being written."""

    def __init__(
        self, table: TableSpec, spec: IngestSpec, file_prefix: str, buffer_bytes: int, outbox: Outbox | None = None
    ) -> None:
        self.name = table.name
        self.metadata: TableMetadata = TableMetadataUtil.parse_raw(table.metadata)
        self._writer = self._shuffled(table, spec, buffer_bytes, outbox) or TableWriter(
            open_io(spec.catalog, table.name, self.metadata.location),
            self.metadata,
            file_prefix,
            target_file_size=table.target_file_size,
            buffer_bytes=buffer_bytes,
        )

    def _shuffled(
        self, table: TableSpec, spec: IngestSpec, buffer_bytes: int, outbox: Outbox | None
    ) -> PieceWriter | None:
        if outbox is None or table.distribution == "none":
            return None
        number = spec.tables.index(table)
        return PieceWriter(self.metadata, table.distribution, outbox, number, buffer_bytes=buffer_bytes)

    @property
    def schema(self) -> pa.Schema:
        """Of batches in memory."""
        return self._writer.schema

    def write(self, rows: pa.RecordBatch) -> None:
        with unreachable_as_ours(f"writing files of {self.name}"):
            self._writer.write(rows)

    def close(self) -> tuple[WrittenFile, ...]:
        with unreachable_as_ours(f"writing files of {self.name}"):
            return tuple(self._writer.close())

    def abort(self) -> None:
        with suppress(Exception):
            self._writer.abort()


class Feed(Output):
    """A data table: records are decoded by its own schema."""

    def __init__(
        self,
        table: TableSpec,
        spec: IngestSpec,
        file_prefix: str,
        buffer_bytes: int,
        value_format: Format,
        outbox: Outbox | None = None,
    ) -> None:
        super().__init__(table, spec, file_prefix, buffer_bytes, outbox)
        schema = self.metadata.schema()
        self._kafka = has_kafka_column(schema, table=table.name)
        columns = without_kafka_column(schema) if self._kafka else schema
        self._transforming: Transforming | None = None
        if table.transform is not None:
            # Imported where it is needed: a task without transforms starts without DuckDB.
            from sink_core.transform.transform import Transforming, input_schema

            self._transforming = Transforming(table.transform, columns, table=table.name)
            columns = input_schema(table.transform, columns)
        self._decoder = value_format.decoder(columns)

    def decode(self, values: Sequence[bytes], origins: Origins) -> Decoded:
        """`origins` gives what SQL sees of the records at some places."""
        decoded = self._decoder.decode(values)
        return decoded if self._transforming is None else self._transforming.apply(decoded, origins)

    def write_decoded(self, decoded: Decoded, keep: Bools, origin: pa.Array) -> Bools:
        """The rows of `decoded` that `keep` (one flag per value) holds; `origin` is the `_kafka` column of all these
        values. Gives back a flag for each value: whether it has a row.
        """
        rows = decoded.columns
        good = keep if decoded.good is None else keep[decoded.good]
        written = keep
        if int(good.sum()) < len(origin):
            written = np.zeros(len(keep), np.bool_)
            written[np.asarray(decoded.good)[good]] = True
            origin = origin.filter(pa.array(written[keep]))
        columns = dict(
            zip(rows.schema.names, (rows if good.all() else rows.filter(pa.array(good))).columns, strict=True)
        )
        if self._kafka:
            columns[KAFKA_COLUMN] = origin
        self.write(pa.RecordBatch.from_pydict(columns))
        return written


def bad_values(feeds: Sequence[Feed], decoded: Sequence[Decoded]) -> dict[int, BadValue]:
    """By index, the first table's verdict on each bad value; it names the table if there are several."""
    bad: dict[int, BadValue] = {}
    for feed, rows in zip(feeds, decoded, strict=True):
        for value in rows.bad:
            by_table = len(feeds) > 1 and value.stage == FIT
            verdict = replace(value, message=f"{feed.name}: {value.message}") if by_table else value
            bad.setdefault(value.index, verdict)
    return bad


class _Work:
    """What a task does with each batch of messages."""

    def __init__(
        self,
        spec: IngestSpec,
        slices: Sequence[OffsetRange],
        counts: Sequence[PartitionCounts],
        file_prefix: str,
        outbox: Outbox | None,
    ) -> None:
        self._spec, self._slices, self._counts = spec, slices, counts
        buffer_bytes = BUFFER_BYTES // len(spec.tables)
        value_format = format_of(spec.value)
        self._feeds = [Feed(table, spec, file_prefix, buffer_bytes, value_format, outbox) for table in spec.tables]
        self._dead_letters = Output(spec.dead_letters, spec, file_prefix, buffer_bytes)
        self.outputs = (*self._feeds, self._dead_letters)
        self.first_bad: FirstBad | None = None
        self._topics = [part.topic for part in slices]
        self._partitions = np.array([part.partition for part in slices], np.int32)
        for part in counts:
            part.written = {table.name: 0 for table in spec.tables}

    def store(self, messages: Messages) -> None:
        """All records to all tables; a record that is bad for one of them goes to the dead letters and to no table."""
        if not all(messages.values):
            is_record = np.array([value is not None for value in messages.values], np.bool_)
            for i, number in _by_slice(messages.slices[~is_record]):
                self._counts[i].tombstones += number
            messages = only(messages, is_record)
        if self._spec.skip:
            messages = self._without_dead_letters(messages)
        if len(messages):
            self._store_records(messages)

    def _without_dead_letters(self, messages: Messages) -> Messages:
        keep = np.ones(len(messages), np.bool_)
        for i, places in messages.by_slice():
            dead = self._spec.skip.get(self._slices[i].at)
            if dead:
                keep[places] = ~np.isin(messages.offsets[places], dead)
                self._counts[i].dead_lettered += int((~keep[places]).sum())
        return only(messages, keep)

    def _store_records(self, messages: Messages) -> None:
        values = cast(list[bytes], messages.values)
        origins = partial(self._origins, messages)
        decoded = [feed.decode(values, origins) for feed in self._feeds]
        bad = bad_values(self._feeds, decoded)
        keep = np.ones(len(messages), np.bool_)
        keep[list(bad)] = False
        self._bury(messages, bad)
        good = only(messages, keep)
        origin = kafka_array(self._topics, good.slices, self._partitions[good.slices], good.offsets, good.timestamps_ms)
        for feed, rows in zip(self._feeds, decoded, strict=True):
            has_row = feed.write_decoded(rows, keep, origin)
            for i, number in _by_slice(messages.slices[has_row]):
                self._counts[i].written[feed.name] += number
            if has_row is not keep:
                # `where` is for pipelines with one table.
                for i, number in _by_slice(messages.slices[keep & ~has_row]):
                    self._counts[i].filtered += number

    def _origins(self, messages: Messages, places: Sequence[int]) -> pa.Array:
        """What SQL sees of records beside their values."""
        chosen = np.asarray(places, np.int64)
        slices = messages.slices[chosen]
        return kafka_with_more(
            kafka_array(
                self._topics, slices, self._partitions[slices], messages.offsets[chosen], messages.timestamps_ms[chosen]
            ),
            [messages.records[place].key() for place in places],
            [_headers(messages.records[place])[0] for place in places],
        )

    def _bury(self, messages: Messages, bad: Mapping[int, BadValue]) -> None:
        if not bad:
            return
        letters = [self._letter(messages, value) for _, value in sorted(bad.items())]
        first = min(FirstBad(x.topic, x.partition, x.offset, x.stage, x.error) for x in letters)
        if self._spec.stop_on_bad_record:
            raise BadRecord(
                f"{first}; nothing was published",
                hint="correct the producer or the table; set on_bad_record: dead_letter to set such records aside",
            )
        self.first_bad = first if self.first_bad is None else min(first, self.first_bad)
        self._dead_letters.write(dead_letter_rows(self._spec.batch_id, letters))
        for i, number in _by_slice(messages.slices[list(bad)]):
            self._counts[i].dead_lettered += number

    def _letter(self, messages: Messages, bad: BadValue) -> DeadLetter:
        record, part = messages.records[bad.index], self._slices[messages.slices[bad.index]]
        headers, lacking = _headers(record)
        return DeadLetter(
            error=bad.message + lacking,
            stage=bad.stage,
            topic=part.topic,
            partition=part.partition,
            offset=int(messages.offsets[bad.index]),
            timestamp_ms=int(messages.timestamps_ms[bad.index]),
            key=record.key(),
            value=messages.values[bad.index],
            headers=headers,
        )


def _headers(record: Message) -> tuple[Headers | None, str]:
    """The record's headers; None, and what to add to its error, if Python's client can't give them.

    Asked a second time, the client hands out the broken list it has kept.
    """
    try:
        return cast(Headers | None, _ask_headers(record)), ""
    except SystemError:
        return None, _UNNAMEABLE


def _by_slice(slices: Int64s) -> Iterable[tuple[int, int]]:
    """Each slice and how many of the records it has."""
    found, numbers = np.unique(slices, return_counts=True)
    return zip(found.tolist(), numbers.tolist(), strict=True)
