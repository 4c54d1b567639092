"""Which class reads what a pipeline file says, and what it is made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calve.sink_core.config.source import Value
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.config.source_systems import ClassSource, DatabaseSource
from calve.sink_core.source.opening import SourceSpec

_ROOM = "calve.sink_core.source"
LOG, TABLES, FILES = f"{_ROOM}.postgres.log:PostgresLog", f"{_ROOM}.tables.source:Tables", f"{_ROOM}.files.source:Files"


def spec_of(pipeline: SourcePipeline) -> SourceSpec:
    """What makes the source of a pipeline, on any host."""
    made_by, options = _made_by(pipeline)
    return SourceSpec(made_by, options, (pipeline.offsets_topic, pipeline.control_topic))


def _made_by(pipeline: SourcePipeline) -> tuple[str, Mapping[str, Any]]:
    source, target = pipeline.config.source, pipeline.config.target
    if isinstance(source, ClassSource):
        return source.type, source.options
    if not isinstance(source, DatabaseSource):
        return FILES, source.files.model_dump()
    value = target.value or Value()
    shown: dict[str, Any] = {
        **(pipeline.database.properties if pipeline.database is not None else {}),
        "topics": pipeline.config.topic_names,
        **({"registry": pipeline.registry.properties} if pipeline.registry is not None else {}),
    }
    if source.log is not None:
        return LOG, {**source.log.model_dump(), **shown, "shape": value.shape}
    return TABLES, {"tables": [each.model_dump(exclude_none=True) for each in source.tables], **shown}
