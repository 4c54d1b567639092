"""The columns of a new table for records of a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType

from calve.sink_core.config.problems import nearest
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


def with_comments(schema: Schema, comments: Mapping[str, str], *, table: str) -> Schema:
    """`schema` with `comments` by the dotted names of its columns. Raises ConfigError for a column that isn't there."""
    named: list[str] = []

    def commented(kind: IcebergType, path: str) -> IcebergType:
        return StructType(*fields(kind, f"{path}.")) if isinstance(kind, StructType) else kind

    def fields(struct: StructType, within: str) -> list[NestedField]:
        paths = [f"{within}{field.name}" for field in struct.fields]
        named.extend(paths)
        return [
            field.model_copy(
                update={"field_type": commented(field.field_type, path), "doc": comments.get(path, field.doc)}
            )
            for path, field in zip(paths, struct.fields, strict=True)
        ]

    if not comments:
        return schema
    made = Schema(*fields(schema.as_struct(), ""), identifier_field_ids=schema.identifier_field_ids)
    for name in comments:
        if name not in named:
            raise ConfigError(
                f"table {table}: comments {name!r}: unknown column; {nearest(name, named)}", hint="correct the column"
            )
    return made
