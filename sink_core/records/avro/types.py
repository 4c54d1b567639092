"""Which Avro types a column takes, and how: lossless, or an error for the record.

| column | Avro |
|---|---|
| boolean | boolean |
| int, long | int, long; a long must fit |
| float, double | float, double, int, long; what isn't exactly a number of the column's type is an error |
| decimal(p, s) | decimal, int, long; the value's digits must fit |
| string | string, enum, uuid written as string |
| uuid | uuid |
| binary, fixed(n) | bytes, fixed; for fixed(n) n bytes |
| date, time | date; time-millis, time-micros |
| timestamptz | timestamp-millis, timestamp-micros, timestamp-nanos, if they are whole microseconds |
| timestamp | the same with local- |
| struct | record; fields match by name (`names`), those the column lacks are ignored, missing ones are null |
| list, map | array, map |

A union fits if all its branches do in the same way, `null` aside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from calve.sink_core.records.avro.schema import Node, WriterSchema, logical, shown
from calve.sink_core.records.columns.names import EXACT, Names, TwoOfOne
from calve.sink_core.records.decode.convert import column_name

_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_INTEGERS = ("int", "long")
_TEXTS = ("string", "enum")
_BYTES = ("bytes", "fixed")


@dataclass(slots=True)
class Carriers:
    """Chooses the Arrow types that values are first brought to. `misfits` gets a line for each field that can't fit:
    it is carried as null, so that only a record which has it is bad. With a `clash` of names all records are."""

    schema: WriterSchema
    names: Names = EXACT
    misfits: list[str] = field(default_factory=list[str])
    clash: str = ""
    _branches: dict[tuple[int, pa.DataType], pa.DataType | None] = field(default_factory=dict[Any, Any], repr=False)

    def carrier(self, given: Node, wanted: pa.DataType, path: str) -> pa.DataType:
        """The type for values of `given` on their way to `wanted`, a type of a file's schema."""
        node = self.schema.resolved(given)
        if isinstance(node, list):
            return self._union([branch for branch in node if branch != "null"], node, wanted, path)
        if node == "null":
            return pa.null()
        if pa.types.is_nested(wanted):
            found = self._nested(node, wanted, path)
        else:
            found = _leaf_carrier(str(node["type"]) if isinstance(node, dict) else node, logical(node), wanted)
        return found or self._misfit(node, wanted, path)

    def _union(self, branches: list[Node], node: Node, wanted: pa.DataType, path: str) -> pa.DataType:
        if len(branches) == 1:
            return self.carrier(branches[0], wanted, path)
        kinds: list[pa.DataType] = []
        for branch in branches:
            kind = self._branch(self.schema.resolved(branch), wanted, path)
            if kind is None or kind != next(iter(kinds), kind):
                return self._misfit(node, wanted, path)
            kinds.append(kind)
        return kinds[0] if kinds else pa.null()

    def _branch(self, node: Node, wanted: pa.DataType, path: str) -> pa.DataType | None:
        """The type for a branch of several; None if it doesn't fit. Looked at once, as unions may be within unions."""
        # The schema holds the node, so that no other one gets its id.
        key = id(node), wanted
        if key not in self._branches:
            alone = Carriers(self.schema, self.names, _branches=self._branches)
            kind = alone.carrier(node, wanted, path)
            self._branches[key] = None if alone.misfits else kind
        return self._branches[key]

    def _nested(self, node: Node, wanted: pa.DataType, path: str) -> pa.DataType | None:
        if not isinstance(node, dict):
            return None
        kind = node["type"]
        if pa.types.is_struct(wanted) and kind in ("record", "error"):
            return self.struct(node["fields"], wanted, path)
        if pa.types.is_large_list(wanted) and kind == "array":
            return pa.large_list(self.carrier(node["items"], wanted.value_type, f"{path}.element"))
        if pa.types.is_map(wanted) and kind == "map":
            key = self.carrier("string", wanted.key_type, f"{path}.key")
            return pa.map_(key, self.carrier(node["values"], wanted.item_type, f"{path}.value"))
        return None

    def struct(self, fields: list[dict[str, Node]], wanted: pa.DataType | pa.Schema, path: str = "") -> pa.DataType:
        """The type for a record of these fields on its way to the fields of `wanted`."""
        written = {str(member["name"]): member["type"] for member in fields}
        try:
            called = self.names.called(wanted, written)
        except TwoOfOne as error:
            self.clash, called = f"{path}.{error}".lstrip("."), {}
        found = [(to, called.get(str(to.name), str(to.name))) for to in wanted]
        return pa.struct(
            [
                pa.field(name, self.carrier(written.get(name, "null"), to.type, f"{path}.{to.name}".lstrip(".")))
                for to, name in found
            ]
        )

    def _misfit(self, node: Node, wanted: pa.DataType, path: str) -> pa.DataType:
        self.misfits.append(f"{path}: Avro's {shown(node)} doesn't fit {column_name(wanted)}")
        return pa.null()


def _leaf_carrier(kind: str, meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    """The type for a leaf; None if it doesn't fit."""
    for matches, carrier in _LEAVES:
        if matches(wanted):
            return carrier(kind, meaning, wanted)
    return None


def _boolean(kind: str, _meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    return wanted if kind == "boolean" else None


def _integer(kind: str, meaning: str | None, _wanted: pa.DataType) -> pa.DataType | None:
    return pa.int64() if kind in _INTEGERS and meaning is None else None


def _number(kind: str, meaning: str | None, _wanted: pa.DataType) -> pa.DataType | None:
    return pa.float64() if kind in ("float", "double", *_INTEGERS) and meaning is None else None


def _decimal(kind: str, meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    return wanted if meaning == "decimal" or (kind in _INTEGERS and meaning is None) else None


def _text(kind: str, _meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    return wanted if kind in _TEXTS else None


def _uuid(kind: str, meaning: str | None, _wanted: pa.DataType) -> pa.DataType | None:
    if meaning != "uuid":
        return None
    return pa.string() if kind == "string" else pa.binary(16)


def _binary(kind: str, meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    return wanted if kind in _BYTES and meaning != "decimal" else None


def _date(_kind: str, meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    return wanted if meaning == "date" else None


def _time(_kind: str, meaning: str | None, _wanted: pa.DataType) -> pa.DataType | None:
    # Not `wanted` itself: what has its type already isn't looked at again, and a day must end.
    return {"time-millis": pa.time32("ms"), "time-micros": pa.int64()}.get(meaning or "")


def _timestamp(_kind: str, meaning: str | None, wanted: pa.DataType) -> pa.DataType | None:
    name, _, unit = (meaning or "").rpartition("-")
    if name != ("timestamp" if wanted.tz else "local-timestamp"):
        return None
    return pa.timestamp(_UNITS[unit], wanted.tz)


_Carrier = Callable[[str, str | None, pa.DataType], pa.DataType | None]
_LEAVES: list[tuple[Callable[[pa.DataType], bool], _Carrier]] = [
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_large_string, _text),
    (lambda wanted: isinstance(wanted, pa.UuidType), _uuid),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_fixed_size_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
    (pa.types.is_timestamp, _timestamp),
]
