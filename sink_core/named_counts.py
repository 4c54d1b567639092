"""Counts by name, of which there are many with the same names: a fold keeps them for every batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from struct import Struct

NAMES_KEPT = 1024
"""Sets of names that are shared."""


class NamedCounts(Mapping[str, int]):
    """The counts of a mapping: eight bytes each, where the names are those of others."""

    __slots__ = ("_counts", "_names")

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._names = _shared(tuple(counts))
        self._counts = _layout(len(counts)).pack(*counts.values())

    def __getitem__(self, name: str) -> int:
        try:
            return self._values()[self._names.index(name)]
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"NamedCounts({dict(self)})"

    def _values(self) -> tuple[int, ...]:
        return _layout(len(self._names)).unpack(self._counts)


@lru_cache(NAMES_KEPT)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


@lru_cache
def _layout(length: int) -> Struct:
    return Struct(f"={length}q")
