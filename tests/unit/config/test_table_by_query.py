"""What a file says of a table that is read by query."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.config.source import SourceConfig
from calve.sink_core.config.source_systems import TableByQuery
from tests.unit.config.files import invalid

T = {"table": "public.orders"}
SETTLED = {"column": "at", "settle": "30s"}


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"by": "timestamp", "column": "at"}, ["settle", "timestamp"]),
        ({"by": "incrementing", "settle": "30s"}, ["column", "incrementing"]),
        ({"column": "at"}, ["column", "transaction"]),
        ({"by": "bulk", "settle": "30s"}, ["settle", "bulk"]),
        ({"by": "timestamp", **SETTLED, "every": "1h"}, ["every", "timestamp", "trigger.every"]),
        ({"every": "1h"}, ["every", "transaction", "trigger.every"]),
        ({"by": "bulk", "every": "0s"}, ["every", "0"]),
        ({"table": "orders"}, ["table", "'orders'"]),
    ],
)
def test_what_does_not_belong_together_is_refused(said: dict[str, Any], named: list[str]) -> None:
    with invalid(*named):
        TableByQuery.model_validate({**T, **said})


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"by": "bulk", "every": "10m"},
        {"by": "timestamp", **SETTLED, "key": ["id"]},
        {"by": "incrementing", **SETTLED},
    ],
)
def test_what_is_handed_on_says_the_same(said: dict[str, Any]) -> None:
    """As the source is made with it, on any host."""
    read = TableByQuery.model_validate({**T, **said})
    assert TableByQuery.model_validate(read.model_dump(exclude_none=True)) == read


def shop(*tables: dict[str, Any], **target: Any) -> dict[str, Any]:
    source = {"database": "shop", "tables": [*tables]}
    return {"name": "shop", "kind": "source", "source": source, "target": {"kafka": "here", **target}}


def test_avro_is_refused() -> None:
    with invalid("target.value.type", "json"):
        SourceConfig.model_validate(shop(T, value={"type": "avro", "registry": "here"}))


def test_a_table_that_has_no_topic_of_its_own_is_refused() -> None:
    with invalid("source.tables.1.table", "shop.public.o$", "target.topic_by_table"):
        SourceConfig.model_validate(shop(T, {"table": "public.o$"}))
    others = {"table": "old.orders"}
    with invalid("source.tables.1.table", "public.orders", "target.topic_by_table"):
        SourceConfig.model_validate(shop(T, others, topics="shop.{table}"))
    SourceConfig.model_validate(shop(T, others))
