"""Writes the documents that are made of data: of the models two JSON Schemas and the reference page, of the table of
findings a page.

`python -m calve.sink_core.config.document` writes them into `docs/`; with `--check` it only says which of them are out
of date and exits 1 if any is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import OWNED_BY_CALVE, Connections
from calve.sink_core.config.kinds import KINDS, file_type
from calve.sink_core.explain import findings_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_CONNECTIONS = {"KafkaConnection": "kafka", "CatalogConnection": "catalog", "SparkSettings": "spark"}
_HEAD = """# Reference: the two files

Written from the models by `python -m calve.sink_core.config.document`; don't edit. Editors complete and check the files
with `pipeline.schema.json` and `connections.schema.json`.

- A **size** is a number with a unit: `256MiB`, `4GiB`, `1.5GB`. A **duration**: `500ms`, `5s`, `10m`, `2h`, `7d`.
  A **percentage**: `5%`. A bare number is refused, `0` excepted.
- `${ENV:NAME}` may stand in any value of a connection. It is replaced by the environment variable when the connection
  is opened, in the process that opens it, Spark's executors included; an unset or empty variable is an error.
- Unknown keys are refused. Keys of librdkafka, pyiceberg and Spark are handed through where it says so.
- `connections.yaml` is looked for beside the pipeline file. A Dagster `defs.yaml` works as a pipeline file; the keys
  then stand under `attributes`.
"""


class _AsWritten(GenerateJsonSchema):
    """Has a pipeline file's keys in the order in which people write them, and no titles that only repeat the key."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        if issubclass(schema["cls"], PipelineConfig):
            made["properties"] = {key: made["properties"][key] for key in schema["cls"].key_order()}
        return made

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - the signature is Pydantic's
        return False


def schema_of(model: Any) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a model, or of a union of models."""
    # The mode of serialization, because it alone gives defaults as they are written in a file.
    schema = TypeAdapter[Any](model).json_schema(mode="serialization", schema_generator=_AsWritten)
    return {"$schema": DIALECT, **schema}


def documents() -> dict[str, str]:
    """File name in `docs/` → content."""
    return {
        "pipeline.schema.json": _json(schema_of(file_type())),
        "connections.schema.json": _json(schema_of(Connections)),
        "reference.md": reference(),
        "findings.md": findings_page(),
    }


def reference() -> str:
    """The reference page, in Markdown."""
    connections = schema_of(Connections)
    owned = [f"| `{key}` | {why} |" for key, why in OWNED_BY_CALVE.items()]
    parts = [
        _HEAD,
        *(line for kind in KINDS for line in _pipeline_file(kind)),
        "## `connections.yaml`\n",
        *_table(_rows(connections, connections, "", inline=True)),
        "\n## librdkafka keys that are refused\n",
        "| key | why |\n|---|---|",
        *owned,
    ]
    return "\n".join(parts) + "\n"


def _pipeline_file(kind: str) -> Iterator[str]:
    schema = schema_of(KINDS[kind].config)
    yield f"## Pipeline file of a {kind}\n"
    yield from _table(_rows(schema, schema, "", inline=False))
    yield ""


def main(arguments: list[str]) -> int:
    """Write or check the documents; the exit code."""
    stale = [name for name, text in documents().items() if _current(DOCS / name) != text]
    if "--check" in arguments:
        for name in stale:
            sys.stdout.write(f"docs/{name} is out of date; run python -m calve.sink_core.config.document\n")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(documents()[name], encoding="utf-8")
    return 0


def _current(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _json(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _table(rows: Iterator[str]) -> Iterator[str]:
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    yield from rows


def _rows(root: Mapping[str, Any], schema: Mapping[str, Any], prefix: str, *, inline: bool) -> Iterator[str]:
    required = schema.get("required", ())
    for key, field in schema.get("properties", {}).items():
        default = "required" if key in required else _default(field)
        # Pydantic drops a field's description where it equals the model's own.
        described = field if "description" in field or "$ref" not in field else _target(root, field)
        meaning = " ".join(described.get("description", "").split())
        yield f"| `{prefix}{key}` | {_escape(_type(root, field))} | {_escape(default)} | {_escape(meaning)} |"
        for inner, suffix in _inner(root, field):
            if inline or inner["title"] not in _CONNECTIONS:
                yield from _rows(root, inner, f"{prefix}{key}{suffix}", inline=inline)


def _inner(root: Mapping[str, Any], field: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The mappings with keys of their own below `field`, and how their keys continue its name."""
    if "$ref" in field:
        yield _target(root, field), "."
    for variant in (*field.get("anyOf", ()), *field.get("oneOf", ())):
        yield from _inner(root, variant)
    if field.get("type") == "array":
        yield from ((inner, f"[]{rest}") for inner, rest in _inner(root, field["items"]))
    for named in field.get("patternProperties", {}).values():
        yield from ((inner, f".<name>{rest}") for inner, rest in _inner(root, named))


def _type(root: Mapping[str, Any], field: Mapping[str, Any]) -> str:
    variants = (*field.get("anyOf", ()), *field.get("oneOf", ()))
    if variants:
        names = [_type(root, variant) for variant in variants if variant.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "$ref" in field:
        section = _CONNECTIONS.get(_target(root, field)["title"])
        return f"mapping as in `{section}.<name>`" if section else "mapping"
    if "const" in field or "enum" in field:
        return " or ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    return _plain_type(root, field)


def _plain_type(root: Mapping[str, Any], field: Mapping[str, Any]) -> str:
    if str(field.get("format", "")).startswith("calve-"):
        return field["format"].removeprefix("calve-")
    kind = field.get("type")
    if kind == "array":
        return f"list of {_type(root, field['items'])}"
    names = {"object": "mapping", "boolean": "true or false", "string": "text"}
    return names.get(str(kind), str(kind or "any value"))


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{json.dumps(default) if not isinstance(default, str) else default}`"


def _target(root: Mapping[str, Any], field: Mapping[str, Any]) -> Mapping[str, Any]:
    return root["$defs"][field["$ref"].rpartition("/")[2]]


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
