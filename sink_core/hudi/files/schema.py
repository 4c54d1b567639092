"""A Hudi table's columns: Avro in its commits and properties, Iceberg's types in Calve.

| column | Avro |
|---|---|
| boolean, int, long, float, double, string, binary | boolean, int, long, float, double, string, bytes |
| decimal(p, s) | decimal, of as many fixed bytes as p digits take |
| date; timestamptz; timestamp | date; timestamp-micros; local-timestamp-micros |
| struct, list, map of text | record, array, map |

Field ids are by place, and hold for one batch: Hudi knows columns by their names, which are Avro's. Added columns come
last.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
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

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, ConfigError, TableUnusable
from calve.sink_core.records.avro.columns import avro_columns
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.columns.column_names import ColumnRule
from calve.sink_core.records.columns.type_text import type_text

Avro = Any

META_COLUMNS = tuple(
    f"_hoodie_{name}" for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
)
"""Columns of text that Hudi's files begin with."""

IS_DELETED = "_hoodie_is_deleted"
"""The column by which Hudi's writers tell rows that go. It is the table's as well, and null in rows that are there."""

# Optional, else Hudi's writer wants a default.
_MARK: Avro = {"name": IS_DELETED, "type": ["null", "boolean"], "default": None}

_PLAIN: Mapping[type[IcebergType], Avro] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestamptzType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampType: {"type": "long", "logicalType": "local-timestamp-micros"},
}

HUDI_COLUMNS = ColumnRule(
    names=re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII),
    reserved="_hoodie_",
    types=(*_PLAIN, DecimalType, StructType, ListType, MapType),
)
"""What a field may be to become a column."""


def to_avro(schema: Schema, table: str, *, marked: bool = False) -> str:
    """The schema as Hudi stores it, with the column `IS_DELETED` if `marked`. Raises ConfigError for columns that Hudi
    can't have.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", table.rpartition(".")[2])
    name = f"_{name}" if name[0].isdigit() else name
    record = _record(schema.as_struct(), f"{name}_record", f"hoodie.{name}", table, "")
    return json.dumps({**record, "fields": [*([_MARK] if marked else ()), *record["fields"]]})


def is_marked(text: str) -> bool:
    """Whether a stored schema has the column `IS_DELETED`."""
    return any(field["name"] == IS_DELETED for field in json.loads(text).get("fields", ()))


def from_avro(text: str, table: str) -> Schema:
    """The columns of a table that stores this schema, Hudi's own left out. Raises TableUnusable for others."""
    try:
        columns = avro_columns(writer_schema(table, text))
    except (ValueError, CalveError) as error:
        told = error.message if isinstance(error, CalveError) else str(error)
        raise TableUnusable(
            f"{table}: its schema can't be read: {told}",
            hint="have Calve create a table of another name",
            code=Code.FOREIGN_HUDI_TABLE,
        ) from None
    own = {*META_COLUMNS, IS_DELETED}
    return Schema(*(field for field in columns.fields if field.name not in own))


def _record(struct: StructType, name: str, namespace: str, table: str, path: str) -> Avro:
    fields = [_field(field, f"{namespace}.{name}", table, path) for field in struct.fields]
    return {"type": "record", "name": name, "namespace": namespace, "fields": fields}


def _field(field: NestedField, namespace: str, table: str, path: str) -> Avro:
    at = f"{path}{field.name}"
    if why := HUDI_COLUMNS.why_not(field.name):
        raise ConfigError(
            f"table {table}: column {at}: {why}",
            hint="give it another name under auto_create.columns, and fill it by a transform",
            code=Code.UNREADABLE_NAMES,
        )
    kind = _nullable(_type(field.field_type, field.name, namespace, table, at), field.required)
    doc = {"doc": field.doc} if field.doc else {}
    return {"name": field.name, "type": kind, **({} if field.required else {"default": None}), **doc}


def _nullable(kind: Avro, required: bool) -> Avro:
    return kind if required else ["null", kind]


def _type(kind: IcebergType, name: str, namespace: str, table: str, path: str) -> Avro:
    match kind:
        case StructType():
            return _record(kind, name, namespace, table, f"{path}.")
        case ListType():
            items = _type(kind.element_type, "element", f"{namespace}.{name}", table, f"{path}.element")
            return {"type": "array", "items": _nullable(items, kind.element_required)}
        case MapType() if isinstance(kind.key_type, StringType):
            values = _type(kind.value_type, "value", f"{namespace}.{name}", table, f"{path}.value")
            return {"type": "map", "values": _nullable(values, kind.value_required)}
        case DecimalType():
            size = math.ceil((math.log2(10**kind.precision) + 1) / 8)
            number = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            return {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": size, **number}
        case _ if type(kind) in _PLAIN:
            return _PLAIN[type(kind)]
        case _:
            raise ConfigError(
                f"table {table}: column {path} is {type_text(kind)}, which Hudi has not",
                hint="name another type for it under auto_create.columns, and fill it by a transform",
                code=Code.NO_HUDI_TYPE,
            )
