"""Records with fields that no column takes are bad, in every format, and their neighbours are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from calve.sink_core.records.columns.names import names_of
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.strict import StrictDecoder
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming
from tests.unit.records.decode.outcomes import outcomes

TABLE = schema_of({"id": "long", "l": "list<struct<a: long>>"})
WHOLE = {"id": 1, "l": [{"a": 1}]}
REFUSED = [
    ({"id": 2, "ID": 3}, "ID"),
    ({"id": 2, "": 3}, ""),
    ({"id": 2, "l": [{"a": 1, "z": 1}, {"z": 2}, {"z": 3}]}, "l.element.z"),
    ({"id": 2, "b": 1, "a": 1}, "a"),
]


def strict(schema: Schema = TABLE, ignored: tuple[str, ...] = ()) -> StrictDecoder:
    return StrictDecoder(JsonDecoder(schema, (), names_of(schema, None, ignored=ignored, strict=True)))


def encoded(*records: dict[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


@pytest.mark.parametrize(("record", "field"), REFUSED)
def test_a_record_with_such_a_field_is_bad_and_its_neighbours_are_not(record: dict[str, Any], field: str) -> None:
    decoded = strict().decode(encoded(WHOLE, record, WHOLE))
    first, (stage, message), last = outcomes(decoded, 3)
    assert (first, stage, last) == (WHOLE, "fit", WHOLE)
    assert message.partition(": ")[0] == field
    assert decoded.dropped == {}


def test_a_null_and_what_is_ignored_is_nothing() -> None:
    decoded = strict(ignored=("debug",)).decode(encoded({**WHOLE, "x": None}, {**WHOLE, "debug": {"y": 1}}))
    assert outcomes(decoded, 2) == [WHOLE, WHOLE]


def test_what_else_is_bad_stays_so() -> None:
    decoded = strict().decode([b"{", *encoded(WHOLE, {"id": "x", "z": 1}, {"id": 1, "z": 1})])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, "decode"), (2, "fit"), (3, "fit")]
    assert decoded.bad[1].message.startswith("id: ")
    assert decoded.good == [1]


@given(st.lists(st.booleans(), max_size=200))
def test_each_record_is_judged_alone(unknown: list[bool]) -> None:
    records = [{"id": i, **({"z": 1} if there else {})} for i, there in enumerate(unknown)]
    decoded = strict().decode(encoded(*records))
    assert [bad.index for bad in decoded.bad] == [i for i, there in enumerate(unknown) if there]


def test_of_connects_records_those_are_bad_whose_schema_has_such_a_field() -> None:
    def value(*names: str) -> bytes:
        fields = [{"type": "int64", "field": name} for name in names]
        return encoded({"schema": {"type": "struct", "fields": fields}, "payload": dict.fromkeys(names, 1)})[0]

    table = schema_of({"id": "long"})
    decoder = StrictDecoder(ConnectDecoder(table, (), names_of(table, None, strict=True)))
    decoded = decoder.decode([value("id"), value("id", "_pos"), value("id")])
    assert outcomes(decoded, 3) == [{"id": 1}, ("fit", Naming(of="_pos")), {"id": 1}]
