"""Names that every reader of Iceberg can read as a table's columns. Pure.

Spark and Trino tell names apart by their letters whatever their case, and have columns of their own in each table; a
table's fields are looked up by dotted names, where `{"a.b": 1}` and `{"a": {"b": 1}}` are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from pyiceberg.schema import Schema, index_by_name, sanitize_column_names
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StructType

RESERVED = frozenset(
    {
        "_change_ordinal",
        "_change_type",
        "_commit_snapshot_id",
        "_deleted",
        "_file",
        "_last_updated_sequence_number",
        "_partition",
        "_pos",
        "_row_id",
        "_spec_id",
    }
)
"""Iceberg's metadata columns: a table with one of them is refused by its readers."""


def readable_schema(fields: Sequence[NestedField]) -> Schema:
    """The schema of those of the fields that may be columns; pyiceberg makes none of all where two are one."""
    return Schema(*Taken().readable(fields)[0])


class Taken:
    """The dotted names that fields of a table have. What may be a column takes its names."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names, self._written = set[str](), set[str]()
        for name in names:
            self._take(name)

    @classmethod
    def by(cls, schema: Schema) -> Taken:
        return cls(index_by_name(schema) if schema.fields else ())

    def readable(self, fields: Sequence[NestedField], path: str = "") -> tuple[list[NestedField], dict[str, str]]:
        """The fields, at this dotted path, that may be columns, and why others may not, by their dotted names.

        The first one has a name; a struct that nothing is left of is no column either.
        """
        kept, refused = list[NestedField](), dict[str, str]()
        for of in fields:
            name = f"{path}{of.name}"
            if why := self._why_not(of.name, name):
                refused[name] = why
                continue
            self._take(name)
            kind, within = self._within(of.field_type, name)
            refused |= within
            if kind is not None:
                kept.append(of if kind is of.field_type else of.model_copy(update={"field_type": kind}))
        return kept, refused

    def _why_not(self, name: str, full: str) -> str | None:
        if not name:
            return "it has no name"
        if full.casefold() in RESERVED:
            return "Iceberg's readers have a column of this name"
        if full.casefold() in self._names:
            return "another field has this name, but for upper and lower case or dots"
        try:
            name.encode()
        except UnicodeEncodeError:
            return "its name is no UTF-8"
        if in_files(full) in self._written:
            return f"another field is written to files as {in_files(full)} too"
        return None

    def _take(self, full: str) -> None:
        self._names.add(full.casefold())
        self._written.add(in_files(full))

    def _within(self, kind: IcebergType, path: str) -> tuple[IcebergType | None, dict[str, str]]:
        """The type without what may not be, None if nothing is left of it."""
        if isinstance(kind, StructType):
            fields, refused = self.readable(kind.fields, f"{path}.")
            if not refused:
                return kind, refused
            return StructType(*fields) if fields else None, refused
        if isinstance(kind, ListType):
            self._take(f"{path}.element")
            element, refused = self._within(kind.element_type, f"{path}.element")
            if not refused:
                return kind, refused
            made = element and ListType(kind.element_id, element, element_required=kind.element_required)
            return made, refused
        if isinstance(kind, MapType):
            self._take(f"{path}.key")
            self._take(f"{path}.value")
            value, refused = self._within(kind.value_type, f"{path}.value")
            if not refused:
                return kind, refused
            required = kind.value_required
            return value and MapType(kind.key_id, kind.key_type, kind.value_id, value, value_required=required), refused
        return kind, {}


def in_files(name: str) -> str:
    """A dotted name as it stands in files, where letters, digits and `_` are all that there is."""
    return ".".join(map(_in_files, name.split(".")))


@cache
def _in_files(part: str) -> str:
    return sanitize_column_names(Schema(NestedField(1, part, LongType()))).fields[0].name if part else part
