"""What records want of a table's schema, and the schema that it gets. Pure: another room carries it out.

| step | change |
|---|---|
| `add_column` | a field that the table lacks, in structs, list elements and map values too; always optional |
| `widen` | int → long, float → double, decimal(p, s) → decimal of more digits with the same scale |
| `make_optional` | a required field that records lack or have as null; not one that identifies rows |

A field whose name not every reader can read (`column_names`) is not added. Nothing else is
changed: what fits a table in no other way is a matter of the record. Field ids stay, and map keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import count
from typing import cast

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from calve.sink_core.config.tables import EvolveStep, Steps
from calve.sink_core.records.columns.column_names import Taken, readable_schema
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS, type_text

ROOT = -1
"""In place of the id of a field that holds others: the table itself."""

_TEXTS = (DateType, StringType, TimestampType, TimestamptzType)


@dataclass(frozen=True, slots=True)
class Evolved:
    """A table's next schema; `changes` in words, `added` fields by the id of the field that got them."""

    schema: Schema
    changes: tuple[str, ...]
    added: Mapping[int, list[NestedField]]


@dataclass(frozen=True, slots=True)
class Used:
    """The highest ids that a table has ever used."""

    column_id: int = 0
    schema_id: int = 0


def room(steps: Collection[EvolveStep], schema: Schema) -> int | None:
    """How many columns, nested ones counted, `schema` may be given; None for any number."""
    most = steps.max_columns if isinstance(steps, Steps) else None
    return None if most is None else max(0, most - number_of_columns(schema.as_struct()))


def beyond(lacking: int, room: int) -> str:
    """Why a record is bad that alone needs more columns than the table may be given."""
    return f"{lacking} fields that the table lacks; max_columns lets it have {room} more"


def number_of_columns(kind: IcebergType) -> int:
    """How many fields there are within a type, at whatever depth."""
    if isinstance(kind, StructType):
        return len(kind.fields) + sum(number_of_columns(of.field_type) for of in kind.fields)
    if isinstance(kind, ListType):
        return 1 + number_of_columns(kind.element_type)
    return 2 + number_of_columns(kind.value_type) if isinstance(kind, MapType) else 0


def merged(schemas: Iterable[Schema]) -> Schema:
    """What several tasks want of one table, in one, field ids from 1. Where no type holds what both want the earlier
    one wins: the other's records don't fit."""
    struct = reduce(_both_structs, (schema.as_struct() for schema in schemas), StructType())
    return readable_schema(_numbered(struct, count(1)).fields)


def merged_by_table(wanted: Iterable[Mapping[str, Schema]]) -> dict[str, Schema]:
    """What several tasks want, by table."""
    by_table: dict[str, list[Schema]] = {}
    for one in wanted:
        for name, schema in one.items():
            by_table.setdefault(name, []).append(schema)
    return {name: merged(schemas) for name, schemas in by_table.items()}


def evolved(schema: Schema, wanted: Schema, steps: Collection[EvolveStep], used: Used = Used()) -> Evolved | None:
    """`schema` with what is `wanted` and of one of `steps`; None if that is nothing.

    `wanted` has the fields that records need by name, in whatever ids: of a type at least that wide, optional if they
    need not be there. What it doesn't name stays, and what there is no `room` for is not added.
    """
    ids = count(1 + max(used.column_id, schema.highest_field_id))
    work = _Evolution(
        steps, _holding(schema.fields, schema.identifier_field_ids), ids, Taken.by(schema), room(steps, schema)
    )
    struct = work.struct(schema.as_struct(), wanted.as_struct(), ROOT, "")
    if not work.changes:
        return None
    made = Schema(
        *struct.fields,
        schema_id=1 + max(used.schema_id, schema.schema_id),
        identifier_field_ids=schema.identifier_field_ids,
    )
    return Evolved(made, tuple(work.changes), work.added)


def wider(have: IcebergType, want: IcebergType) -> IcebergType | None:
    """The type that a column of `have` is widened to so that it holds `want` as well; None if there is none."""
    if isinstance(have, IntegerType) and isinstance(want, LongType):
        return want
    if isinstance(have, FloatType) and isinstance(want, DoubleType):
        return want
    if isinstance(have, DecimalType) and isinstance(want, DecimalType) and have.scale >= want.scale:
        digits = want.precision - want.scale + have.scale
        return DecimalType(digits, have.scale) if have.precision < digits <= DECIMAL_DIGITS else None
    return None


def widest(have: IcebergType) -> IcebergType:
    """The type that `have` can be widened to at most."""
    if isinstance(have, IntegerType):
        return LongType()
    if isinstance(have, FloatType):
        return DoubleType()
    return DecimalType(DECIMAL_DIGITS, have.scale) if isinstance(have, DecimalType) else have


def _holding(fields: Iterable[NestedField], keys: Collection[int]) -> set[int]:
    """Ids of the fields with the ids `keys`, which identify rows, and of those they are within: Iceberg wants all of
    them required.
    """
    found = set[int]()
    for each in fields:
        within = _holding(each.field_type.fields, keys) if isinstance(each.field_type, StructType) else set[int]()
        if within or each.field_id in keys:
            found |= {each.field_id, *within}
    return found


@dataclass(slots=True)
class _Evolution:
    steps: Collection[EvolveStep]
    required: Collection[int]
    ids: count[int]
    taken: Taken
    room: int | None
    changes: list[str] = field(default_factory=list[str])
    added: dict[int, list[NestedField]] = field(default_factory=dict[int, list[NestedField]])

    def struct(self, have: StructType, want: StructType, holder: int, path: str) -> StructType:
        wanted = {inner.name: inner for inner in want.fields}
        fields = [self._field(of, wanted.pop(of.name, None), f"{path}{of.name}") for of in have.fields]
        if "add_column" in self.steps:
            new, _ = self.taken.readable([*wanted.values()], path)
            fields += [self._new(of, holder, f"{path}{of.name}") for of in new if self._takes(of)]
        return StructType(*fields)

    def _field(self, have: NestedField, want: NestedField | None, path: str) -> NestedField:
        if want is None:
            return have
        required = have.required and (want.required or have.field_id in self.required)
        if have.required and not required:
            required = not self._change("make_optional", f"make {path} optional")
        kind = self._type(have.field_type, want.field_type, have.field_id, path)
        return have.model_copy(update={"field_type": kind, "required": required})

    def _type(self, have: IcebergType, want: IcebergType, holder: int, path: str) -> IcebergType:
        if isinstance(have, StructType) and isinstance(want, StructType):
            return self.struct(have, want, holder, f"{path}.")
        if isinstance(have, ListType) and isinstance(want, ListType):
            element = self._field(have.element_field, want.element_field, f"{path}.element")
            return ListType(have.element_id, element.field_type, element_required=element.required)
        if isinstance(have, MapType) and isinstance(want, MapType):
            value = self._field(have.value_field, want.value_field, f"{path}.value")
            return MapType(have.key_id, have.key_type, have.value_id, value.field_type, value_required=value.required)
        to = wider(have, want)
        return to if to is not None and self._change("widen", f"widen {path} from {have} to {to}") else have

    def _takes(self, new: NestedField) -> bool:
        """Whether there is room for a field, which it takes."""
        if self.room is None:
            return True
        left = self.room - number_of_columns(StructType(new))
        self.room = left if left >= 0 else self.room
        return left >= 0

    def _new(self, want: NestedField, holder: int, path: str) -> NestedField:
        self._change("add_column", f"add {path} {type_text(want.field_type)}")
        new = _numbered(StructType(want), self.ids).fields[0]
        new = new.model_copy(update={"required": False})
        self.added.setdefault(holder, []).append(new)
        return new

    def _change(self, step: EvolveStep, words: str) -> bool:
        if step in self.steps:
            self.changes.append(words)
            return True
        return False


def _both_structs(one: StructType, other: StructType) -> StructType:
    more = {inner.name: inner for inner in other.fields}
    fields = [_both_fields(inner, more.pop(inner.name)) if inner.name in more else inner for inner in one.fields]
    return StructType(*fields, *more.values())


def _both_fields(one: NestedField, other: NestedField) -> NestedField:
    kind = _both(one.field_type, other.field_type)
    return one.model_copy(update={"field_type": kind, "required": one.required and other.required})


def _both(one: IcebergType, other: IcebergType) -> IcebergType:
    """A type for what either wants: by the rules of `infer` where both are new; `one` if there is none."""
    if one == other:
        return one
    match one, other:
        case StructType(), StructType():
            return _both_structs(one, other)
        case ListType(), ListType():
            element = _both_fields(one.element_field, other.element_field)
            return ListType(one.element_id, element.field_type, element_required=element.required)
        case MapType(), MapType() if one.key_type == other.key_type:
            value = _both_fields(one.value_field, other.value_field)
            return MapType(one.key_id, one.key_type, one.value_id, value.field_type, value_required=value.required)
        case DecimalType(), DecimalType():
            return _both_decimals(one, other)
        case _:
            return _both_leaves(one, other)


def _both_decimals(one: DecimalType, other: DecimalType) -> IcebergType:
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return DecimalType(digits, scale) if digits <= DECIMAL_DIGITS else one


def _both_leaves(one: IcebergType, other: IcebergType) -> IcebergType:
    if isinstance(one, _TEXTS) and isinstance(other, _TEXTS):
        return StringType()
    for a, b in ((one, other), (other, one)):
        if isinstance(a, DoubleType) and isinstance(b, LongType | FloatType | IntegerType | DecimalType):
            return a
        if isinstance(a, DecimalType) and isinstance(b, LongType | IntegerType):
            return a if a.precision - a.scale >= len(str(2**63)) else one
        if isinstance(a, LongType) and isinstance(b, IntegerType):
            return a
    return one


def _numbered(struct: StructType, ids: count[int]) -> StructType:
    """The struct with `ids`, its fields before those within them."""
    return cast(StructType, assign_fresh_schema_ids(struct, partial(next, ids)))
