"""Messages of DMS and records with a field that says what became of the row: what each kind does to rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calve.sink_core.codes import Code
from calve.sink_core.records.changes.envelopes import Debezium, Dms, Flat
from calve.sink_core.records.changes.events import Envelope, Events
from calve.sink_core.records.changes.kafka_key import keyed_events, optional_key
from calve.sink_core.records.changes.unavailable import KEEP, UNAVAILABLE
from calve.sink_core.records.columns.evolution import evolved
from calve.sink_core.records.columns.names import names_of
from calve.sink_core.records.json.columns import infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming, raises

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "lsn", LongType(), required=False),
)

Event = dict[str, Any]


def row(key: int, name: str = "a", lsn: int | None = None) -> Event:
    return {"id": key, "name": name, "lsn": lsn}


def message(operation: str | None, data: Event | None, before: Event | None = None, kind: str = "data") -> Event:
    metadata = {
        "timestamp": "2021-02-18T23:57:11.970360Z",
        "record-type": kind,
        "operation": operation,
        "partition-key-type": "schema-table",
        "schema-name": "public",
        "table-name": "people",
        "transaction-id": 87978110091475,
    }
    found = {"data": data, "metadata": metadata, **({"before-image": before} if before else {})}
    return {name: value for name, value in found.items() if value is not None}


def control(operation: str) -> Event:
    return {"control": {"table-def": {}}, **message(operation, None, kind="control")}


def judged(envelope: Envelope, events: Sequence[Event], **settings: Any) -> tuple[list[Any], list[Any], list[int]]:
    """Rows that come or go, verdicts, and which events were good."""
    reads = Events(envelope, COLUMNS, ["id"], table="db.t", **settings)
    found = reads.judge(JsonDecoder(reads.schema).decode([json.dumps(each).encode() for each in events]))
    meant = reads.meant(found.columns)
    rows = list(zip(meant.rows.to_pylist(), meant.deletes.tolist(), strict=True))
    good = list(range(len(events))) if found.good is None else found.good
    return rows, [(value.index, value.message) for value in found.bad], good


def flat() -> Flat:
    return Flat("Op", [field.name for field in COLUMNS.fields])


def test_messages_of_dms_put_and_remove_the_row_in_data() -> None:
    put = [message(operation, row(at, operation)) for at, operation in enumerate(("load", "insert", "update"))]
    rows, bad, _ = judged(Dms(), [*put, message("delete", {"id": 3})])
    assert bad == []
    assert rows == [
        (row(0, "load"), False),
        (row(1, "insert"), False),
        (row(2, "update"), False),
        ({"id": 3, "name": None, "lsn": None}, True),
    ]


def test_a_before_image_with_another_key_removes_that_row() -> None:
    rows, bad, _ = judged(Dms(), [message("update", row(2), {"id": 1}), message("update", row(3), {"id": 3})])
    assert bad == []
    assert rows == [(row(2), False), (row(3), False), ({"id": 1, "name": None, "lsn": None}, True)]


def test_a_row_that_goes_by_a_before_image_has_the_order_of_the_one_that_comes() -> None:
    moved = message("update", row(2, lsn=7), {"id": 1})
    rows, _, _ = judged(Dms(), [moved], order_by="lsn", soft=True)
    assert rows == [(row(2, lsn=7), False), ({"id": 1, "name": None, "lsn": 7}, True)]


def test_control_messages_are_left_out_and_a_truncate_stops_or_is() -> None:
    events = [message("insert", row(1)), control("create-table"), control("drop-table"), control("add-column")]
    rows, bad, good = judged(Dms(), events)
    assert (rows, bad, good) == ([(row(1), False)], [], [0])
    with raises(Code.TRUNCATED, "on_truncate"):
        judged(Dms(), [control("truncate-table")])
    assert judged(Dms(), [control("truncate-table")], ignores_truncate=True) == ([], [], [])


def test_messages_that_say_nothing_known_are_bad() -> None:
    events = [
        {"data": row(1)},
        message("merge", row(1)),
        message("insert", None),
        message("insert", {"id": 1}),
        message("delete", None),
        message("delete", {"name": "a"}),
        message("update", row(1, "__debezium_unavailable_value")),
    ]
    assert judged(Dms(), events)[1] == [
        (0, Naming("metadata.operation")),
        (1, Naming("metadata.operation", "'merge'")),
        (2, Naming("data")),
        (3, Naming(of="data.name")),
        (4, Naming("data")),
        (5, Naming(of="data.id")),
        (6, Naming(UNAVAILABLE, of="data.name")),
    ]
    lacking = Naming(of="lsn")
    assert judged(Dms(), [message("delete", row(1))], order_by="lsn", soft=True)[1] == [(0, lacking)]


def test_only_rows_that_were_changed_keep_what_was_not_sent() -> None:
    lacking = row(1, UNAVAILABLE)
    rows = judged(Dms(), [message(word, lacking) for word in ("load", "insert", "update")], keeps_old=True)[0]
    assert [each["name"] for each, _ in rows] == [UNAVAILABLE, UNAVAILABLE, KEEP]
    events = [{"__op": word, **lacking} for word in ("c", "R", "insert", "u", "UPDATE")]
    rows = judged(Flat("__op", [field.name for field in COLUMNS.fields]), events, keeps_old=True)[0]
    assert [each["name"] for each, _ in rows] == [*[UNAVAILABLE] * 3, KEEP, KEEP]


@pytest.mark.parametrize(
    ("envelope", "event"),
    [
        (Debezium(), lambda row: {"before": {"id": 1, "gone": 1}, "after": row, "op": "u", "source": {"lsn": 5}}),
        (Dms(), lambda row: {**message("update", row), "trace": 5}),
        (Flat("__op", [field.name for field in COLUMNS.fields]), lambda row: {"__op": "u", **row}),
    ],
)
def test_a_table_is_wanted_to_have_what_the_rows_that_come_have(
    envelope: Envelope, event: Callable[[Event], Event]
) -> None:
    reads = Events(envelope, COLUMNS, ["id"], table="db.t")
    decoder = JsonDecoder(reads.schema, ["add_column"], names_of(reads.schema, None, within=reads.rows_at))

    def wanted(row: Event) -> tuple[str, ...]:
        found = decoder.decode([json.dumps(event(row)).encode()]).wanted
        more = evolved(COLUMNS, reads.wanted(found), ["add_column"]) if found else None
        return more.changes if more else ()

    assert wanted({**row(1), "email": "a@b.c", "age": 7}) == ("add email string", "add age long")
    # What else events have is not the table's, and costs no second look at each of them.
    assert wanted(row(1)) == ()
    assert decoder.decode([json.dumps(event(row(1))).encode()]).wanted is None


def test_a_new_table_has_the_columns_of_the_rows() -> None:
    events = [control("create-table"), message("insert", {"id": 1, "name": "a"})]
    schema = infer_schema([json.dumps(each).encode() for each in events])
    assert [field.name for field in Dms().row_columns(schema, table="db.t").fields] == ["id", "name"]
    with raises(Code.NO_SAMPLE, "data"):
        Dms().row_columns(COLUMNS, table="db.t")
    flat_schema = infer_schema([b'{"Op": "I", "id": 1}'])
    assert [field.name for field in flat().row_columns(flat_schema, table="db.t").fields] == ["id"]


def test_a_field_beside_the_row_says_what_became_of_it() -> None:
    events = [{**row(1), "Op": "I"}, {**row(2), "Op": "u"}, {"id": 3, "Op": "D"}, {**row(4), "Op": "DELETE"}]
    rows, bad, _ = judged(flat(), events)
    assert bad == []
    assert rows == [
        (row(1), False),
        (row(2), False),
        ({"id": 3, "name": None, "lsn": None}, True),
        (row(4), True),
    ]
    with raises(Code.TRUNCATED):
        judged(flat(), [{"Op": "t"}])


def test_records_whose_field_says_nothing_known_are_bad() -> None:
    events = [row(1), {**row(1), "Op": "x"}, {"id": 1, "Op": "I"}, {"name": "a", "Op": "D"}, {"Op": "I"}]
    assert judged(flat(), events)[1] == [
        (0, Naming(of="Op")),
        (1, Naming("'x'", of="Op")),
        (2, Naming(of="name")),
        (3, Naming(of="id")),
        (4, Naming(of="id")),
    ]


def test_a_table_may_keep_the_field_as_a_column() -> None:
    columns = Schema(COLUMNS.find_field("id"), NestedField(4, "Op", StringType(), required=False))
    reads = Events(Flat("Op", ["id", "Op"]), columns, ["id"], table="db.t")
    found = reads.judge(JsonDecoder(reads.schema).decode([b'{"Op": "U", "id": 1}']))
    assert reads.meant(found.columns).rows.to_pylist() == [{"id": 1, "Op": "U"}]


def test_records_are_about_the_row_of_their_kafka_key() -> None:
    reads = Events(flat(), optional_key(COLUMNS, ["id"]), ["id"], table="db.t", kafka_key=True)
    decoded = JsonDecoder(reads.schema).decode([b'{"Op": "I", "name": "a", "id": 9}', b'{"Op": "D"}', b'{"Op": "D"}'])
    keys = pa.array([{"id": 1}, {"id": 2}, None], pa.struct([("id", pa.int64())]))
    found = reads.judge(type(decoded)(keyed_events(decoded.columns, keys, ["id"]), decoded.good, decoded.bad))
    meant = reads.meant(found.columns)
    assert (meant.rows.column("id").to_pylist(), meant.deletes.tolist()) == ([1, 2], [False, True])
    assert [value.message for value in found.bad] == [Naming("key")]
