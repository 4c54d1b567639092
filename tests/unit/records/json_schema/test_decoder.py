"""Objects behind a schema's id: read as JSON is, whatever their neighbours are."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from calve.sink_core.records.decode.decoded import DECODE, FIT
from calve.sink_core.records.json_schema.decoder import JsonSchema, JsonSchemaDecoder, json_schema
from tests.fuzz import mutated

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "x", DoubleType()),
)
HEADER = b"\0\0\0\0\7"
RECORDS = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "text": st.none() | st.text(st.characters(exclude_categories=("Cs",))),
        "x": st.floats(allow_nan=False, allow_infinity=False),
    },
)


@dataclass(frozen=True)
class OnlySeven:
    """A registry whose only schema is that of id 7."""

    header_bytes: int = 5

    def writer_of(self, value: bytes) -> JsonSchema:
        if value[:5] != HEADER:
            raise ValueError(f"no such schema: {value[:5].hex()}")
        return json_schema("schema id 7", "{}")


@settings(max_examples=60)
@given(st.lists(st.none() | RECORDS, min_size=1, max_size=8))
def test_each_object_arrives_and_what_has_no_schema_is_bad(records: list[dict[str, object] | None]) -> None:
    values = [b"\0\0\0\0\x08{}" if r is None else HEADER + json.dumps(r).encode() for r in records]
    decoded = JsonSchemaDecoder(SCHEMA, OnlySeven()).decode(values)
    bad = [place for place, r in enumerate(records) if r is None]
    assert [(value.index, value.stage) for value in decoded.bad] == [(place, DECODE) for place in bad]
    good = [{"text": None, "x": None, **r} for r in records if r is not None]
    assert decoded.columns.to_pylist() == good
    found = list(range(len(values))) if decoded.good is None else decoded.good
    assert found == [i for i in range(len(values)) if i not in bad]


def test_verdicts_carry_the_place_among_all_values() -> None:
    values = [b"", HEADER + b'{"id": "x"}', HEADER + b'{"id": 1}', HEADER + b"[]", HEADER]
    decoded = JsonSchemaDecoder(SCHEMA, OnlySeven()).decode(values)
    assert [(value.index, value.stage) for value in decoded.bad] == [(0, DECODE), (1, FIT), (3, DECODE), (4, DECODE)]
    assert decoded.good == [2]
    assert decoded.columns.to_pylist() == [{"id": 1, "text": None, "x": None}]


@settings(max_examples=100)
@given(st.lists(mutated(RECORDS.map(lambda r: HEADER + json.dumps(r).encode())), min_size=1, max_size=5))
def test_whatever_the_bytes_each_has_one_verdict(values: list[bytes]) -> None:
    decoded = JsonSchemaDecoder(SCHEMA, OnlySeven()).decode(values)
    good = decoded.good if decoded.good is not None else list(range(len(values)))
    assert sorted([*good, *(value.index for value in decoded.bad)]) == list(range(len(values)))
    decoded.columns.validate(full=True)
