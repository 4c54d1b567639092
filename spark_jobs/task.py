"""One Spark task: its offset ranges become data files of every table the batch feeds. No rows leave the task."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from sink_core.batch import PartitionCounts
from sink_core.config.effective import CatalogSettings, ValueSettings
from sink_core.config.pipeline import EvolveStep
from sink_core.decode.decoded import FIT, BadValue, Decoded
from sink_core.decode.names import names_of
from sink_core.errors import BadRecord
from sink_core.formats import Format, format_of
from sink_core.offsets import OffsetRange, TopicPartition
from sink_core.tables.catalog import unreachable_as_ours
from sink_core.tables.evolution import merged
from sink_core.tables.files import WrittenFile
from sink_core.tables.internal import DeadLetter, Headers, dead_letter_rows
from sink_core.tables.io import open_io
from sink_core.tables.kafka_column import KAFKA_COLUMN, has_kafka_column, kafka_array, without_kafka_column
from sink_core.tables.writer import BUFFER_BYTES, TableWriter
from spark_jobs.messages import Int64s, Messages, only
from spark_jobs.reader import RangeReader

_COLLECT_AFTER = 500_000
# The client returns a list and leaves an exception set. A call written as `record.headers()` is, once it is hot,
# specialised to one that does not look for that: the exception then surfaces anywhere, and the list crashes its reader.
_ask_headers = methodcaller("headers")
_UNNAMEABLE = "; headers left out: the name of one is not UTF-8"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as it was when the batch was planned. `metadata` is its metadata file's JSON without history. `evolve`
    says what a task may want of its schema, `any_case` that fields match whatever the case of their names."""

    name: str
    metadata: str
    target_file_size: int
    evolve: tuple[EvolveStep, ...] = ()
    any_case: bool = False


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

    `first_bad` is the first record that went to the dead letters, by topic, partition and offset. `wanted` has, by
    table, the fields that records need and the table lacks (`tables/evolution`); with it there are no files, and the
    counts say nothing: all is to be written again once the tables have them.
    """

    files: Mapping[str, tuple[WrittenFile, ...]]
    counts: tuple[PartitionCounts, ...]
    first_bad: FirstBad | None = None
    wanted: Mapping[str, Schema] = field(default_factory=dict[str, Schema])


def run_task(spec: IngestSpec, slices: Sequence[OffsetRange], task: int) -> TaskResult:
    """Read `slices` and write their records to all tables.

    Raises BadRecord if the pipeline stops on bad records, TableUnusable, and what `RangeReader`, decoders and the
    table's storage raise. Files written until then are nobody's: orphan cleanup removes them.
    """
    with _rare_collections(), RangeReader(spec.kafka, slices, group=spec.group) as reader:
        work = _Work(spec, reader.slices, reader.counts, f"calve-{spec.batch_id}-{task}")
        try:
            for messages in reader:
                work.store(messages)
            if work.wanted:
                return TaskResult({}, tuple(reader.counts), wanted=work.wanted)
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

    def __init__(self, table: TableSpec, spec: IngestSpec, file_prefix: str, buffer_bytes: int) -> None:
        self.name = table.name
        self.metadata: TableMetadata = TableMetadataUtil.parse_raw(table.metadata)
        self._writer = TableWriter(
            open_io(spec.catalog, table.name, self.metadata.location),
            self.metadata,
            file_prefix,
            target_file_size=table.target_file_size,
            buffer_bytes=buffer_bytes,
        )

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
        self, table: TableSpec, spec: IngestSpec, file_prefix: str, buffer_bytes: int, value_format: Format
    ) -> None:
        super().__init__(table, spec, file_prefix, buffer_bytes)
        schema = self.metadata.schema()
        self._kafka = has_kafka_column(schema, table=table.name)
        read = without_kafka_column(schema) if self._kafka else schema
        names = names_of(read, self.metadata.name_mapping(), any_case=table.any_case)
        self._decoder = value_format.decoder(read, table.evolve, names)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        return self._decoder.decode(values)

    def write_decoded(self, decoded: Decoded, keep: Bools, origin: pa.Array) -> None:
        """The rows of `decoded` that `keep` (one flag per value) holds; `origin` is their `_kafka` column."""
        rows = decoded.columns
        good = keep if decoded.good is None else keep[decoded.good]
        columns = dict(
            zip(rows.schema.names, (rows if good.all() else rows.filter(pa.array(good))).columns, strict=True)
        )
        if self._kafka:
            columns[KAFKA_COLUMN] = origin
        self.write(pa.RecordBatch.from_pydict(columns))


def bad_values(feeds: Sequence[Feed], decoded: Sequence[Decoded]) -> dict[int, BadValue]:
    """By index, the first table's verdict on each bad value; it names the table if there are several."""
    bad: dict[int, BadValue] = {}
    for feed, rows in zip(feeds, decoded, strict=True):
        for value in rows.bad:
            by_table = len(feeds) > 1 and value.stage == FIT
            verdict = replace(value, message=f"{feed.name}: {value.message}") if by_table else value
            bad.setdefault(value.index, verdict)
    return bad


def gather(wanted: dict[str, Schema], feeds: Sequence[Feed], decoded: Sequence[Decoded]) -> bool:
    """Add what the decoded values want to `wanted`. Whether that is anything by now: then a task writes nothing any
    more, and only reads on for what else is wanted."""
    for feed, rows in zip(feeds, decoded, strict=True):
        if rows.wanted is not None:
            known = [wanted[feed.name]] if feed.name in wanted else []
            wanted[feed.name] = merged([*known, rows.wanted])
    return bool(wanted)


class _Work:
    """What a task does with each batch of messages."""

    def __init__(
        self, spec: IngestSpec, slices: Sequence[OffsetRange], counts: Sequence[PartitionCounts], file_prefix: str
    ) -> None:
        self._spec, self._slices, self._counts = spec, slices, counts
        buffer_bytes = BUFFER_BYTES // len(spec.tables)
        value_format = format_of(spec.value)
        self._feeds = [Feed(table, spec, file_prefix, buffer_bytes, value_format) for table in spec.tables]
        self._dead_letters = Output(spec.dead_letters, spec, file_prefix, buffer_bytes)
        self.outputs = (*self._feeds, self._dead_letters)
        self.first_bad: FirstBad | None = None
        self.wanted: dict[str, Schema] = {}
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
        decoded = [feed.decode(values) for feed in self._feeds]
        if gather(self.wanted, self._feeds, decoded):
            for output in self.outputs:
                output.abort()
            return
        bad = bad_values(self._feeds, decoded)
        keep = np.ones(len(messages), np.bool_)
        keep[list(bad)] = False
        self._bury(messages, bad)
        good = only(messages, keep)
        origin = kafka_array(self._topics, good.slices, self._partitions[good.slices], good.offsets, good.timestamps_ms)
        for feed, rows in zip(self._feeds, decoded, strict=True):
            feed.write_decoded(rows, keep, origin)
        for i, number in _by_slice(good.slices):
            written = self._counts[i].written
            written.update({name: rows + number for name, rows in written.items()})

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
