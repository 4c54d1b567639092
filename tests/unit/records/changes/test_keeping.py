"""Values that a batch's changes keep of earlier ones, against a dictionary that takes one change after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, ListType, LongType, NestedField, StringType

from calve.sink_core.records.changes.fold import last_by_key
from calve.sink_core.records.changes.keeping import filled, needed
from calve.sink_core.records.changes.rows import change_schema
from calve.sink_core.records.changes.unavailable import KEEP, UNAVAILABLE, can_keep

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "site", StringType(), required=True),
    NestedField(3, "text", StringType(), required=False),
    NestedField(4, "raw", BinaryType(), required=False),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False), required=False),
)
KEY = (0, 1)


@dataclass(frozen=True)
class Change:
    """`text` None is null, KEEP is to be kept."""

    key: int
    deletes: bool
    text: str | None
    tagged: bool


def table_of(changes: Sequence[tuple[int, Change]]) -> pa.Table:
    """Changes with their offsets."""
    rows: list[dict[str, Any]] = [
        {
            "id": change.key,
            "site": "x",
            "text": None if change.deletes else change.text,
            "raw": None if change.deletes else (KEEP if change.tagged else str(offset)).encode(),
            "tags": None if change.deletes else [KEEP] if change.tagged else [str(offset), None],
            "calve:deletes": change.deletes,
            "calve:source": 0,
            "calve:offset": offset,
        }
        for offset, change in changes
    ]
    return pa.Table.from_pylist(rows, schema=change_schema(SCHEMA))


Row = tuple[str | None, bytes | None, tuple[str | None, ...] | None]


def one_by_one(changes: Sequence[tuple[int, Change]]) -> dict[int, Row | None]:
    """By key the row in the end, None if it goes; KEEP where only the table knows."""
    found = dict[int, Row | None]()
    for offset, change in sorted(changes, key=lambda given: given[0]):
        if change.deletes:
            found[change.key] = None
            continue
        none: Row = (UNAVAILABLE, UNAVAILABLE.encode(), (UNAVAILABLE,))
        was = found.get(change.key, (KEEP, KEEP.encode(), (KEEP,))) or none
        text = was[0] if change.text == KEEP else change.text
        raw, tags = (was[1], was[2]) if change.tagged else (str(offset).encode(), (str(offset), None))
        found[change.key] = (text, raw, tags)
    return found


def outcome(changes: pa.Table) -> dict[int, Row | None]:
    last = last_by_key(filled(changes, KEY), KEY, table="db.t", topics=("t",))
    return {
        row["id"]: None if row["calve:deletes"] else (row["text"], row["raw"], row["tags"] and tuple(row["tags"]))
        for row in last.to_pylist()
    }


texts = st.sampled_from([None, "a", "b", KEEP, KEEP])
drawn = st.lists(st.builds(Change, st.integers(0, 2), st.sampled_from([False] * 4 + [True]), texts, st.booleans()))
in_any_order = drawn.map(lambda found: list(enumerate(found))).flatmap(st.permutations)


@given(in_any_order)
def test_a_change_keeps_what_the_last_one_before_it_has(changes: Sequence[tuple[int, Change]]) -> None:
    assert outcome(table_of(changes)) == one_by_one(changes)


@given(in_any_order, st.lists(st.integers(0, 12), max_size=3))
def test_leaving_out_on_the_way_what_is_not_needed_changes_nothing(
    changes: Sequence[tuple[int, Change]], cuts: Sequence[int]
) -> None:
    whole, gathered, begin = table_of(changes), table_of([]), 0
    for end in [*sorted(cuts), len(changes)]:
        gathered = needed(pa.concat_tables([gathered, whole.slice(begin, max(0, end - begin))]), KEY)
        begin = max(begin, end)
    assert outcome(gathered) == one_by_one(changes)


def test_what_came_before_a_whole_change_is_not_needed() -> None:
    whole, keeps, gone = Change(1, False, "a", False), Change(1, False, KEEP, False), Change(1, True, None, False)
    found = needed(table_of([(0, whole), (1, keeps), (2, whole), (3, keeps), (4, keeps)]), KEY)
    assert found.column("calve:offset").to_pylist() == [2, 3, 4]
    assert needed(table_of([(0, whole), (1, gone), (2, keeps)]), KEY).column("calve:offset").to_pylist() == [1, 2]


def test_text_and_bytes_and_lists_of_these_can_be_kept() -> None:
    assert [can_keep(field.field_type) for field in SCHEMA.fields] == [False, True, True, True, True]
    assert not can_keep(ListType(1, LongType(), element_required=False))
