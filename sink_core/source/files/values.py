"""Lines and rows → the key and the value of a record; what can't be made one raises ValueError, which says why."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from calve.sink_core.source.base import BadRow, Record, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.json_values import compact

MOST_RECORDS, MOST_BYTES = 1000, 2**20
"""The most that one `Rows` has: it may end a transaction."""

MOST_RECORD = 16 * 2**20
"""The longest line, in bytes: a file of another kind has no ends of lines."""

# Of the whole process. Its default makes an error of a longer text in one field.
csv.field_size_limit(MOST_RECORD)


class Gathered:
    """What one `Rows` will have."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._bad: list[BadRow] = []
        self._dropped = self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._records) + len(self._bad) + self._dropped >= MOST_RECORDS or self._bytes >= MOST_BYTES

    def add(self, made: Record | BadRow | None, size: int) -> None:
        """A record, a bad row, or None for a line that has nothing; `size` in bytes as it was read."""
        self._bytes += size
        if isinstance(made, Record):
            self._records.append(made)
        elif made is not None:
            self._bad.append(made)
        else:
            self._dropped += 1

    def rows(self, offset: FlatMap) -> Rows:
        """All of it; then there is nothing."""
        rows = Rows(offset, self._records, self._bad, self._dropped)
        self._records, self._bad, self._dropped, self._bytes = [], [], 0, 0
        return rows


class Digits(str):
    """A number as it is written: as one of Python it could be another."""

    __slots__ = ()


def json_object(line: str) -> dict[str, Any]:
    """Of a line of JSON, whose numbers are `Digits`. Raises ValueError for any other value, and for what JSON hasn't,
    such as NaN.
    """
    try:
        found: object = _DECODER.decode(line)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object, but {type(found).__name__}")
    return cast(dict[str, Any], found)


def csv_fields(record: str) -> list[str]:
    """Of one record of CSV, line breaks in quotes included; none for an empty line. Raises ValueError."""
    try:
        return next(csv.reader([record], strict=True), [])
    except csv.Error as error:
        raise ValueError(str(error)) from error


def key_of(values: Mapping[str, Any], fields: Sequence[str]) -> bytes | None:
    """A JSON object of these fields, in this order; None if there are none. Raises ValueError if one is missing."""
    return compact(_named(values, fields)) if fields else None


def key_of_line(values: Mapping[str, Any], fields: Sequence[str]) -> bytes | None:
    """As `key_of`, of what `json_object` gave: numbers with the digits of the file."""
    try:
        return _written(_named(values, fields)).encode() if fields else None
    except RecursionError as error:
        # To write it takes more levels than to read it.
        raise ValueError(_TOO_DEEP) from error


def _named(values: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    if missing := [name for name in fields if name not in values]:
        raise ValueError(f"lacks {', '.join(missing)}, of which its key is made")
    return {name: values[name] for name in fields}


def _written(value: Any) -> str:
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value).items()
        return "{" + ",".join(f"{_text(name)}:{_written(each)}" for name, each in fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, cast(list[Any], value))) + "]"
    return _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_TOO_DEEP = "nested too deeply"
_DECODER = json.JSONDecoder(parse_float=Digits, parse_int=Digits, parse_constant=_no_json)
