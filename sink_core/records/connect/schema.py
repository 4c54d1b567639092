"""The schemas that Kafka Connect's JsonConverter writes into each record's envelope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from calve.sink_core.records.decode.python_json import MOST_LEVELS

INTEGERS = ("int8", "int16", "int32", "int64")
_PLAIN = ("boolean", "string", "bytes", *INTEGERS, "float", "float32", "double", "float64")
_LOGICAL = {
    "org.apache.kafka.connect.data.Decimal": ("decimal", "bytes"),
    "org.apache.kafka.connect.data.Date": ("date", "int32"),
    "org.apache.kafka.connect.data.Time": ("time", "int32"),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", "int64"),
}


# What JDBC sources say of a number's digits; Connect's own decimals have a scale only.
_PRECISION = "connect.decimal.precision"
_NUMBER = re.compile(r"-?\d{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConnectType:
    """A type of Connect's. `kind` is its type or, with Connect's own logical types, `decimal`, `date`, `time`,
    `timestamp`. `precision`, 0 if unknown, and `scale` are a decimal's, `fields` a struct's; `key` and `item` are those
    of a map, `item` that of an array.
    """

    kind: str
    optional: bool = False
    doc: str | None = None
    scale: int = 0
    precision: int = 0
    fields: tuple[tuple[str, ConnectType], ...] = ()
    key: ConnectType | None = None
    item: ConnectType | None = None

    def within(self) -> Iterator[ConnectType]:
        """This type and all it consists of."""
        yield self
        parts = [part for part in (self.key, self.item) if part is not None]
        for part in (*parts, *(kind for _, kind in self.fields)):
            yield from part.within()


def connect_type(given: object) -> ConnectType:
    """The type written as the JSON value `given`. Raises ValueError saying what is wrong with it."""
    try:
        return _type(cast(dict[str, Any], given))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a schema of Connect's: {type(error).__name__}: {error}") from None


def _type(given: dict[str, Any], level: int = 0) -> ConnectType:
    if level > MOST_LEVELS:
        raise ValueError(f"more than {MOST_LEVELS} types within each other")
    kind, optional = str(given["type"]), given.get("optional") is True
    doc = None if given.get("doc") is None else str(given["doc"])
    meaning, carrier = _LOGICAL.get(str(given.get("name")), (kind, kind))
    if meaning != kind and carrier == kind:
        if meaning != "decimal":
            return ConnectType(meaning, optional, doc)
        parameters = given["parameters"]
        scale, precision = _number(parameters["scale"]), _number(parameters.get(_PRECISION, "0"))
        return ConnectType(meaning, optional, doc, scale, precision)
    if kind == "struct":
        fields = {str(member["field"]): _type(member, level + 1) for member in given["fields"]}
        if len(fields) < len(given["fields"]):
            raise ValueError("a field is there twice")
        return ConnectType(kind, optional, doc, fields=tuple(fields.items()))
    if kind == "array":
        return ConnectType(kind, optional, doc, item=_type(given["items"], level + 1))
    if kind == "map":
        key, item = (_type(given[part], level + 1) for part in ("keys", "values"))
        return ConnectType(kind, optional, doc, key=key, item=item)
    if kind not in _PLAIN:
        raise ValueError(f"unknown type {kind}")
    return ConnectType(kind, optional, doc)


def _number(given: object) -> int:
    """A parameter, which Connect writes as text."""
    if isinstance(given, bool) or not _NUMBER.fullmatch(str(given)):
        raise ValueError(f"{given!r} is no number of digits")
    return int(str(given))
