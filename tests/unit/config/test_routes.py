"""Which tables a pipeline file stands for, and which records each of them gets."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.config.routing import ALL, Rule, fill_value, gives, matching
from calve.sink_core.error_codes.files import NO_TABLE_NAME, ONE_TABLE_TWICE
from tests.codes import raises
from tests.unit.config.files import Load, refused

SHOP = r"shop\.(?P<entity>[a-z.]+)"


def by_regex(*tables: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {"source": {"kafka": "main", "topics_regex": SHOP, **source}, "tables": list(tables)}


def test_a_pattern_matches_whole_names_and_nothing_internal() -> None:
    topics = ["shop.a", "my.shop.a", "shop.a2", "__consumer_offsets", "calve.dev.shop.control"]
    assert matching(topics, "shop.[a-z]") == ["shop.a"]
    assert matching(topics, ".*") == ["my.shop.a", "shop.a", "shop.a2"]


def test_each_topic_has_its_table(loaded: Load) -> None:
    pipeline = loaded(**by_regex({"name": "lake.{entity}", "auto_create": {}, "owned": True}))
    assert pipeline.is_open
    assert pipeline.tables == ()
    found = pipeline.having(["shop.orders", "shop.items.eu"], [])
    assert {t.name: t.rule.topics for t in found.tables} == {
        "lake.items_eu": {"shop.items.eu"},
        "lake.orders": {"shop.orders"},
    }
    assert all(t.owned and t.auto_create is not None and not t.explicit for t in found.tables)
    assert found.config_fingerprint == pipeline.config_fingerprint


def test_a_table_that_only_the_log_knows_keeps_its_settings_and_gets_nothing(loaded: Load) -> None:
    pipeline = loaded(**by_regex({"name": "lake.{entity}", "owned": True}))
    (table,) = pipeline.having([], ["lake.gone", "other.table", pipeline.ledger_table]).tables
    assert (table.name, table.owned, table.rule) == ("lake.gone", True, Rule(frozenset()))


def test_an_entry_that_spells_out_a_name_stands_in_for_it(loaded: Load) -> None:
    entries = ({"name": "lake.{entity}"}, {"name": "lake.orders", "owned": True}, {"name": "lake.log"})
    pipeline = loaded(**by_regex(*entries)).having(["shop.orders", "shop.items"], [])
    rules = {t.name: (t.rule.topics, t.owned) for t in pipeline.tables}
    assert rules["lake.orders"] == ({"shop.orders"}, True)
    assert rules["lake.items"] == ({"shop.items"}, None)
    # Before its topic is there it gets nothing, rather than everything.
    assert rules["lake.log"] == (set(), None)
    free = loaded(**by_regex({"name": "lake.{entity}"}, {"name": "audit.all"}))
    assert {t.name: t.rule for t in free.tables} == {"audit.all": ALL}


def test_two_topics_of_one_table_are_refused(loaded: Load) -> None:
    pipeline = loaded(**by_regex({"name": "lake.{entity}"})).having(["shop.a.b", "shop.a"], [])
    assert len(pipeline.tables) == 2
    alike = loaded(
        source={"kafka": "main", "topics_regex": "(?P<site>[a-z]+).(?P<entity>.+)"}, tables=[{"name": "x.{entity}"}]
    )
    with raises(ONE_TABLE_TWICE, "eu.orders", "us.orders", "x.orders"):
        _ = alike.having(["us.orders", "eu.orders"], []).tables


@pytest.mark.parametrize(
    ("value", "table"),
    [
        ("clicks", "events.clicks"),
        ("a-b_1", "events.a-b_1"),
        ("a.b", None),
        ("..", None),
        ("../x", None),
        ("a/b", None),
        ("ä", None),
        ("", None),
        ("x" * 300, None),
        ("{value}", None),
    ],
)
def test_a_value_names_a_table_as_it_is_or_none(value: str, table: str | None) -> None:
    assert fill_value("events.{value}", value) == table


def test_a_value_may_be_a_whole_name() -> None:
    assert fill_value("{value}", "db.events") == "db.events"
    assert [fill_value("{value}", v) for v in ("events", "db..events", "db.", ".x", "a.b/c")] == [None] * 5


def test_names_are_taken_back_to_their_entries() -> None:
    assert gives("a.{x}_{y}", "a.one_two")
    assert gives("{value}", "a.b.c")
    assert not gives("a.{x}", "b.c")
    assert not gives("a.{x}", "a.b.c")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"source": {"kafka": "main"}}, ["source", "topics_regex"]),
        ({"source": {"kafka": "main", "topics_regex": "("}}, ["source.topics_regex", "'('"]),
        ({"source": {"kafka": "main", "topics_regex": "(?=a)b"}}, ["source.topics_regex", "'(?=a)b'", "RE2"]),
        ({"source": {"kafka": "main", "topics_regex": r"(a)\1"}}, ["source.topics_regex", "RE2"]),
        ({"source": {"kafka": "main", "topics_regex": "(?P<topic>.*)"}}, ["source.topics_regex", "topic"]),
        (by_regex({"name": "a.{other}"}), ["tables.0.name", "{other}", "entity", "topic"]),
        (by_regex({"name": "a.{value}"}), ["tables.0.name", "{value}", "entity", "topic"]),
        (
            by_regex({"name": "a.b", "name_from": {"field": "k", "allow": "x"}}),
            ["tables.0.name", "{value}", "name_from"],
        ),
        (by_regex({"name": "a.{entity}", "history": "replay"}), ["tables.0.history", "replay"]),
        (by_regex({"name": "a.{entity}", "auto_create": {"location": "file:///x"}}), ["tables.0.auto_create.location"]),
        (by_regex({"name": "a.b", "topics": ["stock"]}), ["tables.0.topics", "stock"]),
        (by_regex({"name": "a.b", "where": {"field": "a..b", "matches": "x"}}), ["tables.0.where.field", "'a..b'"]),
        (by_regex({"name": "a.{entity}/b"}), ["tables.0.name", "'a.{entity}/b'"]),
        ({"dead_letters": {"topic": "flights"}}, ["dead_letters.topic", "flights"]),
        (
            {**by_regex({"name": "a.{entity}"}), "dead_letters": {"topic": "shop.bad"}},
            ["dead_letters.topic", "shop.bad"],
        ),
        ({"dead_letters": {"topic": "calve.prod.x.control"}}, ["dead_letters.topic", "calve.prod.x.control"]),
    ],
)
def test_what_can_not_be_routed_is_refused(loaded: Load, changes: dict[str, Any], named: list[str]) -> None:
    with refused("pipeline.yaml", *named):
        loaded(**changes)


def test_topics_that_give_no_name_are_refused(loaded: Load) -> None:
    pipeline = loaded(**by_regex({"name": "{topic}"}, topics=["flights"]))
    with raises(NO_TABLE_NAME, "flights"):
        _ = pipeline.tables
