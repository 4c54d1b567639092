"""From a sample of JSON records to a schema that holds each of them without loss.

| what the sample shows for a field                        | type                                       |
|----------------------------------------------------------|--------------------------------------------|
| `true`, `false`                                          | boolean                                    |
| integers that fit 64 bits                                | long                                       |
| integers, some larger, none above 38 digits              | decimal(38,0)                              |
| numbers, at least one with fraction or exponent          | double                                     |
| numbers, and the texts `NaN`, `Infinity`, `-Infinity`    | double                                     |
| strings, all ISO 8601 date-times with a zone             | timestamptz                                |
| strings, all ISO 8601 date-times without                 | timestamp                                  |
| strings, all ISO 8601 dates                              | date                                       |
| other strings                                            | string                                     |
| objects                                                  | struct of their fields                     |
| arrays                                                   | list of their elements                     |
| only null, only empty arrays                             | string, list<string>; the column's doc says so |
| only empty objects                                       | no column: an empty struct can't be stored |
| different kinds (a number here, a text there)            | refused: no type holds both without loss   |

A double rounds whole numbers beyond 2^53: the doc of a column says so where the sample has them beside fractions.
Everything is optional; columns are in the order first seen. Date-times have seconds and at most six decimals, and
zeros for nanoseconds.

A table that is given a column later (`evolve: [add_column]`) follows the same rules for what a batch shows, but for
two: a field that is only null or empty gets no column yet, and of different kinds the one seen first counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from itertools import count
from typing import Any, cast

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.checked import of_fields
from calve.sink_core.records.decode.python_json import NOT_FINITE, is_too_deep

ONLY_NULL = "only null in the sample"
ONLY_EMPTY = "only empty lists in the sample"
ROUNDED = "some whole numbers in the sample are beyond 2^53, and others are none: stored are the nearest doubles"

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6}0{0,3})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TEXT_TYPES: dict[str, IcebergType] = {
    "timestamptz": TimestamptzType(),
    "timestamp": TimestampType(),
    "date": DateType(),
}
_NOT_FINITE = "text for no number"
_LONG_LIMIT, _DECIMAL_LIMIT, _EXACT_DOUBLES = 2**63, 10**38, 2**53


@dataclass(slots=True)
class Seen:
    """What the sample showed at one place; `kinds` in the order seen. `largest` and `texts` only matter for numbers and
    strings."""

    kinds: dict[str, None] = field(default_factory=dict[str, None])
    texts: set[str] = field(default_factory=set[str])
    largest: int = 0
    fields: dict[str, Seen] = field(default_factory=lambda: dict[str, "Seen"]())
    element: Seen | None = None


def infer_schema(values: Iterable[bytes]) -> Schema:
    """The schema of JSON records by the rules above, field ids from 1.

    Values that are no JSON object (or give a key twice, or are nested too deeply for columns) are skipped. Raises
    ConfigError if none is left, or naming the field that holds two kinds of value.
    """
    records = [record for value in values if (record := _parsed(value)) is not None]
    if not records:
        raise ConfigError(
            "no record of the sample is a JSON object, so no column can be inferred",
            hint="name the columns under auto_create.columns, or begin when the topic has records",
            code=Code.NO_SAMPLE,
        )
    root = Seen()
    for record in records:
        note(root, record)
    return of_fields(f"the sample of {len(records)} JSON objects", _Columns(partial(next, count(1))).fields(root, ""))


def _parsed(value: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(value.decode("utf-8"), object_pairs_hook=_without_repeats, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], parsed) if isinstance(parsed, dict) and not is_too_deep(parsed) else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def note(seen: Seen, value: object) -> None:
    """Add what `value`, as `json.loads` gives it, shows."""
    match value:
        case None:
            return
        case bool():
            seen.kinds.setdefault("boolean")
        case int():
            seen.kinds.setdefault("integer")
            # One more for negative numbers: a long reaches one further down than up.
            seen.largest = max(seen.largest, value if value >= 0 else -value - 1)
        case float():
            seen.kinds.setdefault("number")
        case str():
            # Beside numbers it is one, and a text beside anything else.
            seen.kinds.setdefault(_NOT_FINITE if value in NOT_FINITE else "string")
            seen.texts.add(_text_kind(value))
        case list():
            seen.kinds.setdefault("array")
            for item in cast(list[object], value):
                seen.element = seen.element or Seen()
                note(seen.element, item)
        case _:
            seen.kinds.setdefault("object")
            for name, inner in cast(dict[str, object], value).items():
                note(seen.fields.setdefault(name, Seen()), inner)


def _text_kind(text: str) -> str:
    try:
        if match := _DATE_TIME.fullmatch(text):
            datetime.fromisoformat(text)
            return "timestamptz" if match[1] else "timestamp"
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
    except ValueError:
        pass
    return "string"


def fields_seen(seen: Seen, next_id: Callable[[], int]) -> list[NestedField]:
    """The fields that a table is given for what the objects seen show, by the rules for columns given later."""
    return _Columns(next_id, later=True).fields(seen, "")


def _kinds(seen: Seen) -> list[str]:
    """The kinds of values that columns tell apart, in the order seen."""
    texts = "number" if seen.kinds.keys() & {"integer", "number"} else "string"
    numbers = "number" if seen.kinds.keys() & {"number", _NOT_FINITE} else "integer"
    same = {_NOT_FINITE: texts, "integer": numbers}
    return list(dict.fromkeys(same.get(kind, kind) for kind in seen.kinds))


def _doc(seen: Seen) -> str | None:
    if not seen.kinds:
        return ONLY_NULL
    if "integer" in seen.kinds and _kinds(seen) == ["number"] and seen.largest > _EXACT_DOUBLES:
        return ROUNDED
    return ONLY_EMPTY if list(seen.kinds) == ["array"] and seen.element is None else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """`later`: for a table that is there."""

    next_id: Callable[[], int]
    later: bool = False

    def fields(self, seen: Seen, path: str) -> list[NestedField]:
        fields: list[NestedField] = []
        for name, inner in seen.fields.items():
            field_id = self.next_id()
            kind = self._type(inner, f"{path}{name}")
            if kind is not None:
                fields.append(NestedField(field_id, name, kind, required=False, doc=_doc(inner)))
        return fields

    def _type(self, seen: Seen, path: str) -> IcebergType | None:
        match self._kind(seen, path):
            case "boolean":
                return BooleanType()
            case "integer":
                return _integer_type(seen.largest)
            case "number":
                return DoubleType()
            case "array":
                return self._list_type(seen, path)
            case "object":
                fields = self.fields(seen, f"{path}.")
                return StructType(*fields) if fields else None
            case None if self.later:
                return None
            case _:
                (kind,) = seen.texts if len(seen.texts) == 1 else ("string",)
                return _TEXT_TYPES.get(kind, StringType())

    def _kind(self, seen: Seen, path: str) -> str | None:
        kinds = _kinds(seen)
        if len(kinds) > 1 and not self.later:
            raise ConfigError(
                f"field {path} holds {' and '.join(_plural(kind) for kind in sorted(kinds))} in the sample",
                hint=f"name the columns under auto_create.columns with the type {path} is to have, or without it; "
                "records that don't fit become dead letters",
                code=Code.TWO_KINDS,
            )
        return kinds[0] if kinds else None

    def _list_type(self, seen: Seen, path: str) -> IcebergType | None:
        element_id = self.next_id()
        element = self._type(seen.element or Seen(), f"{path}[]")
        return None if element is None else ListType(element_id, element, element_required=False)


def _integer_type(largest: int) -> IcebergType:
    if largest < _LONG_LIMIT:
        return LongType()
    return DecimalType(38, 0) if largest < _DECIMAL_LIMIT - 1 else DoubleType()


def _plural(kind: str) -> str:
    return f"{kind}s"
