"""What a file says of a table that is read by query."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from calve.sink_core.config.source import SourceConfig
from calve.sink_core.config.source_systems import TableByQuery

T = {"table": "public.orders"}
SETTLED = {"column": "at", "settle": "30s"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"by": "timestamp", "column": "at"}, "timestamp needs settle"),
        ({"by": "incrementing", "settle": "30s"}, "incrementing needs column"),
        ({"column": "at"}, "by: transaction takes none"),
        ({"by": "bulk", "settle": "30s"}, "by: bulk takes none"),
        ({"by": "timestamp", **SETTLED, "every": "1h"}, "by: timestamp takes none: trigger.every"),
        ({"every": "1h"}, "by: transaction takes none: trigger.every"),
        ({"by": "bulk", "every": "0s"}, "greater than 0"),
        ({"table": "orders"}, "write schema.table"),
    ],
)
def test_what_does_not_belong_together_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
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


def test_avro_is_refused() -> None:
    avro = {"type": "avro", "registry": "here"}
    source = {"name": "shop", "kind": "source", "source": {"database": "shop", "tables": [T]}}
    with pytest.raises(ValidationError, match="is json, but for a database's log"):
        SourceConfig.model_validate({**source, "target": {"kafka": "here", "value": avro}})
