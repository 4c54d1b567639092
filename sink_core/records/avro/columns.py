"""From an Avro schema to the columns that hold each of its records without loss.

| Avro | column |
|---|---|
| boolean, int, long, float, double, bytes, string | boolean, int, long, float, double, binary, string |
| enum; fixed(n) | string; fixed(n) |
| record, array, map | struct, list, map |
| decimal(p, s), date, time-…, uuid | decimal(p, s), date, time, uuid |
| timestamp-…; local-timestamp-… | timestamptz; timestamp |
| a union of `null` and another type | that type, optional |
| `null`, an empty record | no column: there is nothing to store |

What isn't a union with `null` is required. Docs become the columns' docs. Anything else (a union of several types, a
record within itself, a decimal of more than 38 digits) is refused by naming the field; a table that is there is given
no column for it, unless it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    TimeType,
    UUIDType,
)

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.avro.schema import Node, WriterSchema, logical, shown
from calve.sink_core.records.columns.budget import MOST_FIXED, FieldIds
from calve.sink_core.records.columns.checked import IN_A_NEW_TABLE, Columns, Unfit, WithinItself, of_fields
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS

_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: dict[str, IcebergType] = {
    "date": DateType(),
    "time-millis": TimeType(),
    "time-micros": TimeType(),
    "uuid": UUIDType(),
    **{f"timestamp-{unit}": TimestamptzType() for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": TimestampType() for unit in ("millis", "micros", "nanos")},
}


def avro_columns(schema: WriterSchema, unfit: Unfit = IN_A_NEW_TABLE) -> Columns:
    """The columns for records of `schema`, field ids from 1. Raises ConfigError for what is no record, and naming the
    field that has none in a new table.
    """
    record = schema.record
    if record is None:
        raise ConfigError(
            f"{schema.name} is {shown(schema.resolved(schema.root))}; columns can only be made of a record",
            hint="name the columns under auto_create.columns",
            code=Code.NO_RECORD,
        )
    columns = _Columns(schema, FieldIds(schema.name), unfit)
    return of_fields(schema.name, columns.fields(record, "", ()), unfit)


@dataclass(frozen=True, slots=True)
class _Columns:
    """`outer` are the names of the records that a field is within."""

    schema: WriterSchema
    next_id: FieldIds
    unfit: Unfit

    def fields(self, record: dict[str, Any], path: str, outer: tuple[str, ...]) -> list[NestedField]:
        fields: list[NestedField] = []
        for member in record["fields"]:
            field_id, name, within = self.next_id(path), str(member["name"]), (*outer, str(record["name"]))
            try:
                kind, required = self._type(member["type"], f"{path}{name}", within)
            except ConfigError as error:
                self.unfit.leave_out(path, name, error, within)
                continue
            if kind is not None:
                fields.append(NestedField(field_id, name, kind, required=required, doc=member.get("doc")))
        return fields

    def _type(self, given: Node, path: str, outer: tuple[str, ...]) -> tuple[IcebergType | None, bool]:
        """The type, None if there is nothing to store, and whether it is required."""
        node = self.schema.resolved(given)
        if not isinstance(node, list):
            return self._one(node, path, outer), True
        branches = [branch for branch in node if branch != "null"]
        if len(branches) > 1:
            raise self._refused(path, f"is {shown(node)}")
        return (self._type(branches[0], path, outer)[0] if branches else None), len(branches) == len(node)

    def _one(self, node: Node, path: str, outer: tuple[str, ...]) -> IcebergType | None:
        if isinstance(node, str):
            return _PLAIN.get(node)
        parts, kind, meaning = cast(dict[str, Any], node), str(cast(dict[str, Any], node)["type"]), logical(node)
        if meaning == "decimal":
            if parts["precision"] > DECIMAL_DIGITS:
                raise self._refused(path, f"has {parts['precision']} digits; a decimal has {DECIMAL_DIGITS} at most")
            return DecimalType(int(parts["precision"]), int(parts.get("scale", 0)))
        if meaning is not None:
            return _LOGICAL[meaning]
        if kind == "fixed":
            if parts["size"] > MOST_FIXED:
                raise self._refused(path, f"is fixed({parts['size']}); one has {MOST_FIXED} bytes at most")
            return FixedType(int(parts["size"]))
        if kind in _PLAIN or kind == "null":
            return _PLAIN.get(kind)
        return self._nested(parts, kind, path, outer)

    def _nested(self, parts: dict[str, Any], kind: str, path: str, outer: tuple[str, ...]) -> IcebergType | None:
        if kind == "array":
            element_id = self.next_id(path)
            element, required = self._type(parts["items"], f"{path}.element", outer)
            return element and ListType(element_id, element, element_required=required)
        if kind == "map":
            key_id, value_id = self.next_id(path), self.next_id(path)
            value, required = self._type(parts["values"], f"{path}.value", outer)
            return value and MapType(key_id, StringType(), value_id, value, value_required=required)
        if str(parts["name"]) in outer and not self.unfit.has(path):
            raise WithinItself(
                f"{self.schema.name}: field {path} is a {parts['name']} within a {parts['name']}",
                hint=f"name the columns under auto_create.columns, without {path} or with part of it",
                of=str(parts["name"]),
            )
        fields = self.fields(parts, f"{path}.", outer)
        return StructType(*fields) if fields else None

    def _refused(self, path: str, why: str) -> ConfigError:
        return ConfigError(
            f"{self.schema.name}: field {path} {why}",
            hint=f"name the columns under auto_create.columns with the type {path} is to have, or without it",
            code=Code.NO_COLUMN_TYPE,
        )
