"""Fields of records that a table has no column for: which there are, and how many values they have.

Arrow's parser shows them at little cost where each has one type and there are not too many of them. Elsewhere, and
where records are rewritten before they are parsed, Python's own parser looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from calve.sink_core.records.columns.names import Names, TwoOfOne
from calve.sink_core.records.decode.maps import own_names
from calve.sink_core.records.decode.python_json import loads

MOST_NAMES = 100
"""Named for a table, and columns that the parser is let to make of other fields; what is beyond is `BEYOND`."""

BEYOND = "…"
"""Stands for the fields beyond the first `MOST_NAMES`."""

MOST_NESTED = 1_000
"""Objects and lists within each other. Arrow's parser calls itself for each that it makes a column of: beyond some ten
thousand it runs out of stack, which nothing catches."""

_LOOKED_AT = 16
_LONG, _MUCH = 10_000, 20


def others_in(
    found: pa.RecordBatch | pa.StructArray, asked: pa.Schema | pa.DataType, path: str = ""
) -> list[tuple[str, pa.Array]]:
    """Dotted names and values of the fields that `block.read` found with `others`; only nulls are nothing. Two may have
    one name: `a.b` is a field's name as well.
    """
    known = {field.name: field.type for field in asked}
    others = list[tuple[str, pa.Array]]()
    for field in found.schema if isinstance(found, pa.RecordBatch) else found.type:
        values = found.column(field.name) if isinstance(found, pa.RecordBatch) else found.field(field.name)
        name = f"{path}{field.name}"
        if field.name not in known:
            others += [(name, values)] if values.null_count < len(values) else []
        elif field.type != known[field.name]:
            others += _within(values, known[field.name], name)
    return others


def _within(found: pa.Array, asked: pa.DataType, path: str) -> list[tuple[str, pa.Array]]:
    if isinstance(found, pa.StructArray) and pa.types.is_struct(asked):
        return others_in(found, asked, f"{path}.")
    if isinstance(found, pa.ListArray) and pa.types.is_list(asked):
        return _within(found.flatten(), asked.value_type, f"{path}.element")
    return []


def says_something(kind: pa.DataType) -> bool:
    """Whether values of the type are more than nulls and empty lists."""
    # No call of itself: a record may be nested as deep as it likes.
    kinds = [kind]
    while kinds:
        kind = kinds.pop()
        if pa.types.is_struct(kind):
            kinds += [field.type for field in kind]
        elif pa.types.is_list(kind):
            kinds.append(kind.value_type)
        elif not pa.types.is_null(kind):
            return True
    return False


def counted(others: Iterable[tuple[str, pa.Array]], names: Names) -> Counter[str]:
    """How many values each field has, of those that are counted."""
    found = Counter[str]()
    for name, values in others:
        found[name] += len(values) - values.null_count if names.counts(name) else 0
    return +found


def looked_for(values: Iterable[bytes], wanted: StructType, names: Names) -> Counter[str]:
    """As `counted`, for values of any kind, one by one. A broken one has none."""
    found = Counter[str]()
    for value in values:
        try:
            _note(found, loads(value), wanted, names, "")
        except (ValueError, RecursionError):
            continue
    return found


def may_be_shown(values: Sequence[bytes], wanted: StructType, names: Names) -> bool:
    """Whether the parser may make columns of what else there is: not where it would end the process or fill the memory.

    Names may be data, which some of the values tell.
    """
    longest = max(map(len, values), default=0)
    if longest > 2 * MOST_NESTED and any(map(_may_be_deep, values)):
        return False
    if longest > _LONG and longest * len(values) > _MUCH * sum(map(len, values)):
        # One that is much longer than the others may have many names, and each is a column of all.
        return False
    return len(looked_for(values[:: max(1, len(values) // _LOOKED_AT)], wanted, names)) <= MOST_NAMES


def _may_be_deep(value: bytes) -> bool:
    return len(value) > 2 * MOST_NESTED and value.count(b"[") + value.count(b"{") > MOST_NESTED


def add(total: Counter[str], more: Mapping[str, int]) -> None:
    """Count `more` in, of names beyond `MOST_NAMES` their number only."""
    for name, number in more.items():
        total[name if name in total or len(total) < MOST_NAMES else BEYOND] += number


def sum_dropped(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """What several tasks or batches have dropped, by table."""
    totals = dict[str, Counter[str]]()
    for part in parts:
        for table, dropped in part.items():
            add(totals.setdefault(table, Counter()), dropped)
    return {table: dict(total) for table, total in totals.items()}


def lacking(given: StructType, table: StructType, names: Names, path: str = "") -> list[str]:
    """The dotted names of the fields of records that the table has no column for, of those that are counted."""
    try:
        own = names.own_names(((of.field_id, of.name) for of in table.fields), (of.name for of in given.fields))
    except TwoOfOne:
        return []
    kinds, found = {of.name: of.field_type for of in table.fields}, list[str]()
    for of in given.fields:
        if of.name in own:
            found += _lacking_within(of.field_type, kinds[own[of.name]], names, f"{path}{own[of.name]}.")
        elif names.counts(f"{path}{of.name}"):
            found.append(f"{path}{of.name}")
    return found


def _lacking_within(given: IcebergType, table: IcebergType, names: Names, path: str) -> list[str]:
    if isinstance(given, StructType) and isinstance(table, StructType):
        return lacking(given, table, names, path)
    if isinstance(given, ListType) and isinstance(table, ListType):
        return _lacking_within(given.element_type, table.element_type, names, f"{path}element.")
    if isinstance(given, MapType) and isinstance(table, MapType):
        return _lacking_within(given.value_type, table.value_type, names, f"{path}value.")
    return []


def _note(found: Counter[str], value: object, wanted: IcebergType, names: Names, path: str) -> None:
    if isinstance(value, dict):
        members = cast(dict[str, object], value)
        if isinstance(wanted, StructType):
            _note_members(found, members, wanted, names, path)
        elif isinstance(wanted, MapType):
            for inner in members.values():
                _note(found, inner, wanted.value_type, names, f"{path}value.")
    elif isinstance(value, list) and isinstance(wanted, ListType):
        for inner in cast(list[object], value):
            _note(found, inner, wanted.element_type, names, f"{path}element.")


def _note_members(found: Counter[str], members: dict[str, object], wanted: StructType, names: Names, path: str) -> None:
    try:
        own = own_names(members, wanted, names)
    except TwoOfOne:
        return
    kinds = {field.name: field.field_type for field in wanted.fields}
    for name, value in members.items():
        if name in own:
            _note(found, value, kinds[own[name]], names, f"{path}{own[name]}.")
        elif value is not None and names.counts(f"{path}{name}"):
            found[f"{path}{name}"] += 1
