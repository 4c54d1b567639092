"""The columns of a new table for records of a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from calve.sink_core.config.problems import nearest
from calve.sink_core.error_codes.records import NO_RECORD
from calve.sink_core.error_codes.tables import BAD_TERM
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.column_names import Taken


class Columns(Schema):
    """A schema for records; `left_out` are the dotted names of fields that no reader could read as columns."""

    left_out: tuple[str, ...] = Field(default=(), exclude=True, repr=False)


def of_fields(name: str, fields: Sequence[NestedField]) -> Columns:
    """The columns for the schema called `name`, or what else it is. Raises ConfigError if it gives none."""
    columns, refused = Taken().readable(fields)
    if not columns:
        why = "".join(f"; {field!r}: {why}" for field, why in refused.items())
        raise ConfigError(
            f"{name} has no field a column could hold{why}",
            hint="name the columns under auto_create.columns",
            code=NO_RECORD,
        )
    return Columns(*columns, left_out=tuple(refused))


def changed_fields(
    struct: StructType, change: Callable[[str, NestedField], Mapping[str, Any]], within: str = ""
) -> StructType:
    """`struct` with what `change` says of each field, by its dotted path; not of those within lists and maps."""
    fields: list[NestedField] = []
    for field in struct.fields:
        path, kind = f"{within}{field.name}", field.field_type
        kind = changed_fields(kind, change, f"{path}.") if isinstance(kind, StructType) else kind
        fields.append(field.model_copy(update={"field_type": kind, **change(path, field)}))
    return StructType(*fields)


def with_comments(schema: Schema, comments: Mapping[str, str], *, table: str) -> Schema:
    """`schema` with `comments` by the dotted names of its columns. Raises ConfigError for a column that isn't there."""
    if not comments:
        return schema
    named: list[str] = []

    def comment(path: str, field: NestedField) -> Mapping[str, Any]:
        named.append(path)
        return {"doc": comments.get(path, field.doc)}

    fields = changed_fields(schema.as_struct(), comment).fields
    for name in comments:
        if name not in named:
            raise ConfigError(
                f"table {table}: comments {name!r}: unknown column; {nearest(name, named)}",
                hint="correct the column",
                code=BAD_TERM,
            )
    return Schema(*fields, identifier_field_ids=schema.identifier_field_ids)
