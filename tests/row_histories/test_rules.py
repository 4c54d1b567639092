"""Each rule of row changes that is switched off is found by the histories, and the document names each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.row_histories.machine import BY_COUNTRY, BY_KEY, Histories, Lake, of_many_specs, of_one_spec
from tests.row_histories.records import Kind
from tests.row_histories.rules import RULES

RELIABILITY = Path(__file__).parents[2] / "docs/reliability.md"
TABLES, MANY_TABLES = 40, 600
STEPS, SPARK_STEPS = 12, 30
BY_SPARK = (
    # Seen in partitioned tables only, whose deletes ClickHouse leaves out.
    "deletes reach all partitions and specs",
    "deletes of a partition are for all once the spec has changed",
    # ClickHouse refuses such a table, Spark does not see it.
    "deletes name the key's columns",
    # The other way round.
    "ids of the key's columns are ints",
)
BY_KEY_ONLY = ("deletes of a partition are for all once the spec has changed",)
"""Of tables whose key says the partition."""
ORDERED = ("late changes are left out", "of equal order the one read later counts")
"""Of these tables only."""


def is_found(machine: type[Histories], steps: int, tables: int = TABLES) -> None:
    """Not shortened, and the same histories each time."""
    given = settings(
        max_examples=tables, stateful_step_count=steps, phases=[Phase.generate], derandomize=True, database=None
    )
    with pytest.raises(Exception, match=r"histories\.t|ClassCastException"):
        run_state_machine_as_test(machine, settings=given)


@pytest.mark.parametrize("name", [name for name in RULES if name not in BY_SPARK])
def test_it_is_found_by_clickhouse(name: str, by_clickhouse: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    RULES[name](monkeypatch)
    is_found(of_one_spec(by_clickhouse, Kind.ORDERED if name in ORDERED else None), STEPS)


@pytest.mark.parametrize(
    # Found late; what it is about, test_partition_deletes.py of tests/integration shows at once.
    "name",
    [pytest.param(name, marks=pytest.mark.faults) if name in BY_KEY_ONLY else name for name in BY_SPARK],
)
def test_it_is_found_by_spark(name: str, by_spark: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    RULES[name](monkeypatch)
    if name in BY_KEY_ONLY:
        is_found(of_many_specs(by_spark, (BY_KEY,)), SPARK_STEPS, MANY_TABLES)
    else:
        is_found(of_many_specs(by_spark, (BY_COUNTRY,)), SPARK_STEPS)


def test_the_document_names_each() -> None:
    text = RELIABILITY.read_text()
    assert [name for name in RULES if f"\n- {name}\n" not in text] == []
