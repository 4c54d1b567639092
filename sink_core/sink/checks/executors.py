"""What an executor needs for the tasks of a sink."""

from __future__ import annotations

from calve.sink_core.config.formats import FORMATS
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking.executors import MODULES, Probe

SINK_MODULES = ("pyarrow.json", "pyiceberg", "pyiceberg_core", "re2")
REGISTRY_MODULES = ("confluent_kafka.schema_registry",)
TRANSFORM_MODULES = ("duckdb",)


def probe_of(pipeline: SinkPipeline) -> Probe:
    """The question to an executor."""
    settings = {"kafka": dict(pipeline.kafka.properties), "catalog": dict(pipeline.catalog.properties)}
    readings = pipeline.readings
    modules = [*MODULES, *SINK_MODULES, *(module for of in readings.formats for module in FORMATS[of.type].modules)]
    for registry in readings.registries:
        settings[f"registry {registry.name}"] = dict(registry.properties)
    if readings.registries:
        modules += REGISTRY_MODULES
    if any(table.transform for table in pipeline.tables):
        modules += TRANSFORM_MODULES
    return Probe(settings, tuple(dict.fromkeys(modules)))
