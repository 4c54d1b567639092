"""The last change of each key: whatever order changes come in, and however often they are folded on the way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.sink_core.codes import Code
from calve.sink_core.errors import BadRecord
from calve.sink_core.iceberg.changes.existing_rows import all_bounds, bounds_of
from calve.sink_core.iceberg.files.partition import buckets_of
from calve.sink_core.records.changes.fold import check_unmoved, folded, last_by_key, not_outdated
from calve.sink_core.records.changes.rows import change_schema
from tests.codes import raises

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "site", StringType(), required=True),
    NestedField(3, "v", IntegerType(), required=False),
)
KEY = (0, 1)
TOPICS = ("a", "b")

Keyed = tuple[int, str, bool]


def table_of(changes: Sequence[tuple[int, Keyed]], source: int = 0) -> pa.Table:
    """Changes with their offsets; the value of each is its offset."""
    rows: list[dict[str, Any]] = [
        {
            "id": key,
            "site": site,
            "v": None if deletes else offset,
            "calve:deletes": deletes,
            "calve:source": source,
            "calve:offset": offset,
        }
        for offset, (key, site, deletes) in changes
    ]
    return pa.Table.from_pylist(rows, schema=change_schema(SCHEMA))


def last(changes: pa.Table) -> pa.Table:
    return last_by_key(changes, KEY, table="db.t", topics=TOPICS)


def outcome(changes: pa.Table) -> dict[tuple[int, str], int | None]:
    """By key the value that stays, None where the row goes."""
    rows = changes.to_pylist()
    found = {(row["id"], row["site"]): row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


keyed_once = st.tuples(st.integers(0, 3), st.sampled_from("xy"))
keyed = st.tuples(st.integers(0, 3), st.sampled_from("xy"), st.booleans())


@given(st.lists(keyed).map(lambda found: list(enumerate(found))).flatmap(st.permutations))
def test_the_change_with_the_highest_offset_wins(changes: Sequence[tuple[int, Keyed]]) -> None:
    wanted = {
        (key, site): None if deletes else offset for offset, (key, site, deletes) in sorted(changes, key=lambda c: c[0])
    }
    assert outcome(last(table_of(changes))) == wanted


@given(st.lists(keyed).map(lambda found: list(enumerate(found))).flatmap(st.permutations), st.integers(0, 20))
def test_folding_on_the_way_changes_nothing(changes: Sequence[tuple[int, Keyed]], at: int) -> None:
    whole = table_of(changes)
    twice = last(pa.concat_tables([last(whole.slice(0, at)), whole.slice(at)]))
    assert outcome(twice) == outcome(last(whole))


def test_every_key_goes_and_only_rows_that_stay_come() -> None:
    changes = table_of([(0, (1, "x", False)), (1, (2, "x", True)), (2, (1, "x", False))])
    found = folded(last(changes), KEY)
    assert found.keys.to_pylist() == [{"id": 2, "site": "x"}, {"id": 1, "site": "x"}]
    assert found.rows.to_pylist() == [{"id": 1, "site": "x", "v": 2}]


def test_a_row_that_goes_comes_too_where_deletes_are_soft() -> None:
    found = folded(last(table_of([(0, (1, "x", False)), (1, (1, "x", True))])), KEY, soft=True)
    assert found.rows.to_pylist() == [{"id": 1, "site": "x", "v": None}]


def test_a_key_from_two_partitions_is_refused_also_when_one_was_folded_before() -> None:
    first = last(table_of([(0, (1, "x", False)), (5, (2, "x", False))]))
    elsewhere = table_of([(1, (1, "x", True))], source=(1 << 32) + 7)
    with raises(Code.KEY_IN_TWO_PARTITIONS, 1, "x", "a[0]", "b[7]", 0):
        last(pa.concat_tables([first, elsewhere]))


def ordered_by(orders: Sequence[int]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(orders, pa.int64())])


@given(st.permutations(range(6)), st.lists(st.integers(0, 3), min_size=6, max_size=6), st.integers(0, 6))
def test_the_largest_order_wins_from_whichever_partition(places: Sequence[int], orders: Sequence[int], at: int) -> None:
    whole = pa.concat_tables([table_of([(place, (0, "x", False))], source=place % 2) for place in places])
    given = ordered_by([orders[place] for place in places])
    wanted = max(range(6), key=lambda place: (orders[place], place))
    found = last_by_key(whole, KEY, table="db.t", topics=TOPICS, order=given)
    assert outcome(found) == {(0, "x"): wanted}
    first = last_by_key(whole.slice(0, at), KEY, table="db.t", topics=TOPICS, order=given.slice(0, at))
    twice = pa.concat_tables([first, whole.slice(at)])
    again = ordered_by([orders[offset] for offset in twice.column("calve:offset").to_pylist()])
    assert outcome(last_by_key(twice, KEY, table="db.t", topics=TOPICS, order=again)) == {(0, "x"): wanted}


@given(st.dictionaries(keyed_once, st.integers(0, 3)), st.dictionaries(keyed_once, st.integers(0, 3)))
def test_a_change_that_is_older_than_the_row_of_its_key_is_left_out(
    changes: dict[tuple[int, str], int], rows: dict[tuple[int, str], int]
) -> None:
    last = table_of([(at, (*key, False)) for at, key in enumerate(changes)])
    schema = pa.schema([("key0", pa.int64()), ("key1", pa.large_string()), ("calve:order", pa.int64())])
    existing = pa.Table.from_pylist(
        [{"key0": key, "key1": site, "calve:order": order} for (key, site), order in rows.items()], schema=schema
    )
    found = not_outdated(last, KEY, ordered_by(list(changes.values())), existing)
    wanted = {key for key, order in changes.items() if order >= rows.get(key, 0)}
    assert outcome(found).keys() == wanted


def came_from(rows: dict[tuple[int, str], int]) -> pa.Table:
    schema = pa.schema([("key0", pa.int64()), ("key1", pa.large_string()), ("calve:held", pa.int64())])
    found = [{"key0": key, "key1": site, "calve:held": source} for (key, site), source in rows.items()]
    return pa.Table.from_pylist(found, schema=schema)


def test_a_key_whose_row_came_from_another_partition_is_refused() -> None:
    changes = table_of([(5, (1, "x", False)), (6, (2, "x", True)), (7, (3, "x", False))], source=(1 << 32) + 7)
    stays = {(1, "x"): (1 << 32) + 7, (1, "y"): 0, (9, "x"): 0}
    check_unmoved(changes, KEY, came_from(stays), table="db.t", topics=TOPICS)
    moved = came_from({**stays, (2, "x"): 3, (3, "x"): 7})
    with raises(Code.KEY_MOVED, "db.t", "(2, 'x')", "b[7]", "a[3]", 1, of=BadRecord):
        check_unmoved(changes, KEY, moved, table="db.t", topics=TOPICS)


def test_keys_lie_between_the_least_and_the_greatest_of_their_first_column() -> None:
    parts = [table_of([(at, (key, "x", False)) for at, key in enumerate(keys)]) for keys in ([5, 3], [4], [])]
    found = [bounds_of(part, [1, 2], SCHEMA) for part in parts]
    assert found == [(3, 5), (4, 4), None]
    assert all_bounds(found[:2]) == (3, 5)
    assert all_bounds(found) is None
    assert all_bounds([]) is None
    assert all_bounds([("a", "b"), ("aa", "é")]) == ("a", "é")
    # By UTF-16 the second one comes first.
    assert all_bounds([("a", "\uffff"), ("a", "\U0001f600")]) is None


KINDS: list[tuple[IcebergType, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [1, -1]),
    (DecimalType(9, 2), ["1.25", "-1.25"]),
    (DateType(), [date(2026, 1, 1), date(2026, 1, 2)]),
    (TimeType(), [1, 2]),
    (TimestampType(), [1, 2]),
    (TimestamptzType(), [1, 2]),
    (StringType(), ["", "a"]),
    (BinaryType(), [b"", b"a"]),
    (FixedType(2), [b"ab", b"ba"]),
    (UUIDType(), [b"0123456789abcdef", b"fedcba9876543210"]),
]


@pytest.mark.parametrize(
    ("kind", "values"), KINDS, ids=lambda value: str(value) if isinstance(value, IcebergType) else ""
)
def test_keys_may_be_of_any_plain_type(kind: IcebergType, values: list[Any]) -> None:
    schema = Schema(NestedField(1, "id", kind, required=True))
    wanted = change_schema(schema)
    column = pa.array([values[0], values[1], values[0]]).cast(wanted.field(0).type)
    n = len(column)
    rest = [pa.array([False] * n), pa.array([0] * n, pa.int64()), pa.array(range(n), pa.int64())]
    changes = pa.Table.from_arrays([column, *rest], schema=wanted)
    assert last_by_key(changes, [0], table="db.t", topics=TOPICS).column(-1).to_pylist() == [1, 2]
    buckets = buckets_of(changes, [1], schema, 16)
    assert buckets[0] == buckets[2]
    if not isinstance(kind, BooleanType):
        assert len({*buckets_of(changes, [1], schema, 1 << 19).tolist()}) == 2
