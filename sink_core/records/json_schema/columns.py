"""From a JSON Schema to the columns that hold the objects it describes.

| JSON Schema | column |
|---|---|
| boolean, integer, number | boolean, long, double |
| string | string; with `format` date, date-time, uuid: date, timestamptz, uuid; with `contentEncoding` base64: binary |
| `enum` or `const` without a type | that of its values |
| array with `items` | list |
| object with `properties` | struct; other members are ignored |
| object with a schema as `additionalProperties` | map of strings to it |
| `type` with null, `oneOf` or `anyOf` of null and one other | that other, optional |
| `allOf` of one, `$ref` | that schema |
| null | no column |

What is named under `required` and can't be null is required. Descriptions become the columns' docs. Anything else (a
schema of several types, a schema within itself, an object or array that may hold anything) is refused by naming the
field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.budget import FieldIds
from calve.sink_core.records.columns.checked import Columns, of_fields
from calve.sink_core.records.decode.python_json import MOST_LEVELS
from calve.sink_core.records.json_schema.decoder import JsonSchema

_PLAIN: dict[str, IcebergType] = {"boolean": BooleanType(), "integer": LongType(), "number": DoubleType()}
_FORMATS: dict[str, IcebergType] = {"date": DateType(), "date-time": TimestamptzType(), "uuid": UUIDType()}
_KINDS: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Found:
    """A schema without references and unions with null. `document` is what references within it begin at."""

    node: Node
    document: object
    optional: bool


def json_schema_columns(schema: JsonSchema) -> Columns:
    """The columns for objects of `schema`, field ids from 1. Raises ConfigError naming the field that has none."""
    columns = _Columns(schema, FieldIds(schema.name))
    found = columns.found(schema.root, schema.root, "")
    if found is None or not found.node.get("properties"):
        raise ConfigError(
            f"{schema.name} has no properties; columns can only be made of an object's",
            hint="name the columns under auto_create.columns",
            code=Code.NO_RECORD,
        )
    return of_fields(schema.name, columns.fields(found, "", 0))


@dataclass(frozen=True, slots=True)
class _Columns:
    schema: JsonSchema
    next_id: FieldIds

    def fields(self, found: _Found, path: str, depth: int) -> list[NestedField]:
        fields: list[NestedField] = []
        wanted, properties = found.node.get("required", []), found.node["properties"]
        if not isinstance(properties, dict):
            raise self._refused(path.removesuffix("."), f"has the properties {properties!r}")
        # Draft 3 says true at a field.
        wanted = cast(list[str], wanted if isinstance(wanted, list) else [])
        for name, given in cast(Node, properties).items():
            field_id, inner = self.next_id(), self.found(given, found.document, f"{path}{name}")
            kind = inner and self._type(inner, f"{path}{name}", depth + 1)
            if kind and inner:
                required = name in wanted and not inner.optional
                doc = inner.node.get("description")
                fields.append(NestedField(field_id, name, kind, required=required, doc=doc and str(doc)))
        return fields

    def found(self, given: object, document: object, path: str, optional: bool = False, hops: int = 0) -> _Found | None:
        """What `given` is in the end; None if it is nothing but null."""
        if not isinstance(given, dict):
            raise self._refused(path, f"is {given!r}: it may hold anything")
        node = cast(Node, given)
        if hops > MOST_LEVELS:
            raise self._refused(path, "is a schema within itself")
        if "$ref" in node:
            target, within = self._referred(str(node["$ref"]), document, path)
            return self.found(target, within, path, optional, hops + 1)
        for key in ("oneOf", "anyOf", "allOf"):
            if key in node and "properties" not in node:
                if not isinstance(node[key], list):
                    raise self._refused(path, f"has {key}: {node[key]!r}")
                branches = cast(list[object], node[key])
                some = [branch for branch in branches if not _is_null(branch)]
                if len(some) > 1 or not branches:
                    raise self._refused(path, f"is {key} of {len(some)} schemas")
                null = optional or len(some) < len(branches)
                return self.found(some[0], document, path, null, hops + 1) if some else None
        kinds = _kinds(node)
        others = [kind for kind in kinds if kind != "null"]
        if len(others) > 1:
            raise self._refused(path, f"is {' or '.join(others)}")
        if not kinds:
            raise self._refused(path, "has no type: it may hold anything")
        if not others:
            return None
        return _Found({**node, "type": others[0]}, document, optional or len(kinds) > 1)

    def _type(self, found: _Found, path: str, depth: int) -> IcebergType | None:
        node, kind = found.node, str(found.node["type"])
        if depth > MOST_LEVELS:
            raise self._refused(path, "is a schema within itself")
        if kind == "string":
            is_binary = str(node.get("contentEncoding", "")).lower() == "base64"
            return BinaryType() if is_binary else _FORMATS.get(str(node.get("format")), StringType())
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "array":
            return self._list(found, path, depth)
        if kind != "object":
            raise self._refused(path, f"has the unknown type {kind}")
        if node.get("properties"):
            fields = self.fields(found, f"{path}.", depth)
            return StructType(*fields) if fields else None
        return self._map(found, path, depth)

    def _list(self, found: _Found, path: str, depth: int) -> IcebergType | None:
        if "items" not in found.node:
            raise self._refused(path, "is an array without items: it may hold anything")
        element_id, inner = self.next_id(), self.found(found.node["items"], found.document, f"{path}.element")
        element = inner and self._type(inner, f"{path}.element", depth + 1)
        return ListType(element_id, element, element_required=not inner.optional) if element and inner else None

    def _map(self, found: _Found, path: str, depth: int) -> IcebergType | None:
        more = found.node.get("additionalProperties")
        if not isinstance(more, dict):
            raise self._refused(path, "is an object without properties: it may hold anything")
        key_id, value_id = self.next_id(), self.next_id()
        inner = self.found(cast(object, more), found.document, f"{path}.value")
        value = inner and self._type(inner, f"{path}.value", depth + 1)
        required = inner is not None and not inner.optional
        return MapType(key_id, StringType(), value_id, value, value_required=required) if value else None

    def _referred(self, reference: str, document: object, path: str) -> tuple[object, object]:
        """The schema referred to, and the document it stands in."""
        base, _, pointer = reference.partition("#")
        within = document
        if base:
            by_id = {str(other.get("$id")): other for other in self.schema.others.values() if isinstance(other, dict)}
            within = self.schema.others.get(base, by_id.get(base))
        target: Any = within
        for part in unquote(pointer).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = cast(Node, target).get(part) if isinstance(target, dict) else None
        if target is None or (pointer and not pointer.startswith("/")):
            raise self._refused(path, f"refers to {reference}, which isn't there")
        return target, within

    def _refused(self, path: str, why: str) -> ConfigError:
        return ConfigError(
            f"{self.schema.name}: {f'field {path}' if path else 'the schema'} {why}",
            hint=f"name the columns under auto_create.columns with the type {path or 'each'} is to have, or without it",
            code=Code.NO_COLUMN_TYPE,
        )


def _is_null(branch: object) -> bool:
    return isinstance(branch, dict) and cast(Node, branch).get("type") in ("null", ["null"])


def _kinds(node: Node) -> list[str]:
    """The types that values may have, as far as the schema says."""
    if "type" in node:
        given = node["type"]
        return [str(kind) for kind in cast(list[object], given)] if isinstance(given, list) else [str(given)]
    if "properties" in node or "additionalProperties" in node:
        return ["object"]
    if "items" in node:
        return ["array"]
    values = cast(list[object], node.get("enum", [node["const"]] if "const" in node else []))
    kinds = dict.fromkeys(_KINDS.get(type(value), "object") for value in values)
    return [kind for kind in kinds if not (kind == "integer" and "number" in kinds)]
