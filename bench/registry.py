"""A schema registry that has the schema of `shapes.AVRO`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.shapes import AVRO_SCHEMA, SCHEMA_ID
from tests.schema_registry import SchemaRegistry


@contextmanager
def avro_registry(directory: Path) -> Generator[SchemaRegistry]:
    """A new one, stopped at the end."""
    registry = SchemaRegistry(directory)
    registry.start()
    try:
        found = registry.register("bench-value", AVRO_SCHEMA)
        assert found == SCHEMA_ID, f"events name schema {SCHEMA_ID}, the registry has it as {found}"
        yield registry
    finally:
        registry.stop()
