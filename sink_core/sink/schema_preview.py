"""Which tables the next batch would change, and what it would drop, by a sample of the records that wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import index_by_name

from calve.sink_core.counts import Dropped
from calve.sink_core.records.columns.evolution import evolved, merged
from calve.sink_core.records.columns.names import names_of
from calve.sink_core.records.decode.others import sum_dropped
from calve.sink_core.records.formats import Formats
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.row_changes import columns_read, events_of


@dataclass(frozen=True, slots=True)
class SchemaPreview:
    """`changes` in words by table, and how many values of the sample have no column (`dropped`), by table and field;
    those of records beyond the `sampled` ones are not among them. `created` are tables that are not there yet.
    """

    sampled: int = 0
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dropped: Dropped = field(default_factory=dict[str, Mapping[str, int]])
    created: tuple[str, ...] = ()


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
