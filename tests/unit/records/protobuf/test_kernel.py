"""Messages that the kernel reads come to the same as those that are parsed one by one, whatever their schema is."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from google.protobuf.message_factory import GetMessageClass
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calve.sink_core import compiled
from calve.sink_core.packed import packed
from calve.sink_core.records.columns.arrow import file_schema
from calve.sink_core.records.columns.names import EXACT, names_of
from calve.sink_core.records.decode.decoded import Decoded
from calve.sink_core.records.protobuf.columns import protobuf_columns
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.protobuf.layout import layout
from calve.sink_core.records.protobuf.schema import Messages, MessageSchema, ProtoFile
from tests.unit.records.protobuf.any_bytes import NO_TEXTS, any_message, damaged, varint
from tests.unit.records.protobuf.any_schema import any_columns, any_file
from tests.unit.records.protobuf.messages import HEADER, OneFile, file, messages

ALL = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Colour { NONE = 0; RED = 1; FAR = 99; }
message Inner { string name = 1; optional sint32 x = 2; repeated Inner2 deep = 3; }
message Inner2 { fixed32 a = 1; repeated bool yes = 2; }
message All {
  int32 a = 1; int64 b = 2; uint32 c = 3; uint64 d = 4; sint32 e = 5; sint64 f = 6; fixed32 g = 7; fixed64 h = 8;
  sfixed32 i = 9; sfixed64 j = 10; float k = 11; double l = 12; bool m = 13; string n = 14; bytes o = 15; Colour p = 16;
  optional int32 q = 17; Inner r = 18; oneof choice { string s = 19; Inner t = 20; } google.protobuf.Timestamp u = 21;
  google.protobuf.Int64Value v = 22; repeated string w = 23; repeated sint64 x = 24; repeated Inner y = 25;
  repeated Colour z = 26 [packed = false]; map<string, Inner> left_out = 27;
}
"""
OF_ALL = HEADER + b"\x02\x04"
INDEXES = {0: [b"\0"] * 9 + [b"\x02\x00"], 1: [b"\x02\x02"] * 9 + [b"\x02\x82\x00"]}
NO_HEADERS = [b"", b"\0\0\0\0\x08\0", HEADER, HEADER + b"\x02", HEADER + b"\x02\x20", HEADER + b"\xff" * 12]


class Both:
    """Decoders of the same values, with the kernel and without."""

    def __init__(self, of: ProtoFile, table: Schema, patch: pytest.MonkeyPatch, *, any_case: bool) -> None:
        names = names_of(table, None, any_case=True) if any_case else EXACT
        made = [ProtobufDecoder(table, Messages(OneFile(of)), ("add_column", "widen"), names) for _ in range(2)]
        self._kernel, self._plain = made
        self._patch = patch

    def agree(self, values: list[bytes]) -> int:
        """How many of the values are good."""
        self._patch.setattr(compiled, "usable", lambda *_: True)
        found = self._kernel.decode(values)
        self._patch.setattr(compiled, "usable", lambda *_: False)
        expected = self._plain.decode(values)
        assert _verdict(found) == _verdict(expected), values
        assert found.columns.schema == expected.columns.schema
        assert found.columns.equals(expected.columns) or repr(found.columns.to_pylist()) == repr(
            expected.columns.to_pylist()
        ), values
        return len(found.columns)


def _verdict(decoded: Decoded) -> object:
    decoded.columns.validate(full=True)
    return decoded.good, decoded.bad, decoded.wanted, dict(decoded.dropped)


def any_values(of: ProtoFile, chance: random.Random, odd: float) -> list[bytes]:
    kinds = list(of.file.message_types_by_name.values())
    found = list[bytes]()
    for _ in range(chance.randint(1, 40)):
        which = int(chance.random() < 0.2)
        value = HEADER + chance.choice(INDEXES[which]) + any_message(kinds[which], chance, odd / 10)
        if chance.random() < odd:
            value = damaged(value, chance) if chance.random() < 0.7 else chance.choice(NO_HEADERS)
        found.append(value)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_any_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _any_messages(seed, 16, monkeypatch)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(100, 130))
def test_any_messages_at_length(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _any_messages(seed, 100, monkeypatch)


def _any_messages(seed: int, schemas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    for _ in range(schemas):
        drawn = any_file(chance)
        table = any_columns(list(drawn.file.message_types_by_name.values())[:2], chance)
        both = Both(drawn, table, monkeypatch, any_case=chance.random() < 0.1)
        for odd in (0.0, 0.1, 0.0, 0.5, 0.0, 0.1, 0.02, 0.0):
            both.agree(any_values(drawn, chance, odd))


def all_there(scale: int) -> bytes:
    """A message with each field, its lists of as many elements; numbers are of the least and the greatest."""
    made = GetMessageClass(messages(ALL).writer_of(OF_ALL).descriptor)(
        **dict.fromkeys("aei", -(2**31)),
        **dict.fromkeys("bfj", -(2**63)),
        **dict.fromkeys("cg", 2**32 - 1),
        **dict.fromkeys("dh", 2**64 - 1),
        k=0.5,
        l=1e300,
        m=True,
        n="Größe \N{GRINNING FACE}",
        o=b"\0\xff",
        p=99,
        q=0,
        w=["a", ""] * scale,
        x=[-1, 2**63 - 1] * scale,
        z=[99, 0] * scale,
    )
    made.r.name, made.t.x, made.v.value = "r", -5, 0
    made.u.FromMicroseconds(-62_135_596_800_000_000)
    for number in range(scale):
        made.y.add(name=f"{number}").deep.add(yes=[True, False]).a = number
    made.left_out["a"].name = "left out"
    return OF_ALL + made.SerializeToString()


def columns_of_all() -> tuple[MessageSchema, Schema]:
    schema = messages(ALL).writer_of(OF_ALL)
    return schema, Schema(*(of for of in protobuf_columns(schema).fields if of.name != "left_out"))


def test_what_may_be_is_no_suspect_and_what_is_odd_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, columns = columns_of_all()
    table = layout(schema.descriptor, file_schema(columns), EXACT)
    assert table is not None
    good, nothing = all_there(40), OF_ALL
    values = [good, good + b"\xfa\x3e\x01x", nothing, good + b"\x0a", good, nothing]
    read, suspect = table.read(packed(values), len(OF_ALL))
    assert suspect.tolist() == [False, True, False, True, False, False]
    assert len(read) == 4
    assert Both(file(ALL), columns, monkeypatch, any_case=False).agree(values) == 4


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\xfa\x3e\x01x", id="a field that the schema lacks"),
        pytest.param(b"\x09" + bytes(8), id="another wire type"),
        pytest.param(b"\x0b\x0c", id="a group"),
        pytest.param(b"\x08", id="no value"),
        pytest.param(b"\x3d\0\0", id="half a word"),
        pytest.param(b"\x72\x02a", id="half a text"),
        pytest.param(b"\x92\x01\x02\x0a\x01a", id="more than the message around it"),
        pytest.param(b"\xc2\x01\x01\x80", id="half a number of many"),
        pytest.param(b"\x88\x80\x80\x80\x80\0\x01", id="a tag of six bytes"),
        pytest.param(b"\x72\x81\x80\x80\x80\x80\0a", id="a size of six bytes"),
        pytest.param(b"\x10" + b"\xff" * 9 + b"\x02", id="more than 64 bits"),
        pytest.param(b"\x10" + b"\x80" * 10 + b"\0", id="eleven bytes"),
        pytest.param(b"\x08" + varint(2**31), id="no int32"),
        pytest.param(b"\x28" + varint(2**32), id="no sint32"),
        pytest.param(b"\x18" + varint(2**32), id="no uint32"),
        pytest.param(b"\x68\x02", id="no bool"),
        pytest.param(b"\x80\x01\x07", id="no value of the enum"),
        pytest.param(b"\x92\x01\0\x92\x01\0", id="a message twice"),
        pytest.param(b"\x9a\x01\0\xa2\x01\0", id="both of one"),
        pytest.param(b"\xaa\x01\x02\x10\x01", id="a nanosecond"),
        pytest.param(b"\xaa\x01\x0b\x10" + varint(-1000), id="before its second"),
        pytest.param(b"\xaa\x01\x06\x10" + varint(10**9), id="a second of nanoseconds"),
        pytest.param(b"\xaa\x01\x07\x08" + varint(253_402_300_800), id="the year 10000"),
        pytest.param(b"\x72\x01\xc3\x80\x01\x01", id="a text that the next field would complete"),
        *(pytest.param(b"\x72" + varint(len(text)) + text, id=f"no text: {text.hex()}") for text in NO_TEXTS),
    ],
)
def test_what_is_odd_is_a_suspect(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, columns = columns_of_all()
    table = layout(schema.descriptor, file_schema(columns), EXACT)
    assert table is not None
    values = [all_there(1), OF_ALL + body, all_there(2)]
    assert table.read(packed(values), len(OF_ALL))[1].tolist() == [False, True, False]
    Both(file(ALL), columns, monkeypatch, any_case=False).agree(values)


def test_messages_in_messages_are_read_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'syntax = "proto3"; message Deep { Deep inner = 1; int64 id = 2; }'
    values = list[bytes]()
    for depth in (0, 1, 64, 65, 70, 99, 200):
        body = b"\x10\x01"
        for _ in range(depth):
            body = b"\x0a" + varint(len(body)) + body + b"\x10\x01"
        values.append(HEADER + b"\0" + body)
    columns = Schema(NestedField(1, "id", LongType()))
    assert suspects(text, columns, values) == [False] * 3 + [True] * 4
    assert Both(file(text), columns, monkeypatch, any_case=False).agree(values) == 6


def test_defaults_and_groups_of_proto2(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    syntax = "proto2";
    enum Colour { RED = 1; FAR = 99; }
    message Old {
      optional Colour a = 1 [default = FAR]; optional float b = 2 [default = -0.5]; optional double c = 3 [default = 7];
      optional bool d = 4 [default = true]; optional sfixed32 e = 5 [default = -3]; optional int64 f = 6;
      repeated group Part = 7 { optional int32 n = 1; }
    }
    """
    columns = protobuf_columns(messages(text).writer_of(HEADER + b"\0"))
    values = [HEADER + b"\0" + body for body in (b"", b"\x30\x01", b"\x3b\x08\x01\x3c", b"\x3a\x02\x08\x01")]
    assert suspects(text, columns, values) == [False, False, True, True]
    assert Both(file(text), columns, monkeypatch, any_case=False).agree(values) == 3


def test_room_is_made_for_the_field_that_is_long_and_no_other() -> None:
    fields = " ".join(f"repeated bool f{n} = {n};" for n in range(1, 51))
    schema = messages(f'syntax = "proto3"; message Wide {{ {fields} }}').writer_of(HEADER + b"\0")
    table = layout(schema.descriptor, file_schema(protobuf_columns(schema)), EXACT)
    assert table is not None
    long = HEADER + b"\0\x0a" + varint(100_000) + bytes(100_000)
    tracemalloc.start()
    try:
        found, _ = table.read(packed([long]), len(HEADER) + 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.column("f1")[0]) == 100_000
    # A word for each element, and twice as many while room is made: 50 times as much for all fields.
    assert peak < 10 * 8 * 100_000


def suspects(text: str, columns: Schema, values: list[bytes]) -> list[bool]:
    """Which of the values, of the file's first message, are suspects."""
    table = layout(messages(text).writer_of(HEADER + b"\0").descriptor, file_schema(columns), EXACT)
    assert table is not None
    return table.read(packed(values), len(HEADER) + 1)[1].tolist()


def test_headers_are_looked_at_once_for_all_values_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, columns = columns_of_all()
    schemas, seen = messages(ALL), list[bytes]()
    opened = schemas.opened
    monkeypatch.setattr(schemas, "opened", lambda value: seen.append(value) or opened(value))
    monkeypatch.setattr(compiled, "usable", lambda *_: True)
    inner, of_all = HEADER + b"\0", all_there(1)
    decoded = ProtobufDecoder(columns, schemas).decode([of_all, inner, HEADER + b"\x02\x02"] * 100 + [b"", HEADER])
    assert len(decoded.columns) == 300
    assert len(seen) == 5
