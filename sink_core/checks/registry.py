"""Are the Avro schemas there that records are read with: those of a registry, or that of a file?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sink_core.checks.checklist import Check, Note
from sink_core.config.effective import Pipeline
from sink_core.formats import Sample, fixed_schema

if TYPE_CHECKING:
    from sink_core.registry import Registry


def registry_checks(pipeline: Pipeline, sample: Sample) -> tuple[Check, ...]:
    """The questions about schemas; none if the pipeline needs none."""
    file = pipeline.value.schema
    if file is not None:
        return (Check("schema file", lambda: f"{fixed_schema(file).name} is an Avro schema"),)
    if pipeline.value.registry is None:
        return ()
    from sink_core.registry import Registry

    registry = Registry(pipeline.value.registry)
    return (
        Check("registry", partial(_answers, registry)),
        Check("schemas", partial(_schemas, registry, sample), needs=("registry", "topics")),
    )


def _answers(registry: Registry) -> str:
    """Raises Unreachable and ConfigError."""
    return f"knows schemas of type {', '.join(sorted(registry.types()))}"


def _schemas(registry: Registry, sample: Sample) -> str | Note:
    """Raises ConfigError if no record of the sample has a schema that can be read."""
    values = sample()
    if not values:
        return Note("no record yet, so no schema was asked for")
    newest = registry.newest(values)
    return f"{newest.name}, the newest in a sample of {len(values):,} records, can be read"
