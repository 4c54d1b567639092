from __future__ import annotations

import pickle

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.offsets_topic import MIGRATED, key_of, parsed_key, sentinel_key
from tests.codes import raises


def test_it_is_its_fields_in_whatever_order() -> None:
    one, other = FlatMap({"b": 1, "a": "ü"}), FlatMap({"a": "ü", "b": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one.json == '{"a":"ü","b":1}'
    assert FlatMap.parsed(one.json) == one == pickle.loads(pickle.dumps(one))  # noqa: S301 - ours
    assert dict(one) == {"a": "ü", "b": 1}


@pytest.mark.parametrize(("left", "right"), [("1", "true"), ("1", "1.0"), ("0", "null"), ('"1"', "1")])
def test_what_json_tells_apart_differs(left: str, right: str) -> None:
    assert FlatMap.parsed(f'{{"a": {left}}}') != FlatMap.parsed(f'{{"a": {right}}}')


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a": [1]}', ["a: ", "[1]"]),
        ('{"a": {"b": 1}}', ["a: ", "{'b': 1}"]),
        ("[1]", ["[1]"]),
        ("{", ["'{'"]),
        ('{"a": NaN}', ["a: ", "nan"]),
    ],
)
def test_what_is_not_flat_is_refused_by_its_field(text: str, named: list[str]) -> None:
    with raises(Code.NOT_FLAT, *named):
        FlatMap.parsed(text)


def test_keys_are_those_of_connect() -> None:
    partition = FlatMap({"file": "a"})
    assert key_of("shöp", partition) == '["shöp",{"file":"a"}]'.encode()
    # As Connect may have written it: spaces, another order.
    assert parsed_key(b'["shop", {"file" : "a"}]') == ("shop", partition)
    assert parsed_key(sentinel_key("shop")) == ("shop", None)
    assert MIGRATED.json == '{"migrated":true}'


@pytest.mark.parametrize("key", [None, b"", b"text", b'["a",{"b":[1]}]', b"[1,{}]", b'["a",{},{}]', b'{"a":1}'])
def test_keys_of_others_are_none(key: bytes | None) -> None:
    assert parsed_key(key) is None
