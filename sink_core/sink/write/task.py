"""One Spark task: its offset ranges become data files of every table the batch feeds. No rows leave the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.counts import Dropped, PartitionCounts
from calve.sink_core.errors import BadRecord
from calve.sink_core.failpoints import reach
from calve.sink_core.garbage import infrequent_gc
from calve.sink_core.kafka.messages import Messages, UnreadableHeaders, only
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.packed import Int64s
from calve.sink_core.records.columns.kafka_column import kafka_array, kafka_with_more
from calve.sink_core.records.decode.decoded import BadValue
from calve.sink_core.sink.write.deadly import Trial, trial_of
from calve.sink_core.sink.write.feeds import DecodedBatch, Feeds
from calve.sink_core.sink.write.outputs import Output
from calve.sink_core.sink.write.spec import IngestSpec, TableSpec
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.format.target import Written
from calve.sink_core.tables.internal import DeadLetter, Headers, dead_letter_rows
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tasks import Size

_UNNAMEABLE = "; headers left out: the name of one is not UTF-8"


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
    table, the fields that records need and the table lacks (`columns/evolution`), all if there is no such table;
    with it there are no files, and the counts say nothing: all is to be written again once the tables have them.
    `dropped` counts, by table, values of fields that it has no column for.
    """

    files: Mapping[str, tuple[Written, ...]]
    counts: tuple[PartitionCounts, ...]
    first_bad: FirstBad | None = None
    wanted: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])

    @property
    def size(self) -> Size:
        return Size(sum(each.records for each in self.counts), sum(each.value_bytes for each in self.counts))


def run_task(spec: IngestSpec, slices: Sequence[OffsetRange], task: int, outbox: Outbox | None = None) -> TaskResult:
    """Read `slices` and write their records to all tables; those of tables that are shuffled into `outbox`, if given.

    Raises BadRecord if the pipeline stops on bad records, TableUnusable, and what `RangeReader`, decoders and the
    table's storage raise. Files written until then are nobody's: orphan cleanup removes them.
    """
    topics = [part.topic for part in slices]
    with (
        infrequent_gc(),
        RangeReader(spec.kafka, slices, group=spec.group) as reader,
        trial_of(spec, topics) as trial,
    ):
        work = _Work(spec, reader.slices, reader.counts, f"calve-{spec.batch_id}-{task}", outbox, trial)
        try:
            for messages in reader:
                work.store(messages)
            if wanted := work.wanted():
                return TaskResult({}, tuple(reader.counts), wanted=wanted)
            work.left_out()
            files = {output.name: output.close() for output in work.outputs}
            reach("task.after-files")
        except BaseException:
            for output in work.outputs:
                output.abort()
            raise
    return TaskResult(files, tuple(reader.counts), work.first_bad, dropped=work.dropped())


class _Work:
    """What a task does with each batch of messages."""

    def __init__(
        self,
        spec: IngestSpec,
        slices: Sequence[OffsetRange],
        counts: Sequence[PartitionCounts],
        file_prefix: str,
        outbox: Outbox | None,
        trial: Trial | None,
    ) -> None:
        self._spec, self._slices, self._counts = spec, slices, counts
        self._topics = [part.topic for part in slices]
        budget = Budget()
        self._feeds = Feeds(spec, file_prefix, budget, self._topics, outbox, trial)
        self._dead_letters = Output(spec.dead_letters, spec, file_prefix, budget)
        self.outputs = (*self._feeds.feeds, self._dead_letters)
        self.first_bad: FirstBad | None = None
        self._given_up = False
        self._partitions = np.array([part.partition for part in slices], np.int32)
        for part in counts:
            part.written = {table.name: 0 for table in spec.tables if table.explicit or _only_by_topic(table, part)}

    def store(self, messages: Messages) -> None:
        """Records to the tables whose rules take them; one that is bad for one of these goes to the dead letters and to
        no table.
        """
        tombstones = messages.tombstones
        if tombstones.any():
            self._store_tombstones(only(messages, tombstones))
            messages = only(messages, ~tombstones)
        if self._spec.skip:
            messages = self._without_dead_letters(messages)
        if len(messages):
            self._store_records(messages)

    def _store_tombstones(self, messages: Messages) -> None:
        """To the tables whose rows they remove; to all others they say nothing."""
        found = self._feeds.decode_tombstones(lambda: messages.keys, messages.slices)
        if self._given_up:
            return
        self._write_dead_letters(messages, found)
        if found.decoded:
            for _ in self._feeds.write(found, self._kafka_column(messages)):
                pass
        counted = np.ones(len(messages), np.bool_)
        counted[list(found.bad)] = False
        for i, number in _by_slice(messages.slices[counted]):
            self._counts[i].tombstones += number

    def _kafka_column(self, messages: Messages) -> pa.Array:
        slices = messages.slices
        return kafka_array(self._topics, slices, self._partitions[slices], messages.offsets, messages.timestamps_ms)

    def _without_dead_letters(self, messages: Messages) -> Messages:
        keep = np.ones(len(messages), np.bool_)
        for i, places in messages.by_slice():
            dead = self._spec.skip.get(self._slices[i].at)
            if dead:
                keep[places] = ~np.isin(messages.offsets[places], dead)
                self._counts[i].dead_lettered += int((~keep[places]).sum())
        return only(messages, keep)

    def _store_records(self, messages: Messages) -> None:
        values, keys = cast(Sequence[bytes], messages.values), lambda: messages.keys
        found = self._feeds.sort(values, messages.slices, keys, partial(self._origins, messages))
        if self._gathers():
            return
        self._write_dead_letters(messages, found)
        for i, number in _by_slice(messages.slices[found.unrouted]):
            self._counts[i].unrouted += number
        for i, number in _by_slice(messages.slices[found.filtered]):
            self._counts[i].filtered += number
        for feed, places in self._feeds.write(found, self._kafka_column(messages)):
            for i, number in _by_slice(messages.slices if places is None else messages.slices[places]):
                written = self._counts[i].written
                written[feed.name] = written.get(feed.name, 0) + number

    def wanted(self) -> dict[str, Schema]:
        return self._feeds.wanted()

    def dropped(self) -> Dropped:
        return {feed.name: dict(feed.dropped) for feed in self._feeds.feeds if feed.dropped}

    def _gathers(self) -> bool:
        """Whether a table must be made or given something first; the task then only reads on for what else is."""
        if self._feeds.wants and not self._given_up:
            self._given_up = True
            for output in self.outputs:
                output.abort()
        return self._given_up

    def left_out(self) -> None:
        """Count for each table with a rule, with SQL that filters, or of change events, what it did not take of the
        records that could be stored and that some table, or none by its rule, took.
        """
        ruled = {t.name for t in self._spec.tables if t.may_leave_out}
        for part in self._counts if ruled else ():
            left = {name: part.storable - rows for name, rows in part.written.items() if name in ruled}
            part.left_out = {name: number for name, number in left.items() if number}

    def _origins(self, messages: Messages, places: Int64s, keys: pa.Array) -> pa.Array:
        """What SQL sees of records beside their values."""
        slices = messages.slices[places]
        return kafka_with_more(
            kafka_array(
                self._topics, slices, self._partitions[slices], messages.offsets[places], messages.timestamps_ms[places]
            ),
            keys,
            [_headers(messages, place)[0] for place in places],
        )

    def _write_dead_letters(self, messages: Messages, found: DecodedBatch) -> None:
        bad = found.bad
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
        for place in bad:
            # A table that a record was for is named even if it got none: a replay of dead letters goes by that.
            written = self._counts[messages.slices[place]].written
            for name in found.takers(place):
                written.setdefault(name, 0)

    def _letter(self, messages: Messages, bad: BadValue) -> DeadLetter:
        part = self._slices[messages.slices[bad.index]]
        headers, lacking = _headers(messages, bad.index)
        return DeadLetter(
            error=bad.message + lacking,
            stage=bad.stage,
            topic=part.topic,
            partition=part.partition,
            offset=int(messages.offsets[bad.index]),
            timestamp_ms=int(messages.timestamps_ms[bad.index]),
            key=messages.keys[bad.index],
            value=messages.values[bad.index],
            headers=headers,
        )


def _headers(messages: Messages, place: int) -> tuple[Headers | None, str]:
    """A record's headers; None, and what to add to its error, if they can't be named."""
    try:
        return messages.headers[place], ""
    except UnreadableHeaders:
        return None, _UNNAMEABLE


def _only_by_topic(table: TableSpec, part: PartitionCounts) -> bool:
    return table.rule.naming is None and table.rule.takes_topic(part.topic)


def _by_slice(slices: Int64s) -> Iterable[tuple[int, int]]:
    """Each slice and how many of the records it has."""
    return ((i, number) for i, number in enumerate(np.bincount(slices).tolist()) if number)
