"""Names that every reader of Iceberg can read as a table's columns. Pure.

Spark and Trino tell names apart by their letters whatever their case, and have columns of their own in each table; a
table's fields are looked up by dotted names, where `{"a.b": 1}` and `{"a": {"b": 1}}` are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from re import Pattern
from unicodedata import category

from pyiceberg.schema import Schema, index_by_name, sanitize_column_names
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from calve.sink_core.records.columns.type_text import type_text

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


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """What a format of tables asks of columns beside what all readers do: that names match `names`, and don't begin, in
    whatever case, with what is `reserved`; and that types are of `types`, all if there are none.
    """

    names: Pattern[str] | None = None
    reserved: str = ""
    types: tuple[type[IcebergType], ...] = ()

    def why_not(self, name: str) -> str | None:
        """Why a field of this name, at whatever depth, may be no column."""
        if self.reserved and name.casefold().startswith(self.reserved):
            return f"names that begin with {self.reserved} are the table format's own"
        if self.names and not self.names.fullmatch(name):
            return "the table format has letters, digits and _ for names, and none that begins with a digit"
        return None

    def has_type(self, kind: IcebergType) -> bool:
        """Whether there are columns of the type, whatever those within it are."""
        if isinstance(kind, MapType) and not isinstance(kind.key_type, StringType):
            return not self.types
        return not self.types or isinstance(kind, self.types)


ANY_COLUMN = ColumnRule()

_MOST_BYTES = 255
"""Of a name, as file systems and catalogs have it."""


def readable_schema(fields: Sequence[NestedField], rule: ColumnRule = ANY_COLUMN) -> Schema:
    """The schema of those of the fields that may be columns; pyiceberg makes none of all where two are one."""
    return Schema(*Taken(rule=rule).readable(fields)[0])


class Taken:
    """The dotted names that fields of a table have. What may be a column, by `rule` too, takes its names."""

    def __init__(self, names: Iterable[str] = (), rule: ColumnRule = ANY_COLUMN) -> None:
        self._names, self._written, self._rule = set[str](), set[str](), rule
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
        if why := self._rule.why_not(name):
            return why
        if full.casefold() in self._names:
            return "another field has this name, but for upper and lower case or dots"
        if any(category(character)[0] == "C" for character in name):
            return "its name has characters that can't be seen, such as control characters"
        if len(name.encode()) > _MOST_BYTES:
            return f"its name has more than {_MOST_BYTES} bytes"
        if in_files(full) in self._written:
            return f"another field is written to files as {in_files(full)} too"
        return None

    def _take(self, full: str) -> None:
        self._names.add(full.casefold())
        self._written.add(in_files(full))

    def _within(self, kind: IcebergType, path: str) -> tuple[IcebergType | None, dict[str, str]]:
        """The type without what may not be, None if nothing is left of it."""
        if not self._rule.has_type(kind):
            return None, {path: f"the table format has no column of {type_text(kind)}"}
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
