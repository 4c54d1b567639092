"""Values by the hundred thousand: the last ones are at hand, all others packed, some hundred bytes each.

What a log or a ledger says of a batch is mostly what it says of the one before, and nobody asks for most of it again.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import islice
from sys import intern
from typing import Generic, TypeVar, cast, overload

BLOCK = 256
"""Values that are packed together."""

_FAST = 1
_AT_HAND = -1

T = TypeVar("T")


class PackedList(Sequence[T]):
    """A list that grows at its end. What is taken out of what is packed is a copy."""

    def __init__(self) -> None:
        self._blocks = _Blocks[T]()
        self._last: list[T] = []

    def append(self, value: T) -> None:
        self._last.append(value)
        # Whoever asks for the last ones finds some at hand.
        if len(self._last) == 2 * BLOCK:
            self._blocks.pack(self._last[:BLOCK])
            del self._last[:BLOCK]

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._last)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        places = range(len(self))[place]
        return self._at(places) if isinstance(places, int) else [self._at(each) for each in places]

    def __iter__(self) -> Iterator[T]:
        for number in range(len(self._blocks)):
            yield from self._blocks[number]
        yield from self._last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedList) and list(self) == list(cast(PackedList[T], other))

    __hash__ = None  # pyright: ignore[reportAssignmentType] (as that of a list)

    def _at(self, place: int) -> T:
        packed = len(self._blocks) * BLOCK
        return self._last[place - packed] if place >= packed else self._blocks[place // BLOCK][place % BLOCK]


class PackedDict(MutableMapping[str, T]):
    """A dictionary by ids, in the order in which they came first. A value that was changed must be set again."""

    def __init__(self) -> None:
        self._blocks = _Blocks[T]()
        self._places: dict[str, int] = {}
        self._at_hand: dict[str, T] = {}

    def __setitem__(self, key: str, value: T) -> None:
        key = intern(key)
        self._places.setdefault(key, _AT_HAND)
        self._at_hand[key] = value
        if len(self._at_hand) == 2 * BLOCK:
            self._pack()

    def __getitem__(self, key: str) -> T:
        if key in self._at_hand:
            return self._at_hand[key]
        block, within = divmod(self._places[key], BLOCK)
        return self._blocks[block][within]

    def __delitem__(self, key: str) -> None:
        del self._places[key]
        self._at_hand.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _pack(self) -> None:
        oldest = list(islice(self._at_hand, BLOCK))
        first = len(self._blocks) * BLOCK
        self._blocks.pack([self._at_hand.pop(key) for key in oldest])
        self._places.update(zip(oldest, range(first, first + BLOCK), strict=True))


class _Blocks(Generic[T]):
    """Lists of `BLOCK` values, of which the one asked for last is kept as it is."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._unpacked: tuple[int, list[T]] = (-1, [])

    def pack(self, values: list[T]) -> None:
        self._packed.append(zlib.compress(pickle.dumps(values, pickle.HIGHEST_PROTOCOL), _FAST))

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, number: int) -> list[T]:
        known, values = self._unpacked
        if known != number:
            values = cast(list[T], pickle.loads(zlib.decompress(self._packed[number])))  # noqa: S301 - our own bytes
            self._unpacked = number, values
        return values
