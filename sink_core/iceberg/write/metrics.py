"""Which metrics a manifest has of each column: the table's `write.metadata.metrics` properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    match_metrics_mode,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, IcebergType, StringType, StructType
from pyiceberg.utils.properties import property_as_int

from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN

MOST_INFERRED, MOST_INFERRED_DEFAULT = "write.metadata.metrics.max-inferred-column-defaults", 100
_DEFAULT = TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT
_NONE, _FULL = MetricsMode(MetricModeTypes.NONE), MetricsMode(MetricModeTypes.FULL)


def statistics_plan(metadata: TableMetadata) -> dict[int, StatisticsCollector]:
    """By leaf's field id, as pyiceberg gathers it, and what pyiceberg leaves out and Iceberg's Java writer has:

    - bounds within structs, where the column's own property asks for them, and of `_kafka`'s parts, by which files are
      found;
    - without a default of the table, no metrics of columns beyond `max-inferred-column-defaults`, outer ones first;
      but bounds of what the table is sorted by.

    Raises ValueError for a mode that there isn't.
    """
    schema, properties = metadata.schema(), metadata.properties
    plan = compute_statistics_plan(schema, properties)
    in_structs = set(_in_structs(schema))
    inferred = set(plan if TableProperties.DEFAULT_WRITE_METRICS_MODE in properties else _inferred(plan, metadata))
    sorted_by = in_structs & {field.source_id for field in metadata.sort_order().fields}
    for field_id, column in plan.items():
        own = properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{column.column_name}")
        mode = column.mode
        if own:
            mode = _fitting(match_metrics_mode(own), column.iceberg_type) if field_id in in_structs else mode
        elif column.column_name.startswith(f"{KAFKA_COLUMN}."):
            mode = _NONE if mode == _NONE else _FULL
        else:
            mode = mode if field_id in inferred else _NONE
            if field_id in sorted_by and mode.type in (MetricModeTypes.NONE, MetricModeTypes.COUNTS):
                mode = _fitting(match_metrics_mode(_DEFAULT), column.iceberg_type)
        plan[field_id] = replace(column, mode=mode)
    return plan


def _fitting(mode: MetricsMode, kind: IcebergType) -> MetricsMode:
    """Only text and bytes can be shortened."""
    return _FULL if mode.type is MetricModeTypes.TRUNCATE and not isinstance(kind, StringType | BinaryType) else mode


def _inferred(plan: dict[int, StatisticsCollector], metadata: TableMetadata) -> list[int]:
    most = property_as_int(metadata.properties, MOST_INFERRED, MOST_INFERRED_DEFAULT)
    return sorted(plan, key=lambda field_id: plan[field_id].column_name.count("."))[:most]


def _in_structs(of: Schema | StructType) -> Iterator[int]:
    """The primitive fields that are in no list and no map: the bounds of others say nothing of a row."""
    for field in of.fields:
        if isinstance(field.field_type, StructType):
            yield from _in_structs(field.field_type)
        elif field.field_type.is_primitive:
            yield field.field_id
