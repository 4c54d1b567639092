"""The columns of a table made for messages of a Protobuf schema."""

from __future__ import annotations

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.records.columns.type_text import spark_type_text
from calve.sink_core.records.protobuf.columns import protobuf_columns
from tests.codes import names, raises
from tests.unit.records.protobuf.messages import HEADER, messages, order_schema, priced


def test_columns_are_those_of_the_message() -> None:
    fields = protobuf_columns(order_schema()).fields
    city = "struct<`name`: string, `x`: double>"
    assert {f.name: spark_type_text(f.field_type).lower() for f in fields} == {
        "id": "bigint",
        "maybe": "int",
        "big": "decimal(20, 0)",
        "word": "bigint",
        "f": "float",
        "d": "double",
        "yes": "boolean",
        "text": "string",
        "raw": "binary",
        "colour": "string",
        "at": "timestamp",
        "took": "decimal(21, 9)",
        "wrapped": "bigint",
        "tags": "array<string>",
        "cities": f"array<{city}>",
        "sizes": "map<string, int>",
        "by_number": f"map<bigint, {city}>",
        "home": city,
        "word_of": "string",
        "city_of": city,
        "colours": "array<string>",
    }
    assert not any(f.required for f in fields)


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ("message A { A a = 1; }", Code.NO_COLUMN_TYPE, ["a", "A"]),
        ("message A { repeated A a = 1; }", Code.NO_COLUMN_TYPE, ["a.element", "A"]),
        ("message A { map<string, A> a = 1; }", Code.NO_COLUMN_TYPE, ["a.value", "A"]),
        (
            "message A { google.protobuf.Struct s = 1; }",
            Code.NO_COLUMN_TYPE,
            ["s.fields.value.struct_value", "google.protobuf.Struct"],
        ),
        ("message A {}", Code.NO_RECORD, ["A"]),
        ("message A { B b = 1; } message B {}", Code.NO_RECORD, ["A"]),
    ],
)
def test_what_no_column_holds_is_refused_by_name(body: str, code: Code, named: list[str]) -> None:
    text = f'syntax = "proto3"; import "google/protobuf/struct.proto"; {body}'
    with raises(code) as raised:
        protobuf_columns(messages(text).writer_of(HEADER + b"\0"))
    names(raised.value.message, "schema id 7", *named)


def test_well_known_files_are_known_and_a_declared_decimal_is_one() -> None:
    columns = {field.name: spark_type_text(field.field_type) for field in protobuf_columns(priced()[1]).fields}
    assert columns == {
        "day": "struct<`year`: int, `month`: int, `day`: int>",
        "price": "decimal(10, 2)",
        "any": "struct<`value`: binary, `precision`: bigint, `scale`: int>",
    }
