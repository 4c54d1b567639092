"""The committed schemas and reference page are those of the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from calve.sink_core.config.connections import Connections
from calve.sink_core.config.document import DOCS, documents, schema_of
from calve.sink_core.config.sink import SinkConfig


@pytest.mark.parametrize("name", sorted(documents()))
def test_documents_are_up_to_date(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == documents()[name], "run python -m calve.sink_core.config.document"


def _undescribed(schema: Mapping[str, Any]) -> Iterator[str]:
    for place in (schema, *schema["$defs"].values()):
        for key, field in place.get("properties", {}).items():
            target = schema["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
            if not (field.get("description") or target.get("description")):
                yield f"{place['title']}.{key}"


@pytest.mark.parametrize("model", [SinkConfig, Connections])
def test_every_key_is_described(model: type[BaseModel]) -> None:
    assert list(_undescribed(schema_of(model))) == []


@pytest.mark.parametrize(
    "row",
    [
        "| `batch.max_bytes` | size | `4GiB` |",
        "| `run.max_duration` | duration | `10m` |",
        "| `source.kafka` | text or mapping as in `kafka.<name>` | required |",
        "| `tables[].auto_create.partition_by` | list of text | `[]` |",
        "| `maintenance.orphans.older_than` | duration | `5d` |",
        "| `kafka.<name>.bootstrap.servers` | text | required |",
    ],
)
def test_the_reference_gives_key_type_and_default(row: str) -> None:
    assert row in documents()["reference.md"]
