"""Change events of Debezium: what each kind does to rows, which are bad, and which are left out."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, ListType, LongType, NestedField, StringType, StructType

from calve.sink_core.codes import Code
from calve.sink_core.records.changes.envelopes import Debezium
from calve.sink_core.records.changes.events import Events
from calve.sink_core.records.changes.keys import RowKeyDecoder
from calve.sink_core.records.changes.unavailable import KEEP, UNAVAILABLE
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.decoded import Decoded, Decoder
from calve.sink_core.records.json.columns import infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming, raises

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
)
FIELDS = [{"field": "id", "type": "int64"}, {"field": "text", "type": "string", "optional": True}]
ROW = {"type": "struct", "optional": True, "fields": FIELDS}
ENVELOPE = {
    "type": "struct",
    "fields": [{"field": "before", **ROW}, {"field": "after", **ROW}, {"field": "op", "type": "string"}],
}

Event = Mapping[str, Any]
Done = list[tuple[dict[str, Any], bool]]


def row(key: int, text: str | None = "a") -> dict[str, Any]:
    return {"id": key, "text": text}


def event(op: str, before: Event | None = None, after: Event | None = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"lsn": 7}, **more}


def judged(events: Sequence[Event], reads: Events, decoder: Decoder | None = None) -> Decoded:
    decoder = decoder or JsonDecoder(reads.schema)
    return reads.judge(decoder.decode([json.dumps(each).encode() for each in events]))


def done(*events: Event, **settings: Any) -> Done:
    """Rows, and whether they go."""
    reads = Events(Debezium(), COLUMNS, ["id"], table="db.t", **settings)
    found = judged(events, reads)
    assert found.bad == ()
    meant = reads.meant(found.columns)
    return list(zip(meant.rows.to_pylist(), meant.deletes.tolist(), strict=True))


def bad(*events: Event, columns: Schema = COLUMNS, **settings: Any) -> list[tuple[int, str]]:
    found = judged(events, Events(Debezium(), columns, ["id"], table="db.t", **settings))
    return [(value.index, value.message) for value in found.bad]


def test_rows_come_with_after_and_go_with_before() -> None:
    assert done(event("c", None, row(1)), event("r", None, row(2)), event("u", row(3, "x"), row(3, "y"))) == [
        (row(1), False),
        (row(2), False),
        (row(3, "y"), False),
    ]
    assert done(event("d", row(1))) == [({"id": 1, "text": None}, True)]
    assert done(event("d", row(1)), soft=True) == [(row(1), True)]


def test_another_key_is_another_row_and_the_old_one_goes() -> None:
    assert done(event("u", row(1), row(2, "b"))) == [(row(2, "b"), False), ({"id": 1, "text": None}, True)]
    assert done(event("u", None, row(2, "b"))) == [(row(2, "b"), False)]


def test_events_within_connects_envelope_say_the_same() -> None:
    reads = Events(Debezium(), COLUMNS, ["id"], table="db.t")
    events = [event("c", None, row(1)), event("d", row(2), None)]
    found = judged([{"schema": ENVELOPE, "payload": each} for each in events], reads, ConnectDecoder(reads.schema))
    meant = reads.meant(found.columns)
    assert found.bad == ()
    assert (meant.rows.column("id").to_pylist(), meant.deletes.tolist()) == ([1, 2], [False, True])


@pytest.mark.parametrize(
    "other",
    [
        {"ts_ms": 5},
        {"status": "BEGIN", "id": "571:53", "event_count": None, "ts_ms": 5},
        {"databaseName": "shop", "ddl": "DROP TABLE x", "source": {"lsn": 3}, "ts_ms": 5},
        {"op": "m", "ts_ms": 5, "source": {}, "message": {"prefix": "x", "content": "eA=="}},
    ],
)
def test_heartbeats_transactions_schema_changes_and_messages_are_left_out(other: Event) -> None:
    both: list[dict[str, Any]] = [{}, {"order_by": "source.lsn", "soft": True}]
    for settings in both:
        found = judged([event("c", None, row(1)), other], Events(Debezium(), COLUMNS, ["id"], table="db.t", **settings))
        assert (found.good, found.bad) == ([0], ())


def test_a_truncate_stops_or_is_left_out() -> None:
    with raises(Code.TRUNCATED, "db.t", "on_truncate"):
        judged([event("t")], Events(Debezium(), COLUMNS, ["id"], table="db.t"))
    assert done(event("t"), event("c", None, row(1)), ignores_truncate=True) == [(row(1), False)]


def test_what_says_nothing_that_can_be_understood_is_bad() -> None:
    events = [{"id": 1}, event("x", None, row(1)), event("d"), event("u", row(1)), event("d", {"id": None})]
    assert bad(*events) == [
        (0, Naming("op")),
        (1, Naming("op", "'x'")),
        (2, Naming("before")),
        (3, Naming("after")),
        (4, Naming(of="before.id")),
    ]


def test_a_value_that_was_not_sent_is_refused_by_name_and_null_in_what_goes() -> None:
    columns = Schema(
        *COLUMNS.fields,
        NestedField(3, "raw", BinaryType(), required=False),
        NestedField(4, "tags", ListType(5, StringType(), element_required=False), required=False),
    )
    encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    events = [
        event("u", None, {"id": 1, **more})
        for more in ({"text": UNAVAILABLE}, {"raw": encoded}, {"tags": ["a", UNAVAILABLE]})
    ]
    assert bad(*events, columns=columns) == [
        (0, Naming(UNAVAILABLE, of="after.text")),
        (1, Naming(UNAVAILABLE, of="after.raw")),
        (2, Naming(UNAVAILABLE, of="after.tags")),
    ]
    assert done(event("d", row(1, UNAVAILABLE)), soft=True) == [({"id": 1, "text": None}, True)]


def test_a_row_that_was_changed_keeps_what_was_not_sent_and_one_without_an_old_row_says_so() -> None:
    columns = Schema(
        *COLUMNS.fields,
        NestedField(3, "raw", BinaryType(), required=False),
        NestedField(4, "tags", ListType(5, StringType(), element_required=False), required=False),
    )
    reads = Events(Debezium(), columns, ["id"], table="db.t", keeps_old=True)
    encoded = base64.b64encode(UNAVAILABLE.encode()).decode()
    without = {"text": UNAVAILABLE, "raw": encoded, "tags": [UNAVAILABLE]}
    events = [
        event("u", None, {"id": 1, **without}),
        event("u", row(2), {"id": 2, "text": "b", "raw": encoded, "tags": None}),
        # As Debezium has the insert of a key that was changed, and where that is one event.
        event("c", None, {"id": 3, **without}),
        event("u", row(4), {"id": 5, **without}),
        event("d", {"id": 6, **without}),
    ]
    found = judged(events, reads)
    assert found.bad == ()
    kept = {"text": KEEP, "raw": KEEP.encode(), "tags": [KEEP]}
    none = {"text": UNAVAILABLE, "raw": UNAVAILABLE.encode(), "tags": [UNAVAILABLE]}
    gone = {"text": None, "raw": None, "tags": None}
    assert reads.meant(found.columns).rows.to_pylist() == [
        {"id": 1, **kept},
        {"id": 2, "text": "b", "raw": KEEP.encode(), "tags": None},
        {"id": 3, **none},
        {"id": 5, **none},
        {"id": 6, **gone},
        {"id": 4, **gone},
    ]


def test_a_key_that_was_not_sent_is_refused_whatever_is_kept() -> None:
    columns = Schema(NestedField(1, "id", StringType(), required=True))
    told = Naming(UNAVAILABLE, of="after.id")
    assert bad(event("u", None, {"id": UNAVAILABLE}), columns=columns, keeps_old=True) == [(0, told)]


def test_a_value_within_a_struct_that_was_not_sent_is_refused() -> None:
    inner = StructType(NestedField(4, "w", StringType(), required=False))
    columns = Schema(*COLUMNS.fields, NestedField(3, "s", inner, required=False))
    told = Naming(UNAVAILABLE, of="after.s")
    events = [event("u", None, {"id": 1, "s": value}) for value in (None, {"w": None}, {"w": UNAVAILABLE}, {"w": "x"})]
    for keeps_old in (False, True):
        assert bad(*events, columns=columns, keeps_old=keeps_old) == [(2, told)]


def test_what_stands_for_a_value_that_was_not_sent_is_none_that_can_be_sent() -> None:
    columns = Schema(*COLUMNS.fields, NestedField(3, "raw", BinaryType(), required=False))
    events = [event("u", None, {"id": 1, "raw": base64.b64encode(raw).decode()}) for raw in (b"x", KEEP.encode())]
    told = Naming(repr(KEEP), of="after.raw")
    assert bad(*events, columns=columns, keeps_old=True) == [(1, told)]
    assert bad(*events, columns=columns) == []


@pytest.mark.parametrize("key", [b'1,"x":2', b"1}", b"[1", b"", b'1 ,"id": 2'])
def test_a_tombstone_whose_key_is_none_of_the_tables_takes_no_row(key: bytes) -> None:
    found = RowKeyDecoder(Schema(COLUMNS.fields[0])).decode([b"1", key, b" 2 "])
    assert (found.columns.column("id").to_pylist(), [verdict.index for verdict in found.bad]) == ([1, 2], [1])


def test_the_order_of_an_event_goes_with_its_rows() -> None:
    found = done(event("u", row(1), row(2)), order_by="source.lsn", soft=True)
    assert found == [({**row(2), "_order": 7}, False), ({**row(1), "_order": 7}, True)]
    assert done(event("c", None, row(2)), order_by="ts_ms", soft=True) == [({**row(2), "_order": 1}, False)]
    lacking = Naming(of="source.lsn")
    assert bad(event("c", None, row(1), source={}), order_by="source.lsn", soft=True) == [(0, lacking)]


def test_columns_of_a_new_table_are_those_of_its_rows() -> None:
    schema = infer_schema([json.dumps(event("c", None, row(1))).encode()])
    assert [field.name for field in Debezium().row_columns(schema, table="db.t").fields] == ["id", "text"]
    with raises(Code.NO_SAMPLE, "db.t"):
        Debezium().row_columns(COLUMNS, table="db.t")


changes = st.lists(st.tuples(st.sampled_from("crud"), st.integers(0, 3), st.integers(0, 3), st.text("ab", max_size=2)))


@given(changes)
def test_events_one_after_the_other_make_a_dictionary(given_changes: Sequence[tuple[str, int, int, str]]) -> None:
    wanted, table = dict[int, str](), dict[int, str]()
    for op, key, old, text in given_changes:
        if op == "d":
            wanted.pop(old, None)
            found = done(event("d", row(old)))
        else:
            if op == "u":
                wanted.pop(old, None)
            wanted[key] = text
            found = done(event(op, row(old) if op == "u" else None, row(key, text)))
        for its, goes in found:
            if goes:
                table.pop(its["id"], None)
            else:
                table[its["id"]] = its["text"]
    assert table == wanted
