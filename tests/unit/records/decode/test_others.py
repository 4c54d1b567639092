"""Fields that no column takes are counted, in every way in which records are read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.columns.names import Names, names_of
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.decoded import DECODE, Decoded
from calve.sink_core.records.decode.others import BEYOND, MOST_NAMES, add, sum_dropped
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.protobuf.schema import Messages, proto_file
from tests.schema_registry import plain
from tests.unit.records.protobuf.messages import OneFile, framed

INNER = StructType(NestedField(11, "a", LongType(), required=False))
PLAIN = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "s", INNER, required=False),
    NestedField(3, "l", ListType(12, StructType(NestedField(13, "a", LongType())), element_required=False)),
)
WITH_MAP = Schema(*PLAIN.fields, NestedField(4, "m", MapType(14, StringType(), 15, INNER, value_required=False)))


def dropped(*records: dict[str, Any], schema: Schema = PLAIN, names: Names | None = None) -> dict[str, int]:
    values = [json.dumps(record).encode() for record in records]
    decoder = JsonDecoder(schema, (), names or names_of(schema, None))
    return dict(decoder.decode(values).dropped)


RECORDS = (
    {"id": 1, "channel": "web", "s": {"a": 1, "b": 2}, "l": [{"a": 1, "z": 3}, {"z": 4}]},
    {"id": 2, "channel": None, "s": {"a": 1}},
    {"id": 3, "channel": "app", "deep": {"x": 1}},
)
EXPECTED = {"channel": 2, "s.b": 1, "l.element.z": 2, "deep": 1}


@pytest.mark.parametrize("schema", [PLAIN, WITH_MAP], ids=["at once", "rewritten"])
def test_values_without_a_column_are_counted_by_dotted_name(schema: Schema) -> None:
    assert dropped(*RECORDS, schema=schema) == EXPECTED
    assert dropped({"id": 1, "m": {"k": {"a": 1, "q": 2}, "n": {"q": 3}}}, schema=WITH_MAP) == {"m.value.q": 2}


def test_a_field_of_several_types_is_counted_as_well() -> None:
    assert dropped({"id": 1, "x": 1}, {"id": 2, "x": "one"}, {"id": 3, "x": [1]}) == {"x": 3}


@pytest.mark.parametrize("number", ["NaN", "-NaN", "Infinity", "-Infinity", "Inf", "-Inf", "1" * 5_000])
@pytest.mark.parametrize("schema", [PLAIN, WITH_MAP], ids=["at once", "rewritten"])
def test_a_number_that_only_the_parser_knows_is_counted_whatever_its_neighbours_are(
    number: str, schema: Schema
) -> None:
    value = b'{"id": 1, "x": %s, "t": "Inf -NaN \\"Inf"}' % number.encode()
    neighbours = [b'{"y": 1}', b'{"y": "of two types"}']
    decoder = JsonDecoder(schema, (), names_of(schema, None))
    assert decoder.decode([value]).dropped == {"x": 1, "t": 1}
    decoded = decoder.decode([value, *neighbours])
    assert (decoded.dropped, decoded.bad) == ({"x": 1, "t": 1, "y": 2}, ())


def test_a_text_without_end_is_looked_at_once_however_many_quotes_it_has() -> None:
    decoder = JsonDecoder(WITH_MAP, (), names_of(WITH_MAP, None))
    decoded = decoder.decode([b'{"id": 1, "x": "' + b'\\"' * 300_000 + b"}"])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, DECODE)]


@pytest.mark.parametrize("word", ["Infx", "Infinit", "+Inf", "inf", "-nan", "I"])
@pytest.mark.parametrize("schema", [PLAIN, WITH_MAP], ids=["at once", "rewritten"])
def test_a_word_that_the_parser_does_not_know_is_no_number(word: str, schema: Schema) -> None:
    decoder = JsonDecoder(schema, (), names_of(schema, None))
    decoded = decoder.decode([b'{"id": 1, "x": %s}' % word.encode(), b'{"id": 2}'])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, DECODE)]


def test_a_bad_neighbour_changes_no_number() -> None:
    values = [*(json.dumps(record).encode() for record in RECORDS), b"{", b'{"id": "one", "channel": "web"}']
    found = JsonDecoder(PLAIN, (), names_of(PLAIN, None)).decode(values)
    assert len(found.bad) == 2
    assert found.dropped == EXPECTED


def test_names_that_are_data_make_no_columns() -> None:
    records = ({"id": i, f"key-{i}": i} for i in range(5_000))
    found = dropped(*records)
    assert len(found) == 5_000
    total = Counter[str]()
    add(total, found)
    assert len(total) == MOST_NAMES + 1
    assert total[BEYOND] == 5_000 - MOST_NAMES


def test_what_is_ignored_is_not_counted() -> None:
    assert dropped(*RECORDS, names=names_of(PLAIN, None, ignored=("channel", "s", "deep.x"))) == {
        "l.element.z": 2,
        "deep": 1,
    }
    assert dropped(*RECORDS, names=names_of(PLAIN, None, ignored=("*",))) == {}


def test_fields_under_other_names_are_no_others() -> None:
    any_case = names_of(PLAIN, None, any_case=True)
    assert dropped({"ID": 1, "Channel": 2, "S": {"A": 1, "B": 2}}, names=any_case) == {"Channel": 1, "s.B": 1}


def test_parts_are_summed_by_table_and_field() -> None:
    parts = [{"t": {"x": 1, "y": 2}}, {"t": {"x": 3}, "u": {"z": 4}}, {}]
    assert sum_dropped(parts) == {"t": {"x": 4, "y": 2}, "u": {"z": 4}}


UNREADABLE = ("id", "ID", "_pos", "s")


def in_avro(table: Schema) -> Decoded:
    inner = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "long"}, {"name": "A", "type": "long"}]}
    fields = [{"name": name, "type": inner if name == "s" else "long"} for name in UNREADABLE]
    written = {"type": "record", "name": "R", "fields": fields}
    value = plain(written, {"id": 1, "ID": 2, "_pos": 3, "s": {"a": 1, "A": 2}})
    return AvroDecoder(table, OneSchema(writer_schema("s", json.dumps(written)))).decode([value, value])


def in_connect(table: Schema) -> Decoded:
    inner = {"type": "struct", "fields": [{"type": "int64", "field": name} for name in "aA"]}
    fields = [{**(inner if name == "s" else {"type": "int64"}), "field": name} for name in UNREADABLE]
    payload = {"id": 1, "ID": 2, "_pos": 3, "s": {"a": 1, "A": 2}}
    value = json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()
    return ConnectDecoder(table).decode([value, value])


def in_protobuf(table: Schema) -> Decoded:
    text = """syntax = "proto3"; message R { int64 id = 1; int64 ID = 2; int64 _pos = 3; S s = 4; }
    message S { int64 a = 1; int64 A = 2; }"""
    file = proto_file("r", text)
    value = framed(GetMessageClass(file.file.message_types_by_name["R"])(id=1), b"\0")
    return ProtobufDecoder(table, Messages(OneFile(file))).decode([value, value])


@pytest.mark.parametrize("decoded", [in_avro, in_connect, in_protobuf])
def test_fields_of_a_schema_that_no_reader_could_read_are_counted(decoded: Callable[[Schema], Decoded]) -> None:
    table = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", INNER, required=False))
    assert decoded(table).dropped == {"ID": 2, "_pos": 2, "s.A": 2}
    # A table may have the one that a new table would leave out.
    other = Schema(NestedField(1, "ID", LongType(), required=False), NestedField(2, "s", INNER, required=False))
    assert decoded(other).dropped == {"id": 2, "_pos": 2, "s.A": 2}
