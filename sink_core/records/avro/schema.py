"""An Avro schema that records were written with: its definitions, and the form in which fastavro reads values plainly.

Logical types are left to Arrow: fastavro would make Python objects of them, which is slow, ends at the year 9999 and
rounds decimals that have more digits than declared. So it is asked for the plain numbers below them; only decimals are
read by a function of ours, exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from math import inf
from typing import Any, cast

import fastavro.read
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from calve.sink_core.records.columns.budget import MOST_FIELDS, MOST_FIXED
from calve.sink_core.records.columns.type_text import DECIMAL_DIGITS

Node = str | list[Any] | dict[str, Any]
"""A schema as JSON: the name of a type, a union, or a type with its parts."""

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = ("record", "error", "enum", "fixed")
_DECIMAL = "calve-decimal"
_DECIMAL_BYTES, _DIGITS, _BEYOND = 16, 39, Decimal("1E+38")
"""Bytes of 38 digits, what these have at most, and the first number that has more than 38."""
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


@dataclass(frozen=True, slots=True, eq=False)
class WriterSchema:
    """`name` tells people which schema it is. `readable` is for fastavro; `root` and `definitions` are as written."""

    name: str
    root: Node
    definitions: Mapping[str, Node] = field(repr=False)
    readable: Any = field(repr=False)

    def resolved(self, node: Node) -> Node:
        """The type that `node` names, if it is a name."""
        while isinstance(node, str) and node not in PRIMITIVES:
            node = self.definitions[node]
        # {"type": {"type": "string"}} is the same as "string".
        if isinstance(node, dict) and not isinstance(node["type"], str):
            return self.resolved(cast(Node, node["type"]))
        return node

    @property
    def unfit(self) -> str | None:
        """Why values can't be rows; None if they can."""
        return f"{self.name} is not of a record" if self.record is None else None

    @property
    def record(self) -> dict[str, Any] | None:
        """The record that values are; None if they are something else."""
        root = self.resolved(self.root)
        branches = [self.resolved(cast(Node, b)) for b in root if b != "null"] if isinstance(root, list) else [root]
        only = branches[0] if len(branches) == 1 else None
        return only if isinstance(only, dict) and only["type"] in ("record", "error") else None


def writer_schema(name: str, text: str, references: Sequence[str] = ()) -> WriterSchema:
    """The schema written in `text`, which may use types of `references`, given so that each uses earlier ones only.

    Raises ValueError saying what is wrong with it.
    """
    definitions: dict[str, Node] = {}
    try:
        for reference in references:
            parse_schema(_loaded(reference), named_schemas=cast(dict[str, Any], definitions))
        root = cast(Node, parse_schema(_loaded(text), named_schemas=cast(dict[str, Any], definitions)))
        readable = parse_schema(cast(Any, _Plain(definitions).of(root)))
        _refuse_empty_items(WriterSchema(name, root, definitions, readable), root, {})
    except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not an Avro schema: {type(error).__name__}: {error}") from None
    return WriterSchema(name, root, definitions, readable)


def within_record(schema: WriterSchema, name: str) -> WriterSchema:
    """The schema of a record whose only field, `name`, is of `schema`: its values are the same bytes."""

    def record(of: Any) -> Any:
        return {"type": "record", "name": "calve_single", "fields": [{"name": name, "type": of}]}

    readable = parse_schema(record(_Plain(schema.definitions).of(schema.root)))
    return WriterSchema(schema.name, record(schema.root), schema.definitions, readable)


def _refuse_empty_items(schema: WriterSchema, given: Node, known: dict[str, bool]) -> bool:
    """Whether values of `given` take no bytes; `known` are the names that were looked at, each once. Raises
    SchemaParseException for an array of such: a record of a few bytes could say it has 2⁶³ items.
    """
    node = schema.resolved(given)
    if isinstance(node, str):
        return node == "null"
    if isinstance(node, list):
        for branch in node:
            _refuse_empty_items(schema, cast(Node, branch), known)
        return False
    name, kind = str(node.get("name", "")), str(node["type"])
    if name in known:
        return known[name]
    if name:
        # A record within itself has no value without a byte that says so, or no end.
        known[name] = False
    parts = [field["type"] for field in node.get("fields", ())]
    parts += [node[key] for key in ("items", "values") if key in node]
    empty = [_refuse_empty_items(schema, part, known) for part in parts]
    if kind == "array" and empty[0]:
        raise SchemaParseException(f"an array of {shown(schema.resolved(node['items']))}, which takes no bytes")
    is_empty = node["size"] == 0 if kind == "fixed" else kind in ("record", "error") and all(empty)
    if name:
        known[name] = is_empty
    return is_empty


def is_for_many_at_once(schema: WriterSchema) -> bool:
    """Whether the schema, each type written out at each place that names it, is as small as readers have it that make
    a step of each part. One within itself has no end.
    """
    return _size(schema, schema.root, {}) <= MOST_FIELDS


def _size(schema: WriterSchema, given: Node, known: dict[str, float]) -> float:
    """How many parts `given` has; `known` are those of names that were looked at, each once."""
    node = schema.resolved(given)
    if isinstance(node, str):
        return 1
    if isinstance(node, list):
        return 1 + sum(_size(schema, cast(Node, branch), known) for branch in node)
    if node["type"] == "fixed" and node["size"] > MOST_FIXED:
        return inf
    name = str(node.get("name", ""))
    if name in known:
        return known[name]
    if name:
        known[name] = inf
    parts = [field["type"] for field in node.get("fields", ())]
    parts += [node[key] for key in ("items", "values") if key in node]
    size = 1 + sum(_size(schema, part, known) for part in parts)
    if name:
        known[name] = size
    return size


def logical(node: Node) -> str | None:
    """The logical type of a resolved node, None if it has none or one that its type can't carry."""
    if not isinstance(node, dict) or "logicalType" not in node:
        return None
    kind, name = str(node["type"]), str(node["logicalType"])
    if name == "decimal":
        return name if kind in ("bytes", "fixed") and _is_decimal(node) else None
    if name == "uuid":
        return name if kind == "string" or (kind == "fixed" and node.get("size") == 16) else None
    return name if _CARRIERS.get(name) == kind else None


_CARRIERS = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    **{f"{zone}timestamp-{unit}": "long" for zone in ("", "local-") for unit in ("millis", "micros", "nanos")},
}


def shown(node: Node) -> str:
    """A resolved node in a few words, for messages."""
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        parts = [part if isinstance(part, str) else str(part.get("name", part["type"])) for part in node]
        return f"a union of {', '.join(parts)}"
    if logical(node) == "decimal":
        return f"decimal({node['precision']}, {node.get('scale', 0)})"
    return logical(node) or (f"fixed({node['size']})" if node["type"] == "fixed" else str(node["type"]))


def _is_decimal(node: Mapping[str, Any]) -> bool:
    precision, scale = node.get("precision"), node.get("scale", 0)
    return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # The registry gives a schema that is only a name without quotes, as some of them do.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaParseException("not JSON") from None


class _Plain:
    """Writes a schema again with its definitions inside it, and without logical types but our own for decimals."""

    def __init__(self, definitions: Mapping[str, Node]) -> None:
        self._definitions = definitions
        self._written: set[str] = set()

    def of(self, node: Node) -> Node:
        if isinstance(node, str):
            if node in PRIMITIVES or node in self._written:
                return node
            return self.of(self._definitions[node])
        if isinstance(node, list):
            return [self.of(cast(Node, branch)) for branch in node]
        kind = cast(Node, node["type"])
        if not isinstance(kind, str):
            return self.of(kind)
        if kind in _NAMED:
            if node["name"] in self._written:
                return str(node["name"])
            self._written.add(str(node["name"]))
        return {"type": kind, **self._parts(node, kind), **_own_logical(node)}

    def _parts(self, node: Mapping[str, Any], kind: str) -> dict[str, Any]:
        parts = {key: node[key] for key in ("name", "symbols", "size") if key in node}
        for key in ("items", "values"):
            if key in node:
                parts[key] = self.of(node[key])
        if kind in ("record", "error"):
            parts["type"] = "record"
            parts["fields"] = [{"name": field["name"], "type": self.of(field["type"])} for field in node["fields"]]
        return parts


def _own_logical(node: Mapping[str, Any]) -> dict[str, Any]:
    if logical(dict(node)) != "decimal":
        return {}
    return {"logicalType": _DECIMAL, "precision": node["precision"], "scale": node.get("scale", 0)}


def _decimal(data: Any, writer: dict[str, Any] | None, _reader: object) -> Decimal:
    return exact(data, int((writer or {})["scale"]))


def exact(data: bytes, scale: int) -> Decimal:
    """A decimal's bytes as its value, with all its digits; one that no column holds for any such."""
    if len(data) > _DECIMAL_BYTES:
        # Python takes for digits the square of their number.
        sign = data[-_DECIMAL_BYTES] & 0x80
        if data[:-_DECIMAL_BYTES].strip(b"\xff" if sign else b"\0"):
            return _BEYOND
        data = data[-_DECIMAL_BYTES:]
    number = int.from_bytes(data, "big", signed=True)
    if scale > DECIMAL_DIGITS:
        # Arrow can't bring these to a column's scale, and makes 0 of some.
        number, rest = divmod(number, 10 ** min(scale - DECIMAL_DIGITS, _DIGITS))
        if rest:
            return _BEYOND
        scale = DECIMAL_DIGITS
    return Decimal(number).scaleb(-scale, _EXACT)


# fastavro's way to add logical types; the names are ours, so nobody else's schemas are concerned.
fastavro.read.LOGICAL_READERS[f"bytes-{_DECIMAL}"] = _decimal
fastavro.read.LOGICAL_READERS[f"fixed-{_DECIMAL}"] = _decimal
