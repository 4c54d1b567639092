"""What records of a schema want of a table, whatever is in these records. Pure; `evolution` says what it gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.records.columns.column_names import readable_schema
from calve.sink_core.records.columns.evolution import beyond, evolved, number_of_columns, room
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN
from calve.sink_core.records.columns.names import EXACT, Names, TwoOfOne


class Beyond(Exception):
    """Records of a schema need more columns than their table may be given."""


def schema_wants(
    columns: Sequence[NestedField],
    table: Schema,
    steps: Collection[EvolveStep],
    names: Names = EXACT,
    refused: Collection[str] = (),
) -> Schema | None:
    """What records with these `columns` need of a table, as `evolution.evolved` takes it; None if that is nothing that
    it may be given. A field of the table that they lack may be null; those `refused` are there, and have no column.
    Raises Beyond for more than there is room for: one schema doesn't decide about all of it.
    """
    given = StructType(*(of for of in columns if of.name != KAFKA_COLUMN))
    try:
        wanted = readable_schema(_Lacking(names, refused).struct(given, table.as_struct(), "").fields, names.rule)
    except TwoOfOne:
        return None
    # Also once no more steps are taken: what is a dead letter is one by the table and the setting alone.
    if (left := room(steps, table)) is not None and (growth := evolved(table, wanted, ("add_column",))):
        added = sum(number_of_columns(StructType(of)) for fields in growth.added.values() for of in fields)
        if added > left:
            raise Beyond(beyond(added, left))
    return wanted if evolved(table, wanted, tuple(steps)) else None


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Adds the fields that only the table has, as optional ones; those `refused` are in the records all the same.
    Fields get the table's own names."""

    names: Names
    refused: Collection[str]

    def struct(self, wanted: StructType, table: StructType, path: str) -> StructType:
        """Raises TwoOfOne."""
        theirs = [of.name for of in wanted.fields]
        own = self.names.own_names(((of.field_id, of.name) for of in table.fields), theirs)
        kinds = {of.name: of.field_type for of in table.fields}
        fields: list[NestedField] = []
        for of in wanted.fields:
            if (name := own.get(of.name)) is None:
                fields.append(of)
                continue
            kind = self._within(of.field_type, kinds[name], f"{path}{of.name}")
            fields.append(of.model_copy(update={"name": name, "field_type": kind}))
        there = {*own.values(), *(name for name in kinds if f"{path}{name}" in self.refused)}
        lacking = [of.model_copy(update={"required": False}) for of in table.fields if of.name not in there]
        return StructType(*fields, *lacking)

    def _within(self, wanted: IcebergType, table: IcebergType, path: str) -> IcebergType:
        if isinstance(wanted, StructType) and isinstance(table, StructType):
            return self.struct(wanted, table, f"{path}.")
        if isinstance(wanted, ListType) and isinstance(table, ListType):
            element = self._within(wanted.element_type, table.element_type, f"{path}.element")
            return ListType(wanted.element_id, element, element_required=wanted.element_required)
        if isinstance(wanted, MapType) and isinstance(table, MapType):
            value = self._within(wanted.value_type, table.value_type, f"{path}.value")
            return MapType(wanted.key_id, wanted.key_type, wanted.value_id, value, value_required=wanted.value_required)
        return wanted
