"""What SQL sees of a record's key: a struct or a single value, by the format, or an error that says it is the key's."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import FormatsByTopic, KeySettings, SchemaFile, TopicFormat, ValueSettings
from calve.sink_core.config.sink_source import TopicFormats
from calve.sink_core.records.columns.kafka_column import RAW_KEY
from calve.sink_core.records.decode.decoded import DECODE, FIT
from calve.sink_core.records.keys import KeyDecoder, KeyReader
from tests.codes import Naming, raises
from tests.schema_registry import plain

USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": ["null", "string"]}],
}
CONNECT_USER = {
    "type": "struct",
    "fields": [{"field": "id", "type": "int64"}, {"field": "region", "type": "string", "optional": True}],
}


def avro(schema: object) -> ValueSettings:
    return ValueSettings("avro", schema=SchemaFile("key.avsc", json.dumps(schema)))


def envelope(schema: object, payload: object) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


AS_USER = "struct<id: long, region: string>"


@pytest.mark.parametrize(
    ("key_format", "as_type", "key", "seen"),
    [
        (ValueSettings("string"), "string", "kjé".encode(), "kjé"),
        (ValueSettings("json"), AS_USER, b'{"id": 7, "more": 1}', {"id": 7, "region": None}),
        (ValueSettings("json"), "long", b"7", 7),
        (ValueSettings("json"), "decimal(5,2)", b"1.25", Decimal("1.25")),
        (ValueSettings("json"), "string", b' "a"', "a"),
        (ValueSettings("json"), "list<int>", b"[1, 2]", [1, 2]),
        (ValueSettings("connect_json"), AS_USER, envelope(CONNECT_USER, {"id": 7, "region": "no"}), None),
        (ValueSettings("connect_json"), "string", envelope({"type": "string"}, "a"), "a"),
        (ValueSettings("connect_json"), "long", envelope({"type": "int32", "optional": True}, 7), 7),
        (ValueSettings("connect_json"), "long", envelope(None, 7), 7),
        (avro(USER), AS_USER, plain(USER, {"id": 7, "region": "no"}), None),
        (avro("long"), "long", plain("long", 7), 7),
        (avro(["null", "string"]), "string", plain(["null", "string"], "a"), "a"),
    ],
)
def test_a_key_is_read_as_its_format_says(key_format: ValueSettings, as_type: str, key: bytes, seen: object) -> None:
    array, good, bad = KeyDecoder(KeySettings(key_format, as_type)).decode([key, key])
    assert not bad
    assert list(good) == [0, 1]
    assert array.to_pylist() == [{"id": 7, "region": "no"} if seen is None else seen] * 2


@pytest.mark.parametrize(
    ("key_format", "as_type", "key", "stage", "named"),
    [
        (ValueSettings("string"), "string", b"\xff", DECODE, ["UTF-8"]),
        (ValueSettings("json"), AS_USER, b'{"id": "x"}', FIT, []),
        (ValueSettings("json"), "long", b"{", DECODE, []),
        (ValueSettings("json"), "long", b'1, "key": 2', DECODE, []),
        (ValueSettings("json"), "long", b'"1"', FIT, []),
        (ValueSettings("json"), "long", b"null", FIT, []),
        (ValueSettings("connect_json"), "long", b"7", DECODE, []),
        (
            ValueSettings("connect_json"),
            "long",
            envelope({"type": "string"}, "7"),
            FIT,
            ["string"],
        ),
        (avro("long"), "long", b"", DECODE, []),
        (avro(USER), "long", plain(USER, {"id": 7, "region": "no"}), FIT, ["record", "long"]),
        (avro("long"), AS_USER, b"\x0e", FIT, ["key.avsc", "long"]),
    ],
)
def test_one_that_cannot_be_is_told_apart(
    key_format: ValueSettings, as_type: str, key: bytes, stage: str, named: list[str]
) -> None:
    _, good, [bad] = KeyDecoder(KeySettings(key_format, as_type)).decode([key])
    assert (list(good), bad.index, bad.stage) == ([], 0, stage)
    assert bad.message == Naming(*named, of="key")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (KeySettings(ValueSettings("json"), "longer"), Code.NO_TYPE),
        (KeySettings(ValueSettings("protobuf"), "long"), Code.PROTOBUF_KEY),
    ],
)
def test_a_type_that_keys_cannot_be_is_refused(settings: KeySettings, code: Code) -> None:
    with raises(code, "source.key.as", settings.as_type):
        KeyDecoder(settings)


def test_each_slice_has_its_own_format() -> None:
    number, text, nothing = (
        KeySettings(ValueSettings("json"), "long"),
        KeySettings(avro("long"), "long"),
        KeySettings(ValueSettings("none")),
    )
    keys = [b"1", plain("long", 2), b"raw", b"x", None, b"left out"]
    reader = KeyReader([number, text, KeySettings(), nothing])
    read = reader.read(lambda: keys, np.array([0, 1, 2, 0, 0, 3], np.int64))
    assert list(read.bad) == [3]
    long = KeyDecoder(number).type
    assert read.of(long, range(6)).to_pylist() == [1, 2, None, None, None, None]
    assert read.of(RAW_KEY, range(6)).to_pylist() == [*keys[:5], None]


def test_bytes_that_a_key_says_are_not_the_keys_own() -> None:
    base64, avros = KeySettings(ValueSettings("json"), "binary"), KeySettings(avro("bytes"), "binary")
    keys = [b'"AQI="', plain("bytes", b"\1\2"), b"raw", None, b"{"]
    read = KeyReader([base64, avros, KeySettings()]).read(lambda: keys, np.array([0, 1, 2, 0, 0], np.int64))
    assert list(read.bad) == [4]
    assert read.of(RAW_KEY, range(5)).to_pylist() == [b"\1\2", b"\1\2", b"raw", None, None]
    assert read.of(RAW_KEY, [2, 0]).to_pylist() == [b"raw", b"\1\2"]


def test_a_topic_found_later_is_of_one_entry_only() -> None:
    entries = [TopicFormats(topics_regex=regex, value={"type": "string"}) for regex in ("a.*", ".*b")]  # pyright: ignore[reportArgumentType]
    found = FormatsByTopic(others=tuple((entry, TopicFormat()) for entry in entries))
    assert found.of("ax") == found.of("xb") == found.of("x") == TopicFormat()
    with raises(Code.TWO_FORMATS, "source.formats", "ab", 0, 1):
        found.of("ab")
