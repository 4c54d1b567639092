"""What the assets of every pipeline have: its file, its group, its owners."""

from __future__ import annotations

from typing import Any

import dagster as dg

from calve.orchestration.compat import disable_dagster_warnings
from calve.sink_core.config.effective import Pipeline

COMPONENT_FILES = ("defs.yaml", "component.yaml")


def pipeline_file(pipeline: Pipeline) -> dict[str, Any]:
    """Metadata that leads to the pipeline file. To a component's definitions Dagster adds the `defs.yaml` itself."""
    if pipeline.path.name.partition("#")[0] in COMPONENT_FILES:
        return {}
    # Users can't help that these classes are called beta.
    with disable_dagster_warnings():
        reference = dg.LocalFileCodeReference(file_path=str(pipeline.path.absolute()), label="pipeline file")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def group_and_owners(pipeline: Pipeline) -> dict[str, Any]:
    """Arguments of an asset's spec."""
    settings = pipeline.config.dagster
    return {"group_name": settings.group or pipeline.name, "owners": list(settings.owners)}
