"""The columns of a new table for records of a schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.config.problems import nearest
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.budget import BeyondBudget
from calve.sink_core.records.columns.column_names import ANY_COLUMN, ColumnRule, Taken


class Columns(Schema):
    """A schema for records; `left_out` are the dotted names of fields that no reader could read as columns."""

    left_out: tuple[str, ...] = Field(default=(), exclude=True, repr=False)


class WithinItself(ConfigError):
    """A field is `of` a type that it is within."""

    def __init__(self, message: str, *, hint: str, of: str) -> None:
        super().__init__(message, hint=hint, code=Code.NO_COLUMN_TYPE)
        self.of = of


@dataclass(frozen=True, slots=True)
class Unfit:
    """Fields of a schema that no column could hold. For a new table one is an error; a table that is `there`, with
    fields of these dotted names, gets columns for the others, and `paths` are those that it gets none for.
    """

    there: Collection[str] | None = None
    paths: list[str] = dataclasses.field(default_factory=list[str])

    def leave_out(self, path: str, name: str, error: ConfigError, outer: Sequence[str] = ()) -> None:
        """Note a field of the struct at a path, which is within those of the types `outer`, the schema's own first.
        Raises the error for a new table, to have all of a type without an end left out, unless the table has it, and
        if it is about the whole schema.
        """
        is_part = isinstance(error, WithinItself) and error.of in outer[1:] and not self.has(path.removesuffix("."))
        if self.there is None or is_part or isinstance(error, BeyondBudget):
            raise error
        self.paths.append(f"{path}{name}")

    def has(self, path: str) -> bool:
        """Whether the table has such a field, which somebody has chosen."""
        return self.there is not None and path in self.there


IN_A_NEW_TABLE = Unfit()


def of_fields(
    name: str, fields: Sequence[NestedField], unfit: Unfit = IN_A_NEW_TABLE, rule: ColumnRule = ANY_COLUMN
) -> Columns:
    """The columns for the schema called `name`, or what else it is. Raises ConfigError if it gives a new table none."""
    columns, refused = Taken(rule=rule).readable(fields)
    if not columns and unfit.there is None:
        why = "".join(f"; {field!r}: {why}" for field, why in refused.items())
        raise ConfigError(
            f"{name} has no field a column could hold{why}",
            hint="name the columns under auto_create.columns",
            code=Code.NO_RECORD,
        )
    return Columns(*columns, left_out=(*refused, *unfit.paths))


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
                code=Code.BAD_TERM,
            )
    return Schema(*fields, identifier_field_ids=schema.identifier_field_ids)
