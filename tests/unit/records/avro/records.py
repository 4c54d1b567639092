"""Avro records of one field, and schemas to write them with."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    NestedField,
)

from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import WriterSchema, writer_schema
from calve.sink_core.records.decode.decoded import Decoded
from tests.unit.records.decode.outcomes import outcomes

SPOILER = b""
"""No record: it is read on its own, its neighbours all at once."""
NAN, INFINITY = float("nan"), float("inf")


def logical(kind: str, name: str, **more: object) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, **more: object) -> dict[str, Any]:
    return {"type": "fixed", "name": f"F{size}", "size": size, **more}


DECIMAL_5 = logical("bytes", "decimal", precision=5, scale=2)
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]}],
}
INTS = ListType(2, LongType(), element_required=False)


def zigzag(number: int) -> bytes:
    """A number as Avro writes int and long."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def without_logical(avro: Any) -> Any:
    if isinstance(avro, list):
        return [without_logical(part) for part in avro]
    if isinstance(avro, dict):
        return {k: without_logical(v) for k, v in avro.items() if k not in ("logicalType", "precision", "scale")}
    return avro


def record_of(avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": avro}]}


def encoded(avro: Any, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record_of(without_logical(avro))), {"a": value})
    return out.getvalue()


def written_with(avro: Any) -> WriterSchema:
    return writer_schema("the schema", json.dumps(record_of(avro)))


def one_column(avro: Any, kind: IcebergType, *, required: bool = False, at_once: bool = True) -> AvroDecoder:
    columns = Schema(NestedField(1, "a", kind, required=required))
    return AvroDecoder(columns, OneSchema(written_with(avro)), at_once=at_once)


def values_of(decoded: Decoded, n: int) -> list[object]:
    """As `outcomes`, of the only column."""
    return [row["a"] if isinstance(row, dict) else row for row in outcomes(decoded, n)]
