"""Are the schemas there that records are read with: those of a registry, or that of a file?"""

from __future__ import annotations

from functools import partial
from typing import Any

from sink_core.checks.checklist import Check, Note
from sink_core.config.effective import Pipeline
from sink_core.formats import RegistryFormat, Sample, fixed_schema, format_of


def registry_checks(pipeline: Pipeline, sample: Sample) -> tuple[Check, ...]:
    """The questions about schemas; none if the pipeline needs none."""
    file = pipeline.value.schema
    if file is not None:
        return (Check("schema file", lambda: f"{fixed_schema(file).name} is an Avro schema"),)
    value_format = format_of(pipeline.value)
    if not isinstance(value_format, RegistryFormat):
        return ()
    return (
        Check("registry", partial(_answers, value_format)),
        Check("schemas", partial(_schemas, value_format, sample), needs=("registry", "topics")),
    )


def _answers(value_format: RegistryFormat[Any]) -> str:
    """Raises Unreachable and ConfigError."""
    return f"knows schemas of type {', '.join(sorted(value_format.registry.types()))}"


def _schemas(value_format: RegistryFormat[Any], sample: Sample) -> str | Note:
    """Raises ConfigError if no record of the sample has a schema that can be read."""
    values = sample()
    if not values:
        return Note("no record yet, so no schema was asked for")
    name = value_format.newest(values).name
    return f"{name}, the newest in a sample of {len(values):,} records, can be read"
