"""Which tables a pipeline file stands for, and which records each of them gets."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.config.routing import ALL, Rule, fill_value, gives, matching
from calve.sink_core.error_codes.files import NO_TABLE_NAME, ONE_TABLE_TWICE, SETTINGS
from tests.codes import raises
from tests.unit.config.files import Load

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
    ("changes", "says"),
    [
        ({"source": {"kafka": "main"}}, "needs topics, or topics_regex"),
        ({"source": {"kafka": "main", "topics_regex": "("}}, "is no regular expression"),
        ({"source": {"kafka": "main", "topics_regex": "(?P<topic>.*)"}}, "a group can't be called topic"),
        (by_regex({"name": "a.{other}"}), "{other}: nothing gives its value; known here: entity, topic"),
        (by_regex({"name": "a.{value}"}), "{value}: nothing gives its value"),
        (by_regex({"name": "a.b", "name_from": {"field": "k", "allow": "x"}}), "needs {value}"),
        (by_regex({"name": "a.{entity}", "history": "replay"}), "replay needs one table"),
        (by_regex({"name": "a.{entity}", "auto_create": {"location": "file:///x"}}), "all tables of the name"),
        (by_regex({"name": "a.b", "topics": ["stock"]}), "stock is not a topic of source"),
        (by_regex({"name": "a.b", "where": {"field": "a..b", "matches": "x"}}), "isn't a field"),
        (by_regex({"name": "a.{entity}/b"}), "isn't a table name"),
        ({"dead_letters": {"topic": "flights"}}, "flights is read by source: every letter would come back"),
        (
            {**by_regex({"name": "a.{entity}"}), "dead_letters": {"topic": "shop.bad"}},
            "shop.bad is read by source",
        ),
        ({"dead_letters": {"topic": "calve.prod.x.control"}}, "is a topic of Kafka's or Calve's own"),
    ],
)
def test_what_can_not_be_routed_is_refused(loaded: Load, changes: dict[str, Any], says: str) -> None:
    with raises(SETTINGS) as refused:
        loaded(**changes)
    assert says in refused.value.message


def test_topics_that_give_no_name_are_refused(loaded: Load) -> None:
    pipeline = loaded(**by_regex({"name": "{topic}"}, topics=["flights"]))
    with raises(NO_TABLE_NAME, "flights"):
        _ = pipeline.tables
