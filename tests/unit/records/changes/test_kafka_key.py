"""The Kafka key as a table's key: its columns, and what records and tombstones without one are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, TableUnusable
from calve.sink_core.records.changes.envelopes import Debezium
from calve.sink_core.records.changes.events import Events
from calve.sink_core.records.changes.kafka_key import (
    KEY_COLUMN,
    check_key_types,
    key_columns,
    keyed_events,
    keyed_rows,
    keyless,
    optional_key,
    told_by,
    with_key,
)
from calve.sink_core.records.decode.decoded import DECODE, BadValue
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming, raises

PAIR = pa.struct([("id", pa.int64()), ("region", pa.large_string())])
COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
)


def test_a_key_with_fields_has_their_columns_and_any_other_one_of_its_own() -> None:
    assert [(f.name, f.field_type) for f in key_columns("struct<id: long, region: string>").fields] == [
        ("id", LongType()),
        ("region", StringType()),
    ]
    assert [(f.name, f.field_type) for f in key_columns("binary").fields] == [(KEY_COLUMN, BinaryType())]


def test_a_new_table_has_the_keys_columns_first_and_once() -> None:
    columns = with_key(COLUMNS, key_columns("struct<id: string>"), stated=False, table="db.t")
    assert [(f.name, f.field_type) for f in columns.fields] == [("id", StringType()), ("text", StringType())]
    assert len({f.field_id for f in columns.fields}) == 2
    with raises(Code.KAFKA_KEY, "auto_create.columns.id", of=ConfigError):
        with_key(COLUMNS, key_columns("struct<id: string>"), stated=True, table="db.t")


def test_a_column_of_another_type_than_the_keys_is_refused() -> None:
    check_key_types(COLUMNS, [1], "struct<id: long>", table="db.t")
    with raises(Code.KAFKA_KEY, "db.t", "id", of=TableUnusable):
        check_key_types(COLUMNS, [1], "struct<id: int>", table="db.t")


def test_rows_get_the_keys_columns_whatever_the_value_says() -> None:
    rows = pa.RecordBatch.from_pylist([{"id": 5, "text": "a"}, {"id": None, "text": "b"}])
    keys = pa.array([{"id": 1}, {"id": 2}], pa.struct([("id", pa.int64())]))
    assert keyed_rows(rows, keys, ["id"]).to_pylist() == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]


def test_a_key_that_is_missing_in_whole_or_in_part_is_told() -> None:
    keys = pa.array([{"id": 1, "region": "x"}, None, {"id": 2, "region": None}], PAIR)
    rows = keyed_rows(pa.RecordBatch.from_pylist([{"v": 1}] * 3), keys, ["id", "region"])
    assert keyless({name: rows.column(name) for name in ("id", "region")}) == {
        1: Naming("key"),
        2: Naming(of="key: region"),
    }


def test_tombstones_say_the_key_of_the_row_that_goes() -> None:
    broken = BadValue(3, DECODE, "key: not JSON")
    found = told_by(pa.array(["a", None, "b", None], pa.large_string()), [KEY_COLUMN], {3: broken})
    assert (found.columns.to_pylist(), found.good) == ([{KEY_COLUMN: "a"}, {KEY_COLUMN: "b"}], [0, 2])
    assert [(value.index, value.message) for value in found.bad] == [
        (1, Naming("key")),
        (3, "key: not JSON"),
    ]


def event(op: str, before: object = None, after: object = None) -> dict[str, object]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1}


def done(events: Sequence[tuple[dict[str, object], Any]], columns: Schema, key: str) -> tuple[list[Any], list[Any]]:
    """Rows with whether they go; and the verdicts."""
    names = [field.name for field in key_columns(key).fields]
    reads = Events(Debezium(), optional_key(columns, names), names, table="db.t", kafka_key=True)
    decoded = JsonDecoder(reads.schema).decode([json.dumps(each).encode() for each, _ in events])
    kind = PAIR if len(names) > 1 else pa.struct([("id", pa.int64())]) if key != "string" else pa.large_string()
    keys = pa.array([key for _, key in events], kind)
    found = reads.judge(type(decoded)(keyed_events(decoded.columns, keys, names), decoded.good, decoded.bad))
    meant = reads.meant(found.columns)
    rows = list(zip(meant.rows.to_pylist(), meant.deletes.tolist(), strict=True))
    return rows, [(value.index, value.message) for value in found.bad]


def test_an_event_is_about_the_row_of_its_kafka_key() -> None:
    columns = Schema(NestedField(1, KEY_COLUMN, StringType(), required=True), COLUMNS.find_field("text"))
    rows, bad = done(
        [
            (event("c", None, {"text": "a"}), "x"),
            (event("d"), "y"),
            (event("d", {"text": "b"}), None),
            ({"ts_ms": 5}, None),
        ],
        columns,
        "string",
    )
    assert rows == [({KEY_COLUMN: "x", "text": "a"}, False), ({KEY_COLUMN: "y", "text": None}, True)]
    assert bad == [(2, Naming("key"))]


def test_an_event_whose_before_has_another_key_removes_that_row_too() -> None:
    moved = event("u", {"id": 1, "text": "a"}, {"id": 2, "text": "b"})
    rows, _ = done([(moved, {"id": 2})], COLUMNS, "struct<id: long>")
    assert rows == [({"id": 2, "text": "b"}, False), ({"id": 1, "text": None}, True)]
