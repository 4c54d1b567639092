"""Format × type × value: what is stored a second engine reads back as it was; else the error names the field.

DuckDB reads the Parquet files: it shares no code with what writes them. One file has all cases of a format and a type.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IcebergType, NestedField

from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.columns.arrow import conform
from calve.sink_core.records.columns.type_text import schema_of, type_text
from calve.sink_core.records.decode.decoded import FIT, Decoded
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.schema_registry import plain

_EXACT = Context(prec=100)
KEY = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
MIDNIGHT, LAST = datetime.fromisoformat("0001-01-01"), datetime.fromisoformat("9999-12-31T23:59:59.999999")
EDGES = [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**38, 0, -1]
NUMBERS = [0.0, -0.0, 1.5, math.pi, 1e-300, 5e-324, 3.4028234663852886e38, 3.5e38, 1.7976931348623157e308]
TEXTS = ["", "a", "\0", "é\u0301", "\N{GRINNING FACE}", '"\\\n', "\u2028", "x" * 2**20]
BYTES = [b"", b"\0", bytes(range(256)), b"0123"]
DATES = [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]
TIMES = [time(0), time(23, 59, 59, 999999), time(12, 30)]
MOMENTS = [MIDNIGHT, *map(datetime.fromisoformat, ("1969-12-31T23:59:59.999999", "2024-02-29T12:00:00")), LAST]
DECIMALS = [Decimal(text) for text in ("0.00", "-0.01", "9.99", "1234567.89", "12345678.91", "1.005", "1E+30")]


def as_float(value: float) -> float | None:
    """The nearest 32-bit number, None beyond its range."""
    import numpy as np

    with np.errstate(over="ignore"):
        near = float(np.float32(value))
    return None if math.isinf(near) and not math.isinf(value) else near


def within(low: int, high: int) -> Callable[[Any], Any]:
    return lambda value: value if low <= value < high else None


def decimal_of(digits: int, scale: int) -> Callable[[Any], Any]:
    def fits(value: Any) -> Any:
        number = Decimal(value)
        exact = -int(number.normalize(_EXACT).as_tuple().exponent) <= scale
        return number if exact and number.copy_abs() < Decimal(10) ** (digits - scale) else None

    return fits


def itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Row:
    """A row of the grid. `stored` is what becomes of a value, None if it can't be stored; `json` and `avro` how a
    record has it, `avro_type` how its schema says so; `avro_takes` whether Avro can write it."""

    kind: str | IcebergType
    values: Sequence[Any]
    avro_type: Any
    stored: Callable[[Any], Any] = itself
    json: Callable[[Any], Any] = itself
    avro: Callable[[Any], Any] = itself
    avro_takes: Callable[[Any], bool] = lambda _: True


def iso(value: Any) -> str:
    return value.isoformat()


def text64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def zoned(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def micros(moment: datetime) -> int:
    since = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def logical(kind: str, meaning: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


LONG = within(-(2**63), 2**63)
PAIR = {
    "type": "record",
    "name": "S",
    "fields": [{"name": "x", "type": ["null", "long"]}, {"name": "y", "type": ["null", "string"]}],
}
ROWS = {
    "boolean": Row("boolean", [True, False], "boolean"),
    "int": Row("int", EDGES, "long", within(-(2**31), 2**31), avro_takes=lambda v: LONG(v) is not None),
    "long": Row("long", EDGES, "long", LONG, avro_takes=lambda v: LONG(v) is not None),
    "double": Row("double", [*NUMBERS, math.nan, math.inf, -math.inf], "double"),
    "float": Row("float", NUMBERS, "float", as_float, avro_takes=lambda v: as_float(v) == v),
    "decimal": Row(
        "decimal(9, 2)",
        DECIMALS,
        logical("bytes", "decimal", precision=38, scale=3),
        decimal_of(9, 2),
        json=str,
        avro_takes=lambda v: v.adjusted() < 30,
    ),
    "wide decimal": Row(
        "decimal(38, 0)",
        [10**38 - 1, -(10**38) + 1, 10**38, 0],
        logical("bytes", "decimal", precision=38, scale=0),
        decimal_of(38, 0),
        avro=Decimal,
        avro_takes=lambda v: abs(v) < 10**38,
    ),
    "string": Row("string", TEXTS, "string"),
    "binary": Row("binary", [*BYTES, b"x" * 2**20], "bytes", json=text64),
    "fixed": Row(FixedType(4), BYTES, "bytes", lambda v: v if len(v) == 4 else None, json=text64),
    "uuid": Row("uuid", [KEY, UUID(int=0), UUID(int=2**128 - 1)], logical("string", "uuid"), json=str),
    "date": Row("date", DATES, logical("int", "date"), json=iso),
    "time": Row("time", TIMES, logical("long", "time-micros"), json=iso),
    "timestamp": Row("timestamp", MOMENTS, logical("long", "local-timestamp-micros"), json=iso, avro=micros),
    "timestamptz": Row(
        "timestamptz", [zoned(m) for m in MOMENTS], logical("long", "timestamp-micros"), json=iso, avro=micros
    ),
    "list": Row(
        "list<int>",
        [[], [1], [2**31], [None], [1, None]],
        {"type": "array", "items": ["null", "long"]},
        lambda v: None if 2**31 in v else v,
    ),
    "struct": Row(
        "struct<x: int, y: string>",
        [{"x": 1, "y": ""}, {"x": None, "y": None}, {"x": 2**31, "y": "a"}],
        {
            "type": "record",
            "name": "S",
            "fields": [{"name": "x", "type": ["null", "long"]}, {"name": "y", "type": ["null", "string"]}],
        },
        lambda v: None if v["x"] == 2**31 else v,
    ),
    "map": Row(
        "map<string, int>",
        [{}, {"": 1, "\N{GRINNING FACE}": None}, {"a": 2**31}],
        {"type": "map", "values": ["null", "long"]},
        lambda v: None if 2**31 in v.values() else v,
    ),
}


def schema(row: Row) -> Schema:
    if isinstance(row.kind, IcebergType):
        return Schema(NestedField(1, "n", schema_of({"n": "int"}).find_type("n")), NestedField(2, "v", row.kind))
    return schema_of({"n": "int", "v": row.kind})


def in_json(row: Row, values: Sequence[Any]) -> Decoded:
    records = [{"n": n, "v": None if value is None else row.json(value)} for n, value in enumerate(values)]
    return JsonDecoder(schema(row)).decode([json.dumps(record).encode() for record in records])


def in_avro(row: Row, values: Sequence[Any]) -> Decoded:
    written = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "int"}, {"name": "v", "type": ["null", row.avro_type]}],
    }
    records = [{"n": n, "v": None if value is None else row.avro(value)} for n, value in enumerate(values)]
    decoder = AvroDecoder(schema(row), OneSchema(writer_schema("s", json.dumps(written))))
    return decoder.decode([plain(written, record) for record in records])


FORMATS = {"json": in_json, "avro": in_avro}


def read_back(tmp_path: Path, row: Row, decoded: Decoded) -> dict[int, Any]:
    """What DuckDB finds in a file of the rows, by `n`."""
    catalog = InMemoryCatalog("grid", warehouse=f"file://{tmp_path}")
    catalog.create_namespace_if_not_exists("g")
    table = catalog.create_table("g.t", schema(row), properties={"format-version": "2"})
    writer = TableWriter(table.io, table.metadata, "grid")
    writer.write(conform(decoded.columns.columns, writer.schema))
    [file] = writer.close()
    path = file.path.removeprefix("file://")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return {
            found["n"]: found["v"] for found in connection.sql(f"SELECT * FROM '{path}'").to_arrow_table().to_pylist()
        }


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return repr(found) == repr(wanted)
    if isinstance(wanted, dict) and isinstance(found, list):
        return dict(found) == wanted
    if isinstance(wanted, UUID) and not isinstance(found, UUID):
        return (UUID(bytes=found) if isinstance(found, bytes) else UUID(found)) == wanted
    return bool(found == wanted)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("form", FORMATS)
def test_each_value_is_stored_as_it_is_or_refused_by_name(tmp_path: Path, form: str, name: str) -> None:
    row = ROWS[name]
    values = [None, *(value for value in row.values if form == "json" or row.avro_takes(value))]
    check(tmp_path, form, row, values)


def check(tmp_path: Path, form: str, row: Row, values: Sequence[Any]) -> None:
    decoded = FORMATS[form](row, values)
    stored = {n: None if value is None else row.stored(value) for n, value in enumerate(values)}
    refused = [n for n, value in enumerate(values) if value is not None and stored[n] is None]
    assert [bad.index for bad in decoded.bad] == refused
    assert all(bad.stage == FIT and "v" in bad.message for bad in decoded.bad)
    found = read_back(tmp_path, row, decoded)
    assert found.keys() == stored.keys() - set(refused)
    wrong = {n: (found[n], stored[n]) for n in found if not same(found[n], stored[n])}
    assert wrong == {}, type_text(schema(row).find_type("v"))


TRIED = {
    "long": st.integers(-(2**65), 2**65),
    "int": st.integers(-(2**33), 2**33),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "decimal": st.decimals(-(10**8), 10**8, places=2),
    "timestamp": st.datetimes(),
    "date": st.dates(),
    "binary": st.binary(),
}


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_so_is_whatever_is_tried(
    tmp_path_factory: pytest.TempPathFactory, form: str, name: str, data: st.DataObject
) -> None:
    row = ROWS[name]
    values = data.draw(st.lists(TRIED[name], min_size=20, max_size=60))
    check(tmp_path_factory.mktemp("tried"), form, row, [v for v in values if form == "json" or row.avro_takes(v)])
