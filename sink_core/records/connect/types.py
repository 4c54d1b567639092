"""Which of Connect's types a column takes, and as what Iceberg types their JSON is read first.

| column | Connect |
|---|---|
| boolean | boolean |
| int, long, decimal | int8, int16, int32, int64, if the value fits |
| float; double | float32; float64, float32, int8, int16, int32 |
| decimal(p, s) | Decimal (base64 as is the default, or numbers), if its digits fit |
| string | string |
| uuid, date, time, timestamp, timestamptz | string of the form JSON has for them |
| binary, fixed(n) | bytes |
| date, time, timestamptz | Date, Time, Timestamp |
| struct, list, map | struct (by name), array, map |
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
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

from calve.sink_core.records.columns.names import EXACT, Names, TwoOfOne
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS
from calve.sink_core.records.connect.schema import ConnectType
from calve.sink_core.records.decode.convert import as_decimal

_EXACT = Context(prec=50)
_DAY_MS = 24 * 60 * 60 * 1000
_TEXTS = (StringType, UUIDType, DateType, TimeType, TimestampType, TimestamptzType)
_SMALL = ("int8", "int16", "int32")
_FITS: dict[str, tuple[type[IcebergType], ...]] = {
    "boolean": (BooleanType,),
    **dict.fromkeys(_SMALL, (IntegerType, LongType, DecimalType, DoubleType)),
    "int64": (IntegerType, LongType, DecimalType),
    **dict.fromkeys(("float", "float32"), (FloatType, DoubleType)),
    **dict.fromkeys(("double", "float64"), (DoubleType,)),
    "string": _TEXTS,
    "bytes": (BinaryType, FixedType),
    "decimal": (DecimalType,),
    "date": (DateType,),
    "time": (TimeType,),
    "timestamp": (TimestamptzType,),
}
_KEYS = (BooleanType, StringType, IntegerType, LongType)

Leaf = Callable[[ConnectType, IcebergType], IcebergType]


@dataclass(slots=True)
class Carriers:
    """Replaces the types of columns by what `leaf` says. `misfits` gets a line for each field that can't fit."""

    leaf: Leaf
    names: Names = EXACT
    misfits: list[str] = field(default_factory=list[str])
    renamed: bool = False
    """Whether a field has another name than its column."""

    def schema(self, kind: ConnectType, wanted: Schema) -> Schema:
        """The schema for structs of `kind` on their way to the columns `wanted`."""
        return Schema(*self._fields(kind, wanted.as_struct(), ""))

    def _fields(self, kind: ConnectType, wanted: StructType, path: str) -> list[NestedField]:
        known = self._known(kind, wanted, path)
        return [
            NestedField(
                to.field_id,
                to.name,
                self._type(known[to.name], to.field_type, f"{path}{to.name}") if to.name in known else to.field_type,
                required=to.required,
            )
            for to in wanted.fields
        ]

    def _known(self, kind: ConnectType, wanted: StructType, path: str) -> dict[str, ConnectType]:
        """The fields of the struct by the columns' names."""
        given = dict(kind.fields)
        try:
            own = self.names.own_names(((of.field_id, of.name) for of in wanted.fields), given)
        except TwoOfOne as error:
            self.misfits.append(f"{path}{error}")
            return {}
        self.renamed = self.renamed or any(name != of for name, of in own.items())
        return {of: given[name] for name, of in own.items()}

    def _type(self, kind: ConnectType, wanted: IcebergType, path: str) -> IcebergType:
        if isinstance(wanted, StructType) and kind.kind == "struct":
            return StructType(*self._fields(kind, wanted, f"{path}."))
        if isinstance(wanted, ListType) and kind.kind == "array" and kind.item:
            element = self._type(kind.item, wanted.element_type, f"{path}.element")
            return ListType(wanted.element_id, element, element_required=wanted.element_required)
        if isinstance(wanted, MapType) and kind.kind == "map" and kind.item and kind.key:
            key = self._type(kind.key, wanted.key_type, f"{path}.key")
            if not isinstance(key, _KEYS):
                self.misfits.append(f"{path}: a key of Connect's {kind.key.kind} can't be read as {wanted.key_type}")
            value = self._type(kind.item, wanted.value_type, f"{path}.value")
            return MapType(wanted.key_id, key, wanted.value_id, value, value_required=wanted.value_required)
        if not isinstance(wanted, _FITS.get(kind.kind, ())):
            self.misfits.append(f"{path}: Connect's {kind.kind} doesn't fit {wanted}")
        return self.leaf(kind, wanted)


def read_as(kind: ConnectType, wanted: IcebergType) -> IcebergType:
    """What a leaf is in JSON, decimals being in base64."""
    return StringType() if kind.kind == "decimal" else read_as_numbers(kind, wanted)


def read_as_numbers(kind: ConnectType, wanted: IcebergType) -> IcebergType:
    """What a leaf is in JSON, decimals being numbers."""
    return LongType() if kind.kind in ("date", "time", "timestamp") else exactly(kind, wanted)


def exactly(kind: ConnectType, wanted: IcebergType) -> IcebergType:
    """What a leaf is without loss: decimals have Connect's scale, not yet the column's."""
    return DecimalType(DECIMAL_DIGITS, kind.scale) if kind.kind == "decimal" else wanted


def from_connect(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A leaf that was read as JSON as the type that it is exactly. Raises ArrowInvalid for what doesn't fit."""
    if array.type == wanted:
        return array
    if pa.types.is_decimal(wanted):
        return pa.array([_decimal(text, wanted.scale) for text in array.to_pylist()], wanted)
    if pa.types.is_date(wanted):
        return pc.cast(pc.cast(array, pa.int32()), wanted)
    if pa.types.is_time(wanted):
        return pc.cast(pc.cast(pc.cast(_within_a_day(array), pa.int32()), pa.time32("ms")), wanted)
    if pa.types.is_timestamp(wanted):
        return pc.cast(pc.cast(array, pa.timestamp("ms", wanted.tz)), wanted)
    return pa.ExtensionArray.from_storage(wanted, array) if isinstance(wanted, pa.UuidType) else array.cast(wanted)


def to_column(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A leaf that is exactly Connect's as the column's type. Raises ArrowInvalid for a decimal that has more digits."""
    return as_decimal(array, wanted) if pa.types.is_decimal(wanted) else from_connect(array, wanted)


def _decimal(text: str | None, scale: int) -> Decimal | None:
    if text is None:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise pa.ArrowInvalid(f"{text!r} is not base64: {error}") from None
    number = int.from_bytes(data, "big", signed=True)
    if not data:
        raise pa.ArrowInvalid("a decimal of no bytes")
    if len(data) > 16:
        raise pa.ArrowInvalid(f"a decimal of {len(data)} bytes has more than {DECIMAL_DIGITS} digits")
    return Decimal(number).scaleb(-scale, _EXACT)


def _within_a_day(array: pa.Array) -> pa.Array:
    fits = pc.and_(pc.greater_equal(array, 0), pc.less(array, _DAY_MS))
    if pc.all(fits).as_py() is False:
        raise pa.ArrowInvalid(f"{array.filter(pc.invert(fits))[0].as_py()} ms is no time of a day")
    return array
