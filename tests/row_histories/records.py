"""Records that change rows, and the dictionary that a table must be equal to after them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

Row = tuple[int, str | None, int, int | None, bool | None]
"""Columns of a row: id, country, v, n, _is_deleted. `v` is a number that each record has alone."""

PARTITIONS = 3
COUNTRIES = ("nl", "be", "de")


class Kind(Enum):
    """How a table takes changes."""

    HARD = "hard"
    SOFT = "soft"
    ORDERED = "ordered"
    """Soft too, as in `mode: cdc` with `order_by`."""


class Does(Enum):
    """What a record says."""

    PUT = "put"
    DROP = "drop"
    MOVE = "move"
    """A change of the key: the row of the old one goes, that of the new one comes."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a record does to one key."""

    key: int
    country: str | None
    v: int
    n: int | None
    deletes: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A record where it lies in the topic."""

    partition: int
    offset: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn of a record. Keys that it can be moved to come in the same partition."""

    does: Does
    key: int
    country: str
    n: int
    anywhere: int
    """The partition, where any may be taken."""


def drawn(keys: int) -> st.SearchStrategy[list[Drawn]]:
    """Records of one batch, of so many keys."""
    assert keys % PARTITIONS == 0
    assert keys > PARTITIONS
    does = st.sampled_from([Does.PUT, Does.PUT, Does.DROP, Does.MOVE])
    partitions = st.integers(0, PARTITIONS - 1)
    one = st.builds(Drawn, does, st.integers(0, keys - 1), st.sampled_from(COUNTRIES), st.integers(0, 30), partitions)
    return st.lists(one, min_size=1, max_size=keys)


def changes_of(record: Drawn, v: int, kind: Kind, keys: int) -> tuple[Change, ...]:
    """With a number of their own."""
    n = record.n if kind is Kind.ORDERED else None
    goes = Change(record.key, None, v, n, deletes=True)
    if record.does is Does.DROP:
        return (goes,)
    to = (record.key + PARTITIONS) % keys if record.does is Does.MOVE else record.key
    comes = Change(to, record.country, v, n, deletes=False)
    return (goes, comes) if record.does is Does.MOVE else (comes,)


@dataclass(frozen=True, slots=True)
class State:
    """The last change of each key."""

    kind: Kind
    last: Mapping[int, Change]

    def after(self, records: Iterable[Record]) -> State:
        """One batch later. Records of a partition come by their offsets."""
        if self.kind is not Kind.ORDERED:
            found = {change.key: change for record in records for change in record.changes}
            return State(self.kind, {**self.last, **found})
        # Of equal ones that which is read later: the table's row, then by offset.
        best = {key: (change.n or 0, -1, -1, change) for key, change in self.last.items()}
        for record in records:
            for change in record.changes:
                rank = (change.n or 0, record.offset, record.partition, change)
                if change.key not in best or best[change.key][:3] < rank[:3]:
                    best[change.key] = rank
        return State(self.kind, {key: change for key, (*_, change) in best.items()})

    def rows(self) -> list[Row]:
        """What a reader must see, sorted."""
        soft = self.kind is not Kind.HARD
        there = (change for change in self.last.values() if soft or not change.deletes)
        return in_order((c.key, c.country, c.v, c.n, c.deletes if soft else None) for c in there)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """By key, and record where a key is there twice."""
    return sorted(rows, key=lambda row: (row[0], row[2]))


def slices(records: Sequence[Record], size: int) -> list[list[Record]]:
    """What tasks read: of each partition pieces of `size` records, so that several tasks read a hot one."""
    found: list[list[Record]] = []
    for partition in range(PARTITIONS):
        mine = [record for record in records if record.partition == partition]
        found += [mine[start : start + size] for start in range(0, len(mine), size)]
    return found
