"""Are the schemas there that records are read with: those of a registry, or that of a file?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from calve.sink_core.config.reading import RegistrySettings, SchemaFile
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking.checklist import Check, Note
from calve.sink_core.records.avro.format import fixed_schema
from calve.sink_core.records.decode.registry import Registry
from calve.sink_core.records.decode.registry_format import RegistryFormat
from calve.sink_core.records.formats import Formats, Sample
from calve.sink_core.records.keys import KeyDecoder


def registry_checks(pipeline: SinkPipeline, sample: Sample) -> tuple[Check, ...]:
    """The questions about schemas; none if the pipeline needs none."""
    readings = pipeline.readings
    files = tuple(of.schema for of in readings.formats if of.schema is not None)
    found: list[Check] = []
    if readings.read_keys:
        found.append(Check("keys", lambda: _keys(pipeline)))
    if files:
        found.append(Check("schema file", partial(_files, files)))
    if readings.registries:
        found.append(Check("registry", partial(_answers, readings.registries)))
    if any(value.registry is not None for value in readings.values):
        found.append(Check("schemas", lambda: _schemas(pipeline, sample()), needs=("registry", "topics")))
    return tuple(found)


def _keys(pipeline: SinkPipeline) -> str:
    """Raises ConfigError for a type that is none."""
    read = [KeyDecoder(key) for key in pipeline.readings.read_keys]
    return f"can be read as {', '.join(dict.fromkeys(each.shown for each in read))}"


def _files(files: Sequence[SchemaFile]) -> str:
    names = [fixed_schema(file).name for file in files]
    return f"{', '.join(names)} {'are Avro schemas' if len(names) > 1 else 'is an Avro schema'}"


def _answers(registries: Sequence[RegistrySettings]) -> str:
    """Raises Unreachable and ConfigError."""
    known = {kind for registry in registries for kind in Registry(registry).types()}
    return f"knows schemas of type {', '.join(sorted(known))}"


def _schemas(pipeline: SinkPipeline, sampled: Mapping[str, list[bytes]]) -> str | Note:
    """Raises ConfigError if no record of the sample of a format has a schema that can be read."""
    said: list[str] = []
    for value_format, topics in Formats(pipeline.readings).by_topics(pipeline.topics):
        values = [value for topic in topics for value in sampled.get(topic, ())]
        if isinstance(value_format, RegistryFormat) and values:
            said.append(_newest(value_format, values))
    return "; ".join(said) if said else Note("no record yet, so no schema was asked for")


def _newest(value_format: RegistryFormat[Any], values: list[bytes]) -> str:
    name = value_format.newest(values).name
    return f"{name}, the newest in a sample of {len(values):,} records, can be read"
