"""The Dagster components, one for each kind: a `defs.yaml` whose attributes are the pipeline file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar, Self, cast

import dagster as dg
from click import ClickException
from pydantic import BaseModel, Field, GetJsonSchemaHandler, RootModel, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.assets import COMPONENT_FILES
from calve.sink_core.codes import Code
from calve.sink_core.config.kinds import DEFAULT, KINDS
from calve.sink_core.config.load import load, nearest_connections
from calve.sink_core.errors import CalveError, ConfigError

PRODUCES = ["asset", "asset_check", "job", "sensor", "schedule", "resource"]


class PipelineAttributes(RootModel[dict[str, Any]]):
    """The attributes as they stand; Calve's own loader checks them and names file, line and the nearest known key.

    Each kind has a model of its own below it: what a schema of all would say of a mistake nobody could read.
    """

    kind: ClassVar[str]

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Dagster's check goes by it first: an unknown key is left to the loader, which knows what was meant."""
        return _open(super().model_json_schema(*args, **options))

    @classmethod
    def __get_pydantic_json_schema__(cls, _core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(TypeAdapter[Any](KINDS[cls.kind].config).core_schema)
        if cls.kind == DEFAULT:
            return schema
        # The loader takes a file without it for one of the default's.
        own = handler.resolve_ref_schema(schema)
        own["required"] = ["kind", *(key for key in own.get("required", ()) if key != "kind")]
        return schema


class SinkAttributes(PipelineAttributes):
    """Those of a sink."""

    kind = "sink"


class MirrorAttributes(PipelineAttributes):
    """Those of a mirror."""

    kind = "mirror"


class SourceAttributes(PipelineAttributes):
    """Those of a source."""

    kind = "source"


class NewPipelineParams(BaseModel):
    """The flags of `dg scaffold defs calve.KafkaIcebergPipeline NAME`."""

    topic: str = Field(description="The topic to read; its columns are inferred from its records.")
    bootstrap: str | None = Field(
        default=None, description="HOST:PORT of Kafka, for a new connections.yaml at the project's root."
    )
    table: str | None = Field(default=None, description="NAMESPACE.TABLE. Default: raw.NAME.")
    catalog_uri: str | None = Field(
        default=None, description="For a new connections.yaml. Default: a SQLite catalog in the project's folder lake."
    )
    warehouse: str | None = Field(default=None, description="For a new connections.yaml: where tables go.")
    registry: str | None = Field(
        default=None, description="URL of a schema registry; its name if a connections.yaml is there."
    )


class PipelineScaffolder(dg.Scaffolder[NewPipelineParams]):
    """Writes a `defs.yaml` that runs, and a `connections.yaml` if there is none, as `calve init` writes its files."""

    @classmethod
    def get_scaffold_params(cls) -> type[NewPipelineParams]:
        return NewPipelineParams

    def scaffold(self, request: dg.ScaffoldRequest[NewPipelineParams]) -> None:
        from calve.orchestration.new_pipeline import Wanted, new_pipeline
        from calve.sink_core.sink.scaffold import name_from

        root, given = request.project_root or request.target_path, request.params
        wanted = Wanted(
            given.topic,
            {"bootstrap.servers": given.bootstrap} if given.bootstrap else {},
            given.table,
            name_from(request.target_path.name),
            given.catalog_uri,
            given.warehouse,
            registry=given.registry,
        )
        shared = nearest_connections(request.target_path / COMPONENT_FILES[0], root)
        try:
            made = new_pipeline(wanted, shared, root / "lake")
        except CalveError as error:
            # Made for this pipeline a moment ago.
            with suppress(OSError):
                request.target_path.rmdir()
            raise ClickException(str(error)) from None
        text = f"type: {request.type_name}\nattributes:\n{indent(made.pipeline, '  ')}"
        (request.target_path / COMPONENT_FILES[0]).write_text(text, encoding="utf-8")
        if made.connections is not None:
            shared.write_text(made.connections, encoding="utf-8")


class NewMirrorParams(BaseModel):
    """The flags of `dg scaffold defs calve.KafkaMirror NAME`."""

    source: str = Field(description="The cluster to copy from: its name in connections.yaml.")
    target: str = Field(description="The cluster to copy to: its name in connections.yaml.")
    topics: str = Field(description="The topics to copy, separated by commas.")


class MirrorScaffolder(dg.Scaffolder[NewMirrorParams]):
    """Writes a `defs.yaml` between two clusters of a `connections.yaml` that is there."""

    @classmethod
    def get_scaffold_params(cls) -> type[NewMirrorParams]:
        return NewMirrorParams

    def scaffold(self, request: dg.ScaffoldRequest[NewMirrorParams]) -> None:
        from calve.sink_core.mirror.scaffold import mirror_text

        given = request.params
        _scaffold(request, lambda name: mirror_text(name, given.source, given.target, given.topics.split(",")))


class NewSourceParams(BaseModel):
    """The flags of `dg scaffold defs calve.KafkaSource NAME`."""

    database: str = Field(description="The database whose log is read: its name in connections.yaml.")
    kafka: str = Field(description="The cluster to write to: its name in connections.yaml.")
    tables: str = Field(description="SCHEMA.TABLE of the publication, separated by commas.")
    publication: str = Field(default="calve", description="The publication that the tables are in.")


class SourceScaffolder(dg.Scaffolder[NewSourceParams]):
    """Writes a `defs.yaml` from a database to a cluster of a `connections.yaml` that is there."""

    @classmethod
    def get_scaffold_params(cls) -> type[NewSourceParams]:
        return NewSourceParams

    def scaffold(self, request: dg.ScaffoldRequest[NewSourceParams]) -> None:
        from calve.sink_core.source.scaffold import source_text

        given = request.params
        tables = given.tables.split(",")
        _scaffold(request, lambda name: source_text(name, given.database, given.kafka, tables, given.publication))


def _scaffold(request: dg.ScaffoldRequest[Any], text_of: Callable[[str], str]) -> None:
    """Write what `text_of` makes of the component's name. Raises ClickException with its error, and leaves nothing."""
    try:
        made = text_of(request.target_path.name)
    except CalveError as error:
        with suppress(OSError):
            request.target_path.rmdir()
        raise ClickException(str(error)) from None
    text = f"type: {request.type_name}\nattributes:\n{indent(made, '  ')}"
    (request.target_path / COMPONENT_FILES[0]).write_text(text, encoding="utf-8")


class PipelineComponent(dg.Component):
    """A pipeline of one kind, which `attributes` says; its attributes are the pipeline file. `describes` and `tags` are
    what Dagster shows of the component.
    """

    attributes: ClassVar[type[PipelineAttributes]]
    describes: ClassVar[str]
    tags: ClassVar[tuple[str, ...]]

    def __init__(self, file: Path, name: str | None = None) -> None:
        """`name` is that of the pipeline, of which the file may hold several."""
        self._file = file
        self._name = name

    @classmethod
    def get_model_cls(cls) -> type[BaseModel] | None:
        return cls.attributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(description=cls.describes, tags=[*cls.tags], produces=PRODUCES)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        # The loader reads the file itself, for the lines of its errors.
        given = attributes.root if isinstance(attributes, PipelineAttributes) else {}
        file, kind = _defs_file(context.path), given.get("kind", DEFAULT)
        if kind != cls.attributes.kind:
            raise ConfigError(
                f"{file}: kind: {cls.__name__} is for pipelines of kind {cls.attributes.kind}, this is kind {kind}",
                hint=f"set kind: {cls.attributes.kind}, or name the component of kind {kind} as type",
                code=Code.WRONG_KIND,
            )
        return cls(file, str(given["name"]) if "name" in given else None)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        del context
        return build_pipeline_defs(load(self._file, name=self._name), asset_spec=self.asset_spec)

    def asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """The spec of a topic, of the batches or the copy, or of a table as Dagster is to have it: for subclasses to
        change.

        Key and dependencies must stay.
        """
        return spec


@dg.scaffold_with(PipelineScaffolder)
class KafkaIcebergPipeline(PipelineComponent):
    """Moves records from Kafka topics into Iceberg tables, each exactly once.

    The attributes are those of a Calve pipeline file, and `calve` commands take the `defs.yaml` as well. Connections
    stand in a `connections.yaml` beside it or in a folder above. References are written `${ENV:NAME}`.
    """

    attributes = SinkAttributes
    describes = "Kafka topics into Iceberg tables, every record exactly once."
    tags = ("kafka", "iceberg", "streaming")


@dg.scaffold_with(MirrorScaffolder)
class KafkaMirror(PipelineComponent):
    """Copies topics from one Kafka cluster to another, each record exactly once and in its order.

    The attributes are those of a Calve pipeline file with `kind: mirror`, and `calve` commands take the `defs.yaml` as
    well. Connections stand in a `connections.yaml` beside it or in a folder above. References are written
    `${ENV:NAME}`.
    """

    attributes = MirrorAttributes
    describes = "Kafka topics to another Kafka cluster, every record exactly once."
    tags = ("kafka", "mirror", "streaming")


@dg.scaffold_with(SourceScaffolder)
class KafkaSource(PipelineComponent):
    """Sends what a system holds to Kafka topics, each record exactly once.

    The attributes are those of a Calve pipeline file with `kind: source`, and `calve` commands take the `defs.yaml` as
    well. Connections stand in a `connections.yaml` beside it or in a folder above. References are written
    `${ENV:NAME}`.
    """

    attributes = SourceAttributes
    describes = "Records and rows of other systems to Kafka topics, every record exactly once."
    tags = ("kafka", "source", "streaming")


def _open(schema: Any) -> Any:
    """A JSON schema without the word that no other keys may be there."""
    if isinstance(schema, dict):
        inner = cast(dict[str, Any], schema)
        return {k: _open(v) for k, v in inner.items() if (k, v) != ("additionalProperties", False)}
    return [_open(each) for each in cast(list[Any], schema)] if isinstance(schema, list) else schema


def _defs_file(folder: Path) -> Path:
    return next((folder / name for name in COMPONENT_FILES if (folder / name).is_file()), folder / COMPONENT_FILES[0])
