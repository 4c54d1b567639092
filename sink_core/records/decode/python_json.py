"""JSON by Python's own parser, which takes here what Arrow's takes: a record means the same to both.

Both know `NaN` and `Infinity`. Arrow's has `Inf` and a sign before NaN besides, and integers of any length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from pyiceberg.types import DoubleType, FloatType, IcebergType

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Texts for what JSON has no number for, as PostgreSQL, Jackson and Calve's own sources write it: columns of type float
and double take them, and no other text.
"""

MOST_LEVELS = 50
"""Of columns within columns that a record may ask for: what makes and reads schemas calls itself for each."""

_MOST_DIGITS = 4_000
"""Fewer than Python makes an integer of."""
# A text that does not end is taken as well: it is looked at once, however many quotes are in it.
_ARROWS = re.compile(r'"(?:[^"\\]|\\.)*+"?|Inf(?!inity)|-NaN', re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_PYTHONS = {"Inf": "Infinity", "-NaN": "NaN"}


class Digits(str):
    """A number as it was written."""

    __slots__ = ()


def loads(value: bytes, **hooks: Callable[[str], Any]) -> object:
    """What the JSON `value` says, by hooks as `json.loads` has them; an integer of thousands of digits is the nearest
    float. Raises ValueError for what isn't JSON in UTF-8, and RecursionError for a value nested too deeply.
    """
    return _loads(value, **{"parse_int": _integer, **hooks})


def as_written(value: bytes) -> object:
    """What the JSON `value` says, each number as `Digits`. Raises as `loads` does, and ValueError for a key that an
    object has twice and, as Arrow's parser does, for half of a character.
    """
    found = _loads(value, object_pairs_hook=no_key_twice, parse_int=Digits, parse_float=Digits, parse_constant=Digits)
    if _HALF.search(value):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _loads(value: bytes, **hooks: Any) -> object:
    text = value.decode()
    try:
        return json.loads(text, **hooks)
    except ValueError:
        pythons = _ARROWS.sub(lambda found: _PYTHONS.get(found[0], found[0]), text)
        if pythons == text:
            raise
    return json.loads(pythons, **hooks)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def is_not_finite(value: object, wanted: IcebergType) -> bool:
    """Whether a parsed text stands for a float that is no number, and is to be one."""
    return value in NOT_FINITE and isinstance(wanted, FloatType | DoubleType)


def is_too_deep(value: object) -> bool:
    """Whether objects and lists in a parsed value lie deeper within each other than columns are made of."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return True


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast(dict[str, object], value).values()
    return cast(list[object], value) if isinstance(value, list) else ()


def no_key_twice(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """The object of these members. Raises ValueError if a key stands twice."""
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"key {key!r} stands twice in one object")
        members[key] = value
    return members
