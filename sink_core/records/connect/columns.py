"""From the schema in Kafka Connect's envelope to the columns that hold its payloads without loss.

| Connect | column |
|---|---|
| boolean, string, bytes | boolean, string, binary |
| int8, int16, int32; int64 | int; long |
| float32, float64 | float, double |
| Decimal | decimal of its scale; of 38 digits, unless `connect.decimal.precision` says less |
| Date, Time, Timestamp | date, time, timestamptz |
| struct, array, map | struct, list, map |

What isn't optional is required. Docs become the columns' docs. A map whose keys are neither text, whole numbers nor
booleans, and a decimal of more than 38 digits, are refused by naming the field; a table that is there is given no
column for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

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
    TimestamptzType,
    TimeType,
)

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.checked import IN_A_NEW_TABLE, Columns, Unfit, of_fields
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.connect.schema import INTEGERS, ConnectType

_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
    **dict.fromkeys(INTEGERS, IntegerType()),
    "int64": LongType(),
    **dict.fromkeys(("float", "float32"), FloatType()),
    **dict.fromkeys(("double", "float64"), DoubleType()),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestamptzType(),
}


def connect_columns(kind: ConnectType | None, unfit: Unfit = IN_A_NEW_TABLE) -> Columns:
    """The columns for payloads of a struct, field ids from 1. Raises ConfigError, naming the field if one has none in a
    new table.
    """
    fields = _Columns(partial(next, count(1)), unfit).fields(kind, "") if kind else []
    if not fields and unfit.there is None:
        raise ConfigError(
            "no record of the sample is an envelope whose schema is a struct with fields",
            hint="name the columns under auto_create.columns, or begin when the topic has records",
            code=Code.NO_SAMPLE,
        )
    return of_fields("the envelope's schema", fields, unfit)


@dataclass(frozen=True, slots=True)
class _Columns:
    next_id: Callable[[], int]
    unfit: Unfit

    def fields(self, struct: ConnectType, path: str) -> list[NestedField]:
        fields: list[NestedField] = []
        for name, inner in struct.fields:
            field_id = self.next_id()
            try:
                kind = self._type(inner, f"{path}{name}")
            except ConfigError as error:
                self.unfit.leave_out(path, name, error)
                continue
            if kind is not None:
                fields.append(NestedField(field_id, name, kind, required=not inner.optional, doc=inner.doc))
        return fields

    def _type(self, kind: ConnectType, path: str) -> IcebergType | None:
        if kind.kind == "decimal":
            return self._decimal(kind, path)
        if kind.kind == "struct":
            fields = self.fields(kind, f"{path}.")
            return StructType(*fields) if fields else None
        if kind.key is not None and kind.item is not None:
            return self._map(kind.key, kind.item, path)
        if kind.item is not None:
            element_id, element = self.next_id(), self._type(kind.item, f"{path}.element")
            return element and ListType(element_id, element, element_required=not kind.item.optional)
        return _PLAIN[kind.kind]

    def _map(self, key: ConnectType, item: ConnectType, path: str) -> IcebergType | None:
        if key.kind not in ("string", "boolean", *INTEGERS):
            raise _refused(path, f"is a map with keys of {key.kind}")
        key_id, value_id = self.next_id(), self.next_id()
        value = self._type(item, f"{path}.value")
        return value and MapType(key_id, _PLAIN[key.kind], value_id, value, value_required=not item.optional)

    def _decimal(self, kind: ConnectType, path: str) -> IcebergType:
        if not 0 <= kind.scale <= DECIMAL_DIGITS:
            raise _refused(path, f"is a decimal of scale {kind.scale}; a column's lies between 0 and {DECIMAL_DIGITS}")
        known = kind.scale <= kind.precision <= DECIMAL_DIGITS and kind.precision > 0
        return DecimalType(kind.precision if known else DECIMAL_DIGITS, kind.scale)


def _refused(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"field {path} {why}",
        hint=f"name the columns under auto_create.columns with the type {path} is to have, or without it",
        code=Code.NO_COLUMN_TYPE,
    )
