"""The columns of a new table for records of a schema."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from sink_core.errors import ConfigError


def of_fields(name: str, fields: Sequence[NestedField]) -> Schema:
    """The columns for the schema called `name`. Raises ConfigError if it gives none."""
    if not fields:
        raise ConfigError(f"{name} has no field a column could hold", hint="name the columns under auto_create.columns")
    return Schema(*fields)
