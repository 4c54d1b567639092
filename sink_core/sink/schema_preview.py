"""Which tables the next batch would change, and what it would drop, by a sample of the records that wait."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import index_by_name

from calve.sink_core.counts import Dropped
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.records.columns.evolution import evolved, merged
from calve.sink_core.records.columns.names import names_of
from calve.sink_core.records.decode.others import sum_dropped
from calve.sink_core.records.formats import Formats
from calve.sink_core.report import WARNING, Line, Shown, Table, range_cells
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.row_changes import columns_read, events_of
from calve.sink_core.wording import counted, dropped_text


@dataclass(frozen=True, slots=True)
class SchemaPreview:
    """`changes` in words by table, and how many values of the sample have no column (`dropped`), by table and field;
    those of records beyond the `sampled` ones are not among them. `created` are tables that are not there yet.
    """

    sampled: int = 0
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])
    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchPreview:
    """What the next batch would read, None where nothing is pending, and which tables it would change."""

    pipeline: str
    start: str
    bootstrapped: bool
    batch: BatchPlan | None
    schema: SchemaPreview

    @property
    def _ranges(self) -> list[OffsetRange]:
        return [part for part in self.batch.ranges if part.span] if self.batch else []

    def to_json(self) -> dict[str, Any]:
        return {"bootstrapped": self.bootstrapped, "batch": self._document(self.batch) if self.batch else None}

    def _document(self, batch: BatchPlan) -> dict[str, Any]:
        return {
            "predecessor": batch.predecessor,
            "offsets": batch.offsets,
            "estimated_bytes": batch.estimated_bytes,
            "tasks": len(batch.tasks),
            "ranges": [[r.topic, r.partition, r.start, r.end] for r in self._ranges],
            "tables_created": list(self.schema.created),
            "schema_changes": {"sampled_records": self.schema.sampled, "tables": self.schema.changes},
            "dropped_fields": self.schema.dropped,
        }

    def lines(self) -> Iterator[Shown]:
        if not self.bootstrapped:
            yield Line(f"pipeline {self.pipeline} has not run yet: the first run begins at start: {self.start}")
        if self.batch is None:
            yield Line("nothing to read")
            return
        size, tasks = self.batch.estimated_bytes / 2**20, counted(len(self.batch.tasks), "task", "tasks")
        yield Line(f"next batch: {self.batch.offsets:,} offsets, about {size:,.1f} MiB, in {tasks}")
        columns = ["topic", "partition", "start", "end", "offsets"]
        yield Table("ranges", columns, [range_cells(part) for part in self._ranges])
        if self.schema.created:
            yield Line(f"tables to be created: {', '.join(self.schema.created)}")
        sampled = f"{self.schema.sampled:,} records"
        for table, changes in self.schema.changes.items():
            yield Line(f"{table} will be changed: {', '.join(changes)} (by a sample of {sampled} that wait)")
        for table, dropped in self.schema.dropped.items():
            yield Line(f"{table} has no column for {dropped_text(dropped)} in {sampled} sampled", WARNING)


def preview(session: Session) -> BatchPreview:
    """What the next batch would read with as many tasks as this machine has cores, and change by a sample of the
    pending records. Writes nothing.
    """
    pipeline = session.pipeline
    ran = session.read_only() and session.log.state.last_publish is not None
    planner = Planner(session, max_tasks=pipeline.spark.tasks or os.cpu_count() or 1)
    batch = planner.preview() if ran else planner.preview_first()
    schema = schema_preview(session, batch) if batch else SchemaPreview()
    return BatchPreview(pipeline.name, str(pipeline.config.source.start), ran, batch, schema)


def schema_preview(session: Session, plan: BatchPlan) -> SchemaPreview:
    """What tables would be given, and what not; changes nothing. Reads nothing if SQL makes all rows.

    Raises Unreachable, ConfigError.
    """
    pipeline = session.pipeline
    tables = [settings for settings in pipeline.tables if settings.transform is None]
    loaded = {each.name: session.look(each.name, compare=False).table for each in pipeline.tables}
    gone = tuple(name for name, table in loaded.items() if table is None)
    if not tables:
        return SchemaPreview(created=gone)
    sampled, formats = session.sample_waiting(plan.ranges), Formats(pipeline.readings)
    changes: dict[str, tuple[str, ...]] = {}
    dropped: list[Dropped] = []
    for settings in tables:
        table = loaded[settings.name]
        if table is None:
            continue
        schema, row_changes = table.schema, table.row_changes(settings)
        read = columns_read(schema, row_changes, table=settings.name)
        events = events_of(row_changes, read, table=settings.name)
        read, within = (events.schema, events.rows_at) if events else (read, "")
        target = table.target(pipeline.target_file_size(table.name))
        names = names_of(
            read,
            target.names,
            any_case=settings.case_insensitive,
            within=within,
            ignored=settings.ignore_fields,
            rule=target.column_rule,
        )
        asked = [
            value_format.decoder(read, tuple(settings.evolve), names).decode(
                [v for topic in topics for v in sampled[topic]]
            )
            for value_format, topics in formats.by_topics(filter(settings.rule.takes_topic, sampled))
        ]
        wanted = [decoded.wanted for decoded in asked if decoded.wanted is not None]
        wanted = [events.wanted(each) for each in wanted] if events else wanted
        found = evolved(schema, merged(wanted), settings.evolve) if wanted else None
        if found is not None:
            changes[settings.name] = found.changes
        columns = index_by_name(found.schema) if found else {}
        for each in asked:
            left = {n: number for n, number in each.dropped.items() if n.removeprefix(f"{within}.") not in columns}
            dropped += [{settings.name: left}] if left else []
    return SchemaPreview(sum(map(len, sampled.values())), changes, sum_dropped(dropped), gone)
