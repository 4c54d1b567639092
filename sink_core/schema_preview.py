"""Which tables the next batch would change, by a look at a sample of the records that wait. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sink_core.batch import BatchPlan
from sink_core.changes.kafka_key import key_columns, optional_key
from sink_core.decode.names import names_of
from sink_core.formats import Formats
from sink_core.session import Session
from sink_core.tables.create import load_if_there
from sink_core.tables.evolution import evolved, merged
from sink_core.tables.kafka_column import has_kafka_column, without_kafka_column


@dataclass(frozen=True, slots=True)
class SchemaPreview:
    """`changes` in words by table; those of records beyond the `sampled` ones are not among them."""

    sampled: int = 0
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


def schema_preview(session: Session, plan: BatchPlan) -> SchemaPreview:
    """What tables would be given. Reads nothing if none may be given anything. Raises Unreachable, ConfigError."""
    pipeline = session.pipeline
    tables = [settings for settings in pipeline.tables if settings.evolve]
    if not tables:
        return SchemaPreview()
    sampled, formats = session.sample_waiting(plan.ranges), Formats(pipeline.readings)
    changes: dict[str, tuple[str, ...]] = {}
    for settings in tables:
        table = load_if_there(session.catalog, settings.name)
        if table is None:
            continue
        schema = table.schema()
        read = without_kafka_column(schema) if has_kafka_column(schema, table=settings.name) else schema
        if settings.kafka_key:
            read = optional_key(read, [field.name for field in key_columns(settings.kafka_key).fields])
        names = names_of(read, table.metadata.name_mapping(), any_case=settings.case_insensitive)
        asked = [
            value_format.decoder(read, settings.evolve, names).decode([v for topic in topics for v in sampled[topic]])
            for value_format, topics in formats.by_topics(filter(settings.rule.takes_topic, sampled))
        ]
        wanted = [decoded.wanted for decoded in asked if decoded.wanted is not None]
        found = evolved(schema, merged(wanted), settings.evolve) if wanted else None
        if found is not None:
            changes[settings.name] = found.changes
    return SchemaPreview(sum(map(len, sampled.values())), changes)
