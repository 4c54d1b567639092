"""All types of PostgreSQL, from what the source sends to an Iceberg table: the value, or a dead letter naming it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.source.postgres.values import Types
from tests import support
from tests.codes import Naming
from tests.pipelines import Flow
from tests.support import TopicFactory

INF, NAN = math.inf, math.nan
ARRAYS = {1000: 16, 1005: 21, 1007: 23, 1016: 20, 1021: 700, 1022: 701, 1009: 25, 1231: 1700, 1185: 1184, 2951: 2950}
"""Ids of array types, and of their elements."""

POSITIVE = 90_000
"""A domain over float8, as databases number what users make."""


@dataclass(frozen=True)
class Of:
    """A type: its id, the column for it, texts as PostgreSQL writes them with what is stored, and texts that no such
    column holds.
    """

    oid: int
    column: str
    stored: Mapping[str, Any]
    dead: tuple[str, ...] = ()


def same(*texts: str) -> dict[str, str]:
    return {text: text for text in texts}


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
TYPES: Mapping[str, Of] = {
    "bool": Of(16, "boolean", {"t": True, "f": False}),
    "bytea": Of(17, "binary", {"\\x": b"", "\\x00ff": b"\0\xff"}),
    "int2": Of(21, "int", {"-32768": -(2**15), "32767": 2**15 - 1}),
    "int4": Of(23, "int", {"-2147483648": -(2**31), "2147483647": 2**31 - 1}),
    "int8": Of(20, "long", {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    "oid": Of(26, "long", {"4294967295": 2**32 - 1}),
    "float4": Of(
        700,
        "float",
        {
            "NaN": NAN,
            "Infinity": INF,
            "-Infinity": -INF,
            "-0": -0.0,
            "1.5": 1.5,
            "1e-45": 2.0**-149,
            "3.4028235e+38": 2.0**128 - 2.0**104,
        },
    ),
    "float8": Of(
        701,
        "double",
        {
            "NaN": NAN,
            "Infinity": INF,
            "-Infinity": -INF,
            "-0": -0.0,
            "0.1": 0.1,
            "5e-324": 5e-324,
            "1.7976931348623157e+308": 1.7976931348623157e308,
        },
    ),
    "numeric": Of(
        1700,
        "decimal(38, 10)",
        {"0": Decimal(0), "-12345678901234567890.0123456789": Decimal("-12345678901234567890.0123456789")},
        ("NaN", "Infinity", "-Infinity", "1e-11", "1" * 39),
    ),
    "date": Of(
        1082, "date", {"2024-02-29": date(2024, 2, 29)}, ("infinity", "-infinity", "0044-03-15 BC", "15000-01-01")
    ),
    "time": Of(1083, "time", {"23:59:59.999999": time(23, 59, 59, 999999)}, ("24:00:00",)),
    "timestamp": Of(
        1114,
        "timestamp",
        {"2024-02-29 12:30:15.123456": MOMENT.replace(tzinfo=None)},
        ("infinity", "0044-03-15 00:00:00 BC", "15000-01-01 00:00:00"),
    ),
    "timestamptz": Of(
        1184,
        "timestamptz",
        {"2024-02-29 12:30:15.123456+00": MOMENT},
        ("-infinity", "0044-03-15 00:00:00+00 BC", "15000-01-01 00:00:00+00"),
    ),
    "uuid": Of(2950, "uuid", {"f79c3e09-677c-4bbd-a479-3f349cb785e7": UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")}),
    "text": Of(25, "string", same("", 'a "b" \\ é\n', "NaN", "null")),
    "bpchar": Of(1042, "string", same("a   ")),
    "jsonb": Of(3802, "string", same('{"a": [1, "NaN", null]}')),
    "interval": Of(1186, "string", same("1 mon", "infinity")),
    "timetz": Of(1266, "string", same("12:00:00+05:30")),
    "money": Of(790, "string", same("-$1,234.50")),
    "bit": Of(1560, "string", same("101")),
    "inet": Of(869, "string", same("10.0.0.0/8")),
    "point": Of(600, "string", same("(1,NaN)")),
    "tstzrange": Of(3910, "string", same('["2024-01-01 00:00:00+00",infinity)')),
    "an_enum": Of(91_000, "string", same("happy")),
    "domain": Of(POSITIVE, "double", {"Infinity": INF, "2.5": 2.5}),
    "bools": Of(1000, "list<boolean>", {"{t,NULL,f}": [True, None, False], "{}": []}),
    "int4s": Of(1007, "list<int>", {"{1,2}": [1, 2], "[0:1]={1,2}": [1, 2]}),
    "grid": Of(1007, "list<list<int>>", {"{{1,2},{3,4}}": [[1, 2], [3, 4]]}),
    "float4s": Of(1021, "list<float>", {"{1.5,NaN,Infinity,-Infinity,NULL}": [1.5, NAN, INF, -INF, None]}),
    "float8s": Of(1022, "list<double>", {"{0.1,NaN,Infinity,-Infinity,NULL}": [0.1, NAN, INF, -INF, None]}),
    "texts": Of(1009, "list<string>", {'{a,"b,c",NULL,"NULL"}': ["a", "b,c", None, "NULL"]}),
    "numerics": Of(1231, "list<decimal(9, 2)>", {"{1.50,NULL}": [Decimal("1.50"), None]}, ("{NaN}",)),
    "moments": Of(1185, "list<timestamptz>", {'{"2024-02-29 12:30:15.123456+00"}': [MOMENT]}, ("{infinity}",)),
}


def sent(of: Of, text: str) -> str:
    """What the source writes for a value."""
    return Types(ARRAYS, {POSITIVE: 701}).to_json(of.oid)(text.encode()).decode()


def written(flow: Flow) -> list[dict[str, Any]]:
    """The rows of the table's data files; nothing was changed, so that its deletes say nothing."""
    table = flow.load_table()
    head = table.current_snapshot()
    assert head is not None
    entries = (each for manifest in head.manifests(table.io) for each in manifest.fetch_manifest_entry(table.io))
    paths = [e.data_file.file_path for e in entries if e.data_file.content is DataFileContent.DATA]
    read = (pq.read_table(path.removeprefix("file://"), arrow_extensions_enabled=False) for path in paths)
    return [row for rows in read for row in rows.to_pylist()]


def told(value: Any) -> Any:
    """A value that is equal to none but itself: NaN is not itself else, and -0.0 is 0.0."""
    if isinstance(value, list):
        return [told(each) for each in value]
    return repr(value) if isinstance(value, float) else value.bytes if isinstance(value, UUID) else value


GOOD = [(name, text, value) for name, of in TYPES.items() for text, value in of.stored.items()]
DEAD = [(name, text) for name, of in TYPES.items() for text in of.dead]
ROWS = [f'{{"id": {number}, "{name}": {sent(TYPES[name], text)}}}' for number, (name, text, _) in enumerate(GOOD)]
BAD = [f'{{"id": {1_000 + number}, "{name}": {sent(TYPES[name], text)}}}' for number, (name, text) in enumerate(DEAD)]


@pytest.mark.parametrize("form", ["rows", "events"])
def test_each_value_is_in_the_table_or_among_the_dead_letters(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, form: str
) -> None:
    table: dict[str, Any] = {
        "name": "db.types",
        "auto_create": {"columns": {"id": "long", **{name: of.column for name, of in TYPES.items()}}},
        **({"mode": "cdc", "key": ["id"]} if form == "events" else {}),
    }
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), tables=("db.types",), extra={"tables": [table]})
    values = [*ROWS, *BAD]
    if form == "events":
        values = [f'{{"before": null, "after": {row}, "op": "c", "ts_ms": 1}}' for row in values]
    support.produce(flow.bootstrap, flow.topic, [value.encode() for value in values])
    assert flow.run().ended == "caught up"
    found = {row["id"]: row for row in written(flow)}
    stored = {(name, text): told(found[number][name]) for number, (name, text, _) in enumerate(GOOD)}
    assert stored == {(name, text): told(value) for name, text, value in GOOD}
    assert len(found) == len(GOOD)
    letters = {
        json.loads(row["value"]).get("after", json.loads(row["value"]))["id"]: row["error"]
        for row in flow.rows(flow.pipeline.dead_letter_table)
    }
    path = "after." if form == "events" else ""
    assert letters == {
        1_000 + number: Naming(of=f"{path}{name}{'.element' * TYPES[name].column.startswith('list')}")
        for number, (name, _) in enumerate(DEAD)
    }
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def test_a_table_made_of_such_rows_takes_what_comes_later(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create={})
    doubles = ["NaN", "0.5", "Infinity", "-Infinity"]
    values = [f'{{"id": {n}, "x": {sent(TYPES["float8"], text)}}}'.encode() for n, text in enumerate(doubles)]
    support.produce(flow.bootstrap, flow.topic, values)
    flow.run()
    assert str(flow.load_table().schema().find_type("x")) == "double"
    assert [repr(row["x"]) for row in sorted(flow.rows(), key=lambda row: row["id"])] == ["nan", "0.5", "inf", "-inf"]
