"""A schema registry that has the schema of events."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.shapes import SCHEMA_ID, Shape
from tests.schema_registry import SchemaRegistry


@contextmanager
def registry_of(shape: Shape, directory: Path) -> Generator[SchemaRegistry | None]:
    """A new one with the shape's schema, stopped at the end; None if it has none."""
    if shape.schema is None:
        yield None
        return
    registry = SchemaRegistry(directory)
    registry.start()
    try:
        found = registry.register_text("bench-value", *shape.schema)
        assert found == SCHEMA_ID, f"events name schema {SCHEMA_ID}, the registry has it as {found}"
        yield registry
    finally:
        registry.stop()
