"""What a schema costs ends, whatever is registered: beyond it there is no schema, and nothing is built that long."""

from __future__ import annotations

import json
import time

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, LongType, NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.records.avro.columns import avro_columns
from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import is_for_many_at_once, writer_schema
from calve.sink_core.records.columns.checked import Unfit
from calve.sink_core.records.decode.decoded import DECODE
from calve.sink_core.records.json_schema.columns import json_schema_columns
from calve.sink_core.records.json_schema.decoder import json_schema
from calve.sink_core.records.protobuf.columns import protobuf_columns
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.protobuf.schema import Messages, proto_file
from tests.codes import names, raises
from tests.unit.records.avro.records import zigzag
from tests.unit.records.decode.outcomes import outcomes
from tests.unit.records.hostile_schemas import chain, definitions, record, twice, twice_of_messages
from tests.unit.records.protobuf.messages import HEADER, OneFile

ID = Schema(NestedField(1, "id", LongType(), required=False))
UNFIT = pytest.mark.parametrize("there", [None, ()], ids=["new table", "table"])


@UNFIT
def test_columns_of_types_that_name_types_are_counted_before_they_are_built(there: tuple[str, ...] | None) -> None:
    schema = writer_schema("schema id 7", json.dumps(record(id="long", r=twice(15))))
    with raises(Code.SCHEMA_TOO_LARGE, "schema id 7", "20,000"):
        avro_columns(schema, Unfit(there))
    messages = Messages(OneFile(proto_file("schema id 7", twice_of_messages(15))))
    with raises(Code.SCHEMA_TOO_LARGE, "schema id 7", "20,000"):
        protobuf_columns(messages.writer_of(HEADER + b"\0"), Unfit(there))


def test_columns_of_references_to_references_are_counted_before_they_are_built() -> None:
    schema = json_schema("schema id 7", json.dumps({"type": "object", **definitions(15)}))
    with raises(Code.SCHEMA_TOO_LARGE, "schema id 7", "20,000"):
        json_schema_columns(schema)


@UNFIT
def test_columns_go_only_so_deep(there: tuple[str, ...] | None) -> None:
    avro_columns(writer_schema("s", json.dumps(chain(50))))
    with raises(Code.SCHEMA_TOO_LARGE, "schema id 7", 50):
        avro_columns(writer_schema("schema id 7", json.dumps(chain(90))), Unfit(there))


def test_a_record_whose_schema_names_types_that_take_no_bytes_is_told_in_time() -> None:
    """It has as many parts as bytes could not be read in a day, and takes none."""
    schema = writer_schema("schema id 7", json.dumps(record(id="long", r=twice(18))))
    assert not is_for_many_at_once(schema)
    [(stage, message)] = outcomes(AvroDecoder(ID, OneSchema(schema)).decode([zigzag(5)]), 1)
    assert stage == DECODE
    names(message, "schema id 7", "10,000")


def test_a_record_of_many_small_parts_is_read() -> None:
    schema = writer_schema("s", json.dumps(record(id="long", many={"type": "array", "items": twice(2, "boolean")})))
    values = zigzag(5) + zigzag(30_000) + b"\1\0\1\0" * 30_000 + zigzag(0)
    assert outcomes(AvroDecoder(ID, OneSchema(schema)).decode([values]), 1) == [{"id": 5}]


def test_unions_within_unions_are_looked_at_once() -> None:
    assert _seconds_of_unions(22) < 100 * _seconds_of_unions(11), "each level may not be two times the one below"


def _seconds_of_unions(levels: int) -> float:
    """CPU-seconds for a record of a union of two records of such a union, and so on, on its way to a column."""
    node: object = "long"
    column: IcebergType = LongType()
    for level in range(levels):
        below = [f"A{level - 1}", f"B{level - 1}"] if level else "long"
        first = {"type": "record", "name": f"A{level}", "fields": [{"name": "f", "type": node}]}
        node = [first, {"type": "record", "name": f"B{level}", "fields": [{"name": "f", "type": below}]}]
        column = StructType(NestedField(level + 2, "f", column, required=False))
    schema = writer_schema("s", json.dumps(record(u=node)))
    table = Schema(NestedField(1, "u", column, required=False))
    began = time.process_time()
    outcomes(AvroDecoder(table, OneSchema(schema)).decode([b"\0" * (levels + 1)]), 1)
    return time.process_time() - began


@pytest.mark.parametrize("size", [4096, 4097])
def test_a_column_of_large_values_that_all_have_as_many_bytes_is_none(size: int) -> None:
    """In memory a null would take as many bytes as a value."""
    written = ["null", {"type": "fixed", "name": "F", "size": size}]
    schema = writer_schema("s", json.dumps(record(id="long", f=written)))
    assert is_for_many_at_once(schema) is (size == 4096)
    if size > 4096:
        with raises(Code.NO_COLUMN_TYPE, "f", size):
            avro_columns(schema)
    table = Schema(NestedField(1, "f", BinaryType(), required=False))
    values = [zigzag(1) + zigzag(0), zigzag(2) + zigzag(1) + b"x" * size]
    found = outcomes(AvroDecoder(table, OneSchema(schema)).decode(values), 2)
    assert found == [{"f": None}, {"f": b"x" * size}]


def test_messages_within_each_other_without_end_are_no_schema() -> None:
    inner = "".join(f"message M{i} {{ M{i + 1} a = 1; }}" for i in range(3_000))
    text = f'syntax = "proto3"; message T {{ int64 id = 1; M0 m = 2; }} {inner} message M3000 {{}}'
    decoder = ProtobufDecoder(ID, Messages(OneFile(proto_file("s", text))))
    values = [HEADER + b"\0" + b"\x08\x05"] * 2_000
    [(stage, message), *_] = outcomes(decoder.decode(values), 2_000)
    assert stage == DECODE
    names(message, "s", "T")
