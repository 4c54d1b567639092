"""Which records each table takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from calve.sink_core.config.routing import ALL, Condition, Naming, Rule
from calve.sink_core.records.json.format import Json
from calve.sink_core.records.routing_field import TextField
from calve.sink_core.sink.write.router import Routed, Router

TOPICS = ["a", "b"]
FORMATS = [Json()] * len(TOPICS)
IS_BIG = Condition("size.kind", "big|huge")
BY_KIND = Naming(0, Condition("kind", "[a-z]+"), None, {"a": "t.{value}", "b": "t.b_{value}"}, frozenset({"t.taken"}))


def routed(router: Router, *records: Any, slices: Sequence[int] = ()) -> Routed:
    values = [json.dumps(record).encode() if not isinstance(record, bytes) else record for record in records]
    return router.route(values, np.array(slices or [0] * len(values), np.int64))


def parts(found: Routed) -> dict[int, list[int] | None]:
    return {number: None if part is None else part.tolist() for number, part in found.parts.items()}


def test_without_rules_all_tables_take_all() -> None:
    found = routed(Router([("x", ALL), ("y", ALL)], (), TOPICS, FORMATS), b"not looked at")
    assert parts(found) == {0: None, 1: None}
    assert not found.bad
    assert not len(found.unrouted)


def test_topics() -> None:
    router = Router([("x", Rule(frozenset("a"))), ("y", Rule(frozenset("c")))], (), TOPICS, FORMATS)
    found = routed(router, {}, {}, {}, slices=[1, 0, 1])
    assert parts(found) == {0: [1]}
    assert found.unrouted.tolist() == [0, 2]


def test_a_field_decides_and_what_is_no_record_is_bad() -> None:
    router = Router([("x", Rule(None, IS_BIG)), ("y", Rule(frozenset("b")))], (), TOPICS, FORMATS)
    records = ({"size": {"kind": "big"}}, {"size": {"kind": "bigger"}}, {"size": None}, {"size": {"kind": 3}}, b"{")
    found = routed(router, *records)
    assert parts(found) == {0: [0]}
    assert list(found.bad) == [4]
    assert found.bad[4].stage == "decode"
    assert found.unrouted.tolist() == [1, 2, 3]


def test_a_record_may_go_to_many_tables() -> None:
    router = Router([("all", ALL), ("big", Rule(None, IS_BIG)), ("b", Rule(frozenset("b")))], (), TOPICS, FORMATS)
    found = routed(router, {"size": {"kind": "huge"}}, {}, slices=[1, 0])
    assert parts(found) == {0: None, 1: [0], 2: [0]}


def test_a_field_names_the_table() -> None:
    tables = [("t.x", Rule(naming=0)), ("t.b_x", Rule(naming=0)), ("t.own", Rule(frozenset()))]
    router = Router(tables, [BY_KIND], TOPICS, FORMATS)
    records = [{"kind": k} for k in ("x", "new", "x", "taken", "own", "NO", "x")]
    found = routed(router, *records, slices=[0, 0, 1, 0, 0, 0, 0])
    assert parts(found) == {0: [0, 6], 1: [2]}
    assert found.unrouted.tolist() == [3, 4, 5]
    assert router.wanted == {"t.new": {"a": [b'{"kind": "new"}']}}


def test_text_numbers_and_booleans_are_values() -> None:
    reader = TextField("a.b", Json())
    values = [b'{"a":{"b":"x"}}', b'{"a":{"b":12}}', b'{"a":{"b":true}}', b'{"a":{"b":1.5}}', b'{"a":{"b":[1]}}', b"{}"]
    for _ in range(2):
        assert reader.read(values) == (["x", "12", "true", None, None, None], {})
    texts, bad = reader.read([b'{"a":', b'{"a":{"b":7}}'])
    assert (texts, list(bad)) == ([None, "7"], [0])
