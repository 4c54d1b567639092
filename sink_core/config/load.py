"""From files to a `Pipeline`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from calve.sink_core.codes import Code
from calve.sink_core.config.assemble import names_of_connections, unknown_names
from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.effective import Pipeline, name_of
from calve.sink_core.config.kinds import DEFAULT, KINDS, Kind
from calve.sink_core.config.model import Model
from calve.sink_core.config.problems import problem, problems
from calve.sink_core.config.yaml_file import Document, documents, read
from calve.sink_core.errors import ConfigError

CONNECTIONS_FILE = "connections.yaml"

NO_DEPLOYMENT = "default"
"""That of a pipeline without a `connections.yaml`."""

M = TypeVar("M", bound=Model)
P = TypeVar("P", bound=Pipeline)


def load(path: Path, connections: Path | None = None, *, name: str | None = None) -> Pipeline:
    """The pipeline in `path`, a pipeline file or a Dagster `defs.yaml`, with its connections.

    Those stand in `connections`, else in the nearest `connections.yaml` beside the pipeline file or in a folder above.
    A file that names none, since all are written inline, needs none; its deployment is then `default`. Reads no
    environment variable and opens no connection. Raises one ConfigError that lists every problem of
    both files. Of a `defs.yaml` with several pipelines, `defs.yaml#NAME` is one, or the one of `name`.
    """
    pipeline_file, path = _pipeline_of(path, name)
    found: list[str] = []
    kind = _kind_of(pipeline_file, found)
    config: PipelineConfig | None = _validated(kind.config, pipeline_file, found) if kind else None
    shared_file = connections or nearest_connections(path)
    # Of a pipeline file with problems nobody knows whether it needs another.
    needs_one = connections is not None or (config is not None and any(names_of_connections(config)))
    if not needs_one and not shared_file.is_file():
        shared = Connections(deployment=NO_DEPLOYMENT)
    else:
        shared = _validated(Connections, _existing(shared_file, "connections file"), found)
    if kind and config and shared:
        found += [problem(pipeline_file, at, text) for at, text in unknown_names(config, shared)]
        if not found:
            pipeline = kind.assemble(config, shared, path)
            spark = pipeline.spark.placed(shared_file, name_of(config.spark))
            return replace(pipeline, spark=spark)
    raise ConfigError("\n".join(found), hint="docs/reference.md lists every key", code=Code.SETTINGS)


def load_as(wanted: type[P], path: Path, connections: Path | None = None) -> P:
    """As `load`, for what works on pipelines of one kind only. Raises ConfigError for a pipeline of another kind."""
    pipeline = load(path, connections)
    if not isinstance(pipeline, wanted):
        needed = next(name for name, kind in KINDS.items() if kind.pipeline is wanted)
        raise ConfigError(f"{path}: kind {needed} is needed, this is kind {pipeline.kind}", code=Code.WRONG_KIND)
    return pipeline


def _kind_of(document: Document, found: list[str]) -> Kind[Any] | None:
    given = document.data.get("kind", DEFAULT)
    if isinstance(given, str) and given in KINDS:
        return KINDS[given]
    what = f"{given!r} is no kind; " if isinstance(given, str) else ""
    found.append(problem(document, ("kind",), f"{what}known here: {', '.join(sorted(KINDS))}"))
    return None


def _pipeline_of(path: Path, name: str | None) -> tuple[Document, Path]:
    """The document of the pipeline, and the path that it is known by."""
    file, _, asked = ("", "", "") if path.is_file() else str(path).partition("#")
    if asked:
        path, name = Path(file), asked
    _require(path, "pipeline file")
    found = [_pipeline_mapping(document) for document in documents(path)]
    if len(found) == 1 and not asked:
        return found[0], path
    # Components of other kinds have no name, or are no pipelines.
    named = {str(each.data["name"]): each for each in found if each.base and "name" in each.data}
    if name in named:
        return named[name], Path(f"{path}#{name}")
    known = ", ".join(f"{path}#{each}" for each in named)
    if name is None:
        hint = f"say which pipeline: {known}" if known else "keep one of them; others begin with ---"
        raise ConfigError(f"{path}: holds {len(found)} YAML documents", hint=hint, code=Code.WHICH_DOCUMENT)
    raise ConfigError(
        f"{path}: holds no pipeline {name}",
        hint=f"it has {known}" if known else "check the name",
        code=Code.WHICH_DOCUMENT,
    )


def _existing(path: Path, what: str) -> Document:
    _require(path, what)
    return read(path)


def _require(path: Path, what: str) -> None:
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such {what}",
            hint=f"check the path; {CONNECTIONS_FILE} is looked for beside the pipeline file and above",
            code=Code.NO_SUCH_FILE,
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
