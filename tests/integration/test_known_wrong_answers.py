"""Wrong answers that other writers of row changes are known for: what Spark reads of ours, and with their mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyspark.sql import SparkSession

from tests.changing import by_spark
from tests.integration.test_changes_read_back import BY_COUNTRY, State, as_state, create, drop, put, take_in
from tests.row_histories.rules import RULES

Rows = list[tuple[int, str, int]]
Scenario = Callable[[SqlCatalog], str]

BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))


def inserted_again(lake: SqlCatalog) -> str:
    """Inserted, deleted and inserted again in one batch, and so in one snapshot."""
    name = create(lake)
    take_in(lake, name, [put(1, v=1), put(2)])
    take_in(lake, name, [put(3, v=1), drop(3), put(3, v=2), put(2), drop(2), put(1, v=2), drop(1), put(1, v=3)])
    return name


def moved(lake: SqlCatalog) -> str:
    """A row that goes to another partition with the value of a column that is not of the key."""
    name = create(lake, BY_COUNTRY)
    take_in(lake, name, [put(1, "nl")], [put(1, "be")], [put(1, "de"), put(2, "nl")])
    return name


def evolved(lake: SqlCatalog) -> str:
    """Deleted once the table has another spec, by which new rows are partitioned."""
    name = create(lake, BY_KEY)
    take_in(lake, name, [put(1), put(2), put(3)])
    with lake.load_table(name).update_spec() as update:
        update.remove_field("bucket")
        update.add_field("id", BucketTransform(8), "finer")
    take_in(lake, name, [drop(1), put(2, v=1)])
    return name


CASES: list[tuple[Scenario, str, State, Rows]] = [
    (
        inserted_again,
        "of the changes of a key in a batch the last one counts",
        {1: ("nl", 3), 3: ("nl", 2)},
        [(1, "nl", 2), (1, "nl", 3), (2, "nl", 0), (3, "nl", 1), (3, "nl", 2)],
    ),
    (
        moved,
        "deletes reach all partitions and specs",
        {1: ("de", 0), 2: ("nl", 0)},
        [(1, "be", 0), (1, "de", 0), (1, "nl", 0), (2, "nl", 0)],
    ),
    (
        evolved,
        "deletes reach all partitions and specs",
        {2: ("nl", 1), 3: ("nl", 0)},
        [(1, "nl", 0), (2, "nl", 0), (2, "nl", 1), (3, "nl", 0)],
    ),
]


@pytest.mark.parametrize(("scenario", "rule", "right", "wrong"), CASES, ids=[case[0].__name__ for case in CASES])
def test_the_row_of_a_key_is_its_last(
    scenario: Scenario,
    rule: str,
    right: State,
    wrong: Rows,
    lake: SqlCatalog,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert as_state(by_spark(spark, f"lake.{scenario(lake)}")) == right
    RULES[rule](monkeypatch)
    found = by_spark(spark, f"lake.{scenario(lake)}")
    assert sorted((row["id"], row["country"], row["v"]) for row in found) == wrong


def test_a_table_with_equality_ids_as_longs_can_not_be_read(
    lake: SqlCatalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That ours are ints, test_changes_read_back.py looks up in the manifest."""
    RULES["ids of the key's columns are ints"](monkeypatch)
    name = create(lake)
    take_in(lake, name, [put(1)], [put(1, v=1)])
    with pytest.raises(Py4JJavaError, match="ClassCastException"):
        by_spark(spark, f"lake.{name}")
