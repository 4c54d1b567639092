"""The columns of a new table for records of a schema."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from calve.sink_core.errors import ConfigError
from calve.sink_core.tables.column_names import Taken


class Columns(Schema):
    """A schema for records; `left_out` are the dotted names of fields that no reader could read as columns."""

    left_out: tuple[str, ...] = Field(default=(), exclude=True, repr=False)


def of_fields(name: str, fields: Sequence[NestedField]) -> Columns:
    """The columns for the schema called `name`, or what else it is. Raises ConfigError if it gives none."""
    columns, refused = Taken().readable(fields)
    if not columns:
        why = "".join(f"; {field!r}: {why}" for field, why in refused.items())
        raise ConfigError(
            f"{name} has no field a column could hold{why}", hint="name the columns under auto_create.columns"
        )
    return Columns(*columns, left_out=tuple(refused))
