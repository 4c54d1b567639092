"""The Dagster component: a `defs.yaml` whose attributes are the pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, GetJsonSchemaHandler, RootModel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from orchestration.pipelines.build import build_pipeline_defs
from orchestration.pipelines.specs import COMPONENT_FILES
from sink_core.config.load import load
from sink_core.config.pipeline import PipelineConfig


class PipelineAttributes(RootModel[dict[str, Any]]):
    """The attributes as they stand; Calve's own loader checks them and names file, line and the nearest known key."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(PipelineConfig.__pydantic_core_schema__)


class KafkaIcebergPipeline(dg.Component):
    """Moves records from Kafka topics into Iceberg tables, each exactly once.

    The attributes are those of a Calve pipeline file, and `calve` commands take the `defs.yaml` as well. Connections
    stand in a `connections.yaml` beside it or in a folder above. References are written `${ENV:NAME}`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def get_model_cls(cls) -> type[BaseModel] | None:
        return PipelineAttributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Kafka topics into Iceberg tables, every record exactly once.",
            tags=["kafka", "iceberg", "streaming"],
            produces=["asset", "asset_check", "job", "sensor", "schedule", "resource"],
        )

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        del attributes  # the loader reads the file itself, for the lines of its errors
        return cls(_defs_file(context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        del context
        return build_pipeline_defs(load(self._file))


def _defs_file(folder: Path) -> Path:
    return next((folder / name for name in COMPONENT_FILES if (folder / name).is_file()), folder / COMPONENT_FILES[0])
