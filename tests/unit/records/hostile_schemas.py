"""Schemas as nobody means them: small texts that cost whoever reads them much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIELDS_OF_A_TABLE = 2**30
"""That a schema of thirty levels has, if each of its types is written out at each place that names it."""


def twice(levels: int, leaf: object = "null") -> dict[str, Any]:
    """An Avro record of two records of one below, down to a `leaf`: twice as many with each level."""
    node: dict[str, Any] = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for level in range(1, levels + 1):
        fields = [{"name": "a", "type": node}, {"name": "b", "type": f"R{level - 1}"}]
        node = {"type": "record", "name": f"R{level}", "fields": fields}
    return node


def record(**fields: object) -> dict[str, Any]:
    """An Avro record of these fields."""
    return {"type": "record", "name": "T", "fields": [{"name": name, "type": of} for name, of in fields.items()]}


def twice_of_messages(levels: int) -> str:
    """As `twice`, in Protobuf; the first message is the outermost."""
    inner = "".join(f"message M{i} {{ M{i - 1} a = 1; M{i - 1} b = 2; }}" for i in range(levels, 0, -1))
    return f'syntax = "proto3"; {inner} message M0 {{ int64 a = 1; }}'


def chain(levels: int) -> dict[str, Any]:
    """An Avro record within a record, and so on."""
    node: Any = "long"
    for level in range(levels):
        node = {"type": "record", "name": f"C{level}", "fields": [{"name": "a", "type": ["null", node]}]}
    return node


def definitions(levels: int) -> Mapping[str, Any]:
    """As `twice`, as a JSON Schema."""
    found: dict[str, Any] = {"d0": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/definitions/d{level - 1}"}
        found[f"d{level}"] = {"type": "object", "properties": {"a": below, "b": below}}
    return {"properties": {"x": {"$ref": f"#/definitions/d{levels}"}}, "definitions": found}
