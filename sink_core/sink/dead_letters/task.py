"""Dead letters tried again by tasks: those that fit now become rows of the tables. No rows pass through the driver.

What is tried is what the dead letter holds, all of the record, and not what Kafka has under its offset: the record may
be gone there, and the topic may be another one by now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.iceberg.files.kafka_rows import Runs
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.replace.head_files import HeadFile
from calve.sink_core.iceberg.replace.tasks import rows_of_runs
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.packed import Int64s
from calve.sink_core.records.columns.kafka_column import kafka_array, kafka_with_more
from calve.sink_core.records.decode.decoded import TRANSFORM, BadValue
from calve.sink_core.sink.loop.engine import Engine
from calve.sink_core.sink.write.deadly import Trial, trial_of
from calve.sink_core.sink.write.feeds import Feeds
from calve.sink_core.sink.write.outputs import Output
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.internal import DeadLetter, dead_letter_rows
from calve.sink_core.tasks import Job

Places = dict[TopicPartition, list[int]]
Set = tuple[str, ...]
"""The names of the tables that take a record."""


@dataclass(slots=True)
class DeadLetterResult:
    """Files by table, and the offsets of what was moved, of what stays with another error, and of what stays. With
    anything `wanted` these say nothing, as in `TaskResult`.

    `sets` counts what was moved by the tables that took it.
    """

    files: Mapping[str, tuple[WrittenFile, ...]] = field(default_factory=dict[str, tuple[WrittenFile, ...]])
    moved: Places = field(default_factory=dict[TopicPartition, list[int]])
    changed: Places = field(default_factory=dict[TopicPartition, list[int]])
    same: Places = field(default_factory=dict[TopicPartition, list[int]])
    sets: Counter[Set] = field(default_factory=Counter[Set])
    wanted: Mapping[str, Schema] = field(default_factory=dict[str, Schema])


def try_letters(
    spec: IngestSpec, files: Sequence[HeadFile], runs: Runs, engine: Engine, *, only: Set | None = None
) -> list[DeadLetterResult]:
    """Decode the dead letters in `files` that lie in `runs` for the tables of `spec` that take them, and write what
    fits all of these. With `only`, what other tables take is left untried.

    Raises what reading and storage raise; files written until then are orphans.
    """
    records = sum(file.rows for file in files)
    number = min(len(files), engine.parallelism(records))
    groups = [files[i::number] for i in range(number)]
    job = Job(spec.group, spec.batch_id, f"{spec.group}: {records:,} dead letters tried again, job {spec.batch_id}")
    return engine.run(partial(_run, spec, groups, runs, only), number, records=records, job=job)


def _run(
    spec: IngestSpec, groups: Sequence[Sequence[HeadFile]], runs: Runs, only: Set | None, number: int
) -> DeadLetterResult:
    topics = sorted({at.topic for at in runs})
    with trial_of(spec, topics) as trial:
        work = _Work(spec, f"calve-{spec.batch_id}-{number}", topics, only, trial)
        try:
            for rows in rows_of_runs(spec.dead_letters.target, groups[number], runs):
                work.store(rows)
            if wanted := work.wanted():
                return DeadLetterResult(wanted=wanted)
            work.close()
        except BaseException:
            work.abort()
            raise
    return work.result


class _Work:
    """What a task does with each batch of dead letters."""

    def __init__(
        self, spec: IngestSpec, file_prefix: str, topics: Sequence[str], only: Set | None, trial: Trial | None
    ) -> None:
        budget = Budget()
        self._topics, self._only = {topic: number for number, topic in enumerate(topics)}, only
        self._feeds = Feeds(spec, file_prefix, budget, topics, trial=trial)
        self.letters = Output(spec.dead_letters, spec, file_prefix, budget)
        self.result = DeadLetterResult()

    def wanted(self) -> dict[str, Schema]:
        return self._feeds.wanted()

    def close(self) -> None:
        self.result.files = {output.name: output.close() for output in (*self._feeds.feeds, self.letters)}

    def abort(self) -> None:
        for output in (*self._feeds.feeds, self.letters):
            output.abort()

    def store(self, rows: pa.RecordBatch) -> None:
        # Without a value it was changed by hand; it then is no record of any format.
        values: list[bytes] = [value or b"" for value in rows.column("value").to_pylist()]
        slices = np.array([self._topics[topic] for topic in rows.column("topic").to_pylist()], np.int64)
        found = self._feeds.sort(values, slices, rows.column("key").to_pylist, partial(_origins, rows))
        if self._feeds.wants:
            self.abort()
            return
        # What a transform's `where` leaves out now stays a dead letter: no table would hold it.
        left = {
            int(place): BadValue(int(place), TRANSFORM, "transform.where leaves it out") for place in found.filtered
        }
        found = replace(found, bad={**found.bad, **left})
        sets = [tuple(found.takers(place)) for place in range(len(values))]
        untried = {place for place, takers in enumerate(sets) if self._only is not None and takers != self._only}
        places = [TopicPartition(*at) for at in zip(*(rows.column(n).to_pylist() for n in _PLACE), strict=True)]
        offsets = rows.column("offset").to_pylist()
        for place, (at, offset, takers) in enumerate(zip(places, offsets, sets, strict=True)):
            if not takers and self._feeds.feeds and place not in found.bad:
                # By the rules of today it goes to none of the tables that its batch fed, of which some lack it.
                self.result.same.setdefault(at, []).append(offset)
            elif place not in found.bad and place not in untried:
                self.result.moved.setdefault(at, []).append(offset)
                self.result.sets[takers] += 1
        for _ in self._feeds.write(found.without(untried), _origin(rows)):
            pass
        for index, verdict in sorted(found.bad.items()):
            self._write_dead_letters(rows.slice(index, 1).to_pylist()[0], verdict)

    def _write_dead_letters(self, row: dict[str, Any], verdict: BadValue) -> None:
        at = TopicPartition(row["topic"], row["partition"])
        # Of a record whose headers could not be had the error says that as well.
        _, semicolon, remark = row["error"].partition("; headers left out")
        error = f"{verdict.message}{semicolon}{remark}"
        if (row["stage"], row["error"]) == (verdict.stage, error):
            self.result.same.setdefault(at, []).append(row["offset"])
            return
        self.result.changed.setdefault(at, []).append(row["offset"])
        letter = DeadLetter(
            error=error,
            stage=verdict.stage,
            topic=at.topic,
            partition=at.partition,
            offset=row["offset"],
            timestamp_ms=-1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            key=row["key"],
            value=row["value"],
            headers=None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]],
        )
        self.letters.write(dead_letter_rows(row["batch_id"], [letter]))


_PLACE = ("topic", "partition")


def _origins(rows: pa.RecordBatch, places: Int64s, keys: pa.Array) -> pa.Array:
    """What SQL sees of the records beside their values."""
    chosen = rows.take(pa.array(places, pa.int64()))
    headers = [
        None if of is None else [(h["key"], h["value"]) for h in of] for of in chosen.column("headers").to_pylist()
    ]
    return kafka_with_more(_origin(chosen), keys, headers)


def _origin(rows: pa.RecordBatch) -> pa.Array:
    """The column `_kafka` of the records, as their first try would have had it."""
    names = rows.column("topic").dictionary_encode()
    timestamps = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(-1000)
    return kafka_array(
        names.dictionary.to_pylist(),
        names.indices.to_numpy(),
        rows.column("partition").to_numpy(),
        rows.column("offset").to_numpy(),
        timestamps.to_numpy() // 1000,
    )
