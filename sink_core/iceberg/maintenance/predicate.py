"""A partition as a condition in Spark's SQL, by Iceberg's own functions for its transforms. Pure."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DateType, DoubleType, FloatType, IcebergType, TimestampType, TimestamptzType, TimeType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FUNCTIONS: dict[type[Transform], str] = {  # pyright: ignore[reportMissingTypeArgument] (of any source and result)
    YearTransform: "years",
    MonthTransform: "months",
    DayTransform: "days",
    HourTransform: "hours",
}


def predicate(spec: PartitionSpec, schema: Schema, values: tuple[object, ...], *, catalog: str) -> str | None:
    """The condition that rows of the partition `values` meet; "" without partition fields.

    None if Spark's SQL can't say it: a time, which Spark doesn't have, or a source column that is dropped.
    """
    parts = [_part(field, schema, value, catalog) for field, value in zip(spec.fields, values, strict=True)]
    known = [part for part in parts if part is not None]
    return " AND ".join(part for part in known if part) if len(known) == len(parts) else None


def quoted(name: str) -> str:
    """A dotted name as an identifier, whatever characters it has."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))


def text(value: str) -> str:
    """A string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _part(field: PartitionField, schema: Schema, value: object, catalog: str) -> str | None:
    if isinstance(field.transform, VoidTransform):
        return ""
    try:
        kind, column = (
            schema.find_field(field.source_id).field_type,
            quoted(schema.find_column_name(field.source_id) or ""),
        )
    except ValueError:
        return None
    if isinstance(kind, TimeType):
        return None
    if value is None:
        return f"{column} IS NULL"
    if isinstance(value, float) and math.isnan(value):
        return f"isnan({column})"
    return _comparison(field.transform, kind, column, value, quoted(catalog))


def _comparison(transform: Transform, kind: IcebergType, column: str, value: object, catalog: str) -> str | None:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
    match transform:
        case IdentityTransform():
            return f"{column} = {_literal(value, kind)}"
        case BucketTransform():
            return f"{catalog}.system.bucket({transform.num_buckets}, {column}) = {value}"
        case TruncateTransform():
            return f"{catalog}.system.truncate({transform.width}, {column}) = {_literal(value, kind)}"
        case YearTransform() | MonthTransform() | HourTransform():
            return f"{catalog}.system.{_FUNCTIONS[type(transform)]}({column}) = {value}"
        case DayTransform():
            return f"{catalog}.system.days({column}) = {_literal(value, DateType())}"
        case _:
            return None


def _literal(value: object, kind: IcebergType) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() if isinstance(kind, DateType):
            return f"date'{(_EPOCH + timedelta(days=value)).date()}'"
        case int() if isinstance(kind, TimestampType):
            return f"timestamp_ntz'{_moment(value)}'"
        case int() if isinstance(kind, TimestamptzType):
            return f"timestamp'{_moment(value)}+00:00'"
        case date() if not isinstance(value, datetime):
            return f"date'{value}'"
        case float() if isinstance(kind, FloatType | DoubleType):
            return f"CAST('{value!r}' AS {'FLOAT' if isinstance(kind, FloatType) else 'DOUBLE'})"
        case Decimal():
            return f"{value}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case UUID() | str():
            return text(str(value))
        case _:
            return str(value)


def _moment(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S.%f")
