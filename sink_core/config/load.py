"""From files to a `Pipeline`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from sink_core.config.assemble import assemble, names_of_connections, unknown_names
from sink_core.config.connections import Connections
from sink_core.config.effective import Pipeline
from sink_core.config.model import Model
from sink_core.config.pipeline import PipelineConfig
from sink_core.config.problems import problem, problems
from sink_core.config.yaml_file import Document, documents, read
from sink_core.errors import ConfigError

CONNECTIONS_FILE = "connections.yaml"

NO_DEPLOYMENT = "default"
"""That of a pipeline without a `connections.yaml`."""

M = TypeVar("M", bound=Model)


def load(path: Path, connections: Path | None = None) -> Pipeline:
    """The pipeline in `path`, a pipeline file or a Dagster `defs.yaml`, with its connections.

    Those stand in `connections`, else in the nearest `connections.yaml` beside the pipeline file or in a folder above.
    A file that names none, since all are written inline, needs none; its deployment is then `default`. Reads no
    environment variable and opens no connection. Raises one ConfigError that lists every problem of
    both files. Of a `defs.yaml` with several pipelines, `defs.yaml#NAME` is one.
    """
    pipeline_file = _pipeline_of(path)
    found: list[str] = []
    config = _validated(PipelineConfig, pipeline_file, found)
    shared_file = connections or nearest_connections(path)
    # Of a pipeline file with problems nobody knows whether it needs another.
    needs_one = connections is not None or (config is not None and any(names_of_connections(config)))
    if not needs_one and not shared_file.is_file():
        shared = Connections(deployment=NO_DEPLOYMENT)
    else:
        shared = _validated(Connections, _existing(shared_file, "connections file"), found)
    if config and shared:
        found += [problem(pipeline_file, at, text) for at, text in unknown_names(config, shared)]
        if not found:
            return assemble(config, shared, path)
    raise ConfigError("\n".join(found), hint="docs/reference.md lists every key")


def pipelines_in(path: Path) -> list[str]:
    """Their names, of a `defs.yaml` that holds several; components of other kinds have none. Raises ConfigError."""
    found = [_pipeline_mapping(document) for document in documents(path)]
    return [str(each.data["name"]) for each in found if each.base and "name" in each.data]


def _pipeline_of(path: Path) -> Document:
    file, _, name = str(path).partition("#")
    if path.is_file() or not name:
        _require(path, "pipeline file")
        found = documents(path)
        if len(found) > 1:
            names = ", ".join(f"{path}#{name}" for name in pipelines_in(path))
            hint = f"say which pipeline: {names}" if names else "keep one of them; others begin with ---"
            raise ConfigError(f"{path}: holds {len(found)} YAML documents", hint=hint)
        return _pipeline_mapping(found[0])
    _require(Path(file), "pipeline file")
    for document in map(_pipeline_mapping, documents(Path(file))):
        if document.data.get("name") == name:
            return document
    names = ", ".join(pipelines_in(Path(file)))
    raise ConfigError(f"{file}: holds no pipeline {name}", hint=f"it has {names}" if names else "check the name")


def _existing(path: Path, what: str) -> Document:
    _require(path, what)
    return read(path)


def _require(path: Path, what: str) -> None:
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such {what}",
            hint=f"check the path; {CONNECTIONS_FILE} is looked for beside the pipeline file and above",
        )


def nearest_connections(path: Path, new: Path | None = None) -> Path:
    """The `connections.yaml` beside a pipeline file or in a folder above; if there is none, where one would be: in
    the folder `new`, else beside it.
    """
    beside = path.parent / CONNECTIONS_FILE
    above = (folder / CONNECTIONS_FILE for folder in path.absolute().parents[1:])
    return next((file for file in (beside, *above) if file.is_file()), new / CONNECTIONS_FILE if new else beside)


def _pipeline_mapping(document: Document) -> Document:
    attributes = document.data.get("attributes")
    if "type" in document.data and isinstance(attributes, Mapping):
        return replace(document, data=attributes, base=("attributes",))
    return document


def _validated(model: type[M], document: Document, found: list[str]) -> M | None:
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        found += problems(error, model, document)
        return None
