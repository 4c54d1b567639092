"""Tables a pipeline needs: loaded, or created where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.transforms import IdentityTransform

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.config.tables import AutoCreate
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile, unreachable_as_ours
from calve.sink_core.iceberg.changes.deleted import with_deleted
from calve.sink_core.iceberg.create.partition_by import partition_spec
from calve.sink_core.iceberg.create.sort_by import sort_order, with_identifiers
from calve.sink_core.iceberg.files.manifest_list import FORMAT_VERSION
from calve.sink_core.records.changes.events import with_order
from calve.sink_core.records.changes.kafka_key import key_columns, with_key
from calve.sink_core.records.columns.checked import with_comments
from calve.sink_core.records.columns.column_names import Taken
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, kafka_field
from calve.sink_core.records.columns.type_text import schema_of, spark_type_text
from calve.sink_core.records.formats import Formats, Sample
from calve.sink_core.tables.internal import DEAD_LETTER_SCHEMA, LEDGER_SCHEMA
from calve.sink_core.tables.row_changes import DELETED_COLUMN, envelope_of

CREATED_BY = "calve.created-by"
"""Property of every table Calve creates; it tells whose snapshots and files those are."""

DEFAULT_PROPERTIES: Mapping[str, str] = {
    "format-version": str(FORMAT_VERSION),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.parquet.compression-codec": "zstd",
    CREATED_BY: f"calve {version('calve')}",
}
"""Properties of every table Calve creates; `auto_create.properties` win over them."""

_NAMES_HINT = "give them other names under auto_create.columns, and fill them by a transform"

Columns = Callable[[], Schema]
"""The columns that the records' format and a sample of them ask for."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to be created. Field ids are provisional: the catalog assigns them afresh."""

    name: str
    schema: Schema
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    location: str | None = None
    order: SortOrder = UNSORTED_SORT_ORDER

    @property
    def partitions(self) -> Iterator[tuple[str, bool]]:
        """The columns that it is partitioned by, and whether by their values as they are."""
        for term in self.spec.fields:
            column = self.schema.find_column_name(term.source_id)
            assert column is not None
            yield column, isinstance(term.transform, IdentityTransform)

    @property
    def partition_terms(self) -> int:
        """How many terms it is partitioned by."""
        return len(self.spec.fields)


def ensure_tables(
    catalog: Catalog,
    pipeline: SinkPipeline,
    sample: Sample,
    *,
    names: Collection[str] = (),
    topics: Collection[str] | None = None,
) -> dict[str, Table]:
    """Every table of the pipeline by name, or those of `names`: data tables, ledger and dead letters, created where
    missing. `topics` are those that data tables are fed from, of which `sample` has values; None for all.

    Raises ConfigError, before anything is created, for a data table that is missing and not to be created; also for
    columns or partition terms that don't hold. Raises Unreachable, and TableUnusable for one that is dropped meanwhile.
    """
    wanted = [name for name in pipeline.table_names if not names or name in names]
    found = {name: load_if_there(catalog, name) for name in wanted}
    gone, columns = {name for name, table in found.items() if table is None}, columns_shown(pipeline, sample, topics)
    missing = [_data_table(catalog, settings, columns) for settings in pipeline.tables if settings.name in gone]
    missing += [new for new in _internal_tables(pipeline) if new.name in gone]
    created = {new.name: _create(catalog, new) for new in missing}
    return {name: table or created[name] for name, table in found.items()}


def ensure_table(catalog: Catalog, settings: TableSettings, shown: Columns) -> Table:
    """A data table, created where missing. Raises as `ensure_tables` does."""
    return load_if_there(catalog, settings.name) or _create(catalog, _data_table(catalog, settings, shown))


def _internal_tables(pipeline: SinkPipeline) -> list[NewTable]:
    properties = _properties(pipeline.config.table_defaults.target_file_size, {})
    schemas = {pipeline.ledger_table: LEDGER_SCHEMA, pipeline.dead_letter_table: DEAD_LETTER_SCHEMA}
    return [NewTable(name, schema, properties=properties) for name, schema in schemas.items()]


def load_if_there(catalog: Catalog, name: str) -> Table | None:
    """The table, or None if the catalog has none of that name. Raises Unreachable or ConfigError."""
    with unreachable_as_ours(f"loading table {name}"):
        try:
            return catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def columns_shown(pipeline: SinkPipeline, sample: Sample, topics: Collection[str] | None = None) -> Columns:
    """The columns that topics, all if none is given, ask for, found out once, when they are first needed."""
    wanted = [topic for topic in pipeline.topics if topics is None or topic in topics]
    return cache(lambda: Formats(pipeline.readings).columns(wanted, sample))


def new_table(settings: TableSettings, wanted: AutoCreate, shown: Columns) -> NewTable:
    """What `auto_create` asks for: its columns, or those `shown` by the source if it names none, and `_kafka`.

    Raises ConfigError naming the table and the setting.
    """
    columns, key = with_comments(_columns(settings, wanted, shown), wanted.comments, table=settings.name), settings.key
    if settings.kafka_key:
        of_key = key_columns(settings.kafka_key)
        columns = with_key(columns, of_key, stated=bool(wanted.columns), table=settings.name)
        key = [field.name for field in of_key.fields]
    if settings.soft_deletes:
        if any(field.name.casefold() == DELETED_COLUMN for field in columns.fields):
            raise ConfigError(
                f"table {settings.name}: the records have a field {DELETED_COLUMN} of their own",
                hint="set deletes: hard for the table, or leave the field out of auto_create.columns",
                code=Code.TAKEN_FIELD,
            )
        columns = with_deleted(columns)
    if settings.kafka_column:
        if any(field.name.casefold() == KAFKA_COLUMN for field in columns.fields):
            raise ConfigError(
                f"table {settings.name}: the records have a field {KAFKA_COLUMN} of their own",
                hint="set kafka_column: false for the table, or leave the field out of auto_create.columns",
                code=Code.TAKEN_FIELD,
            )
        columns = Schema(*columns.fields, kafka_field(columns.highest_field_id + 1))
    columns = with_identifiers(columns, wanted.identifier_fields or key, table=settings.name)
    return NewTable(
        settings.name,
        columns,
        partition_spec(wanted.partition_by, columns, table=settings.name),
        _properties(settings.target_file_bytes, wanted.properties),
        wanted.location,
        sort_order(wanted.sort_order, columns, table=settings.name),
    )


def missing_table(catalog: Catalog, settings: TableSettings, shown: Columns) -> ConfigError:
    """The error for a table that is missing and not to be created, with the statement that would create it."""
    return ConfigError(
        f"table {settings.name} doesn't exist in catalog {catalog.name}, and its `auto_create` is not set",
        hint=f"set `auto_create: {{}}` for it, or create it:\n    {_create_statement(catalog, settings, shown)}",
        code=Code.NO_SUCH_TABLE,
    )


def _data_table(catalog: Catalog, settings: TableSettings, shown: Columns) -> NewTable:
    if settings.auto_create is None:
        raise missing_table(catalog, settings, shown)
    return new_table(settings, settings.auto_create, shown)


def _columns(settings: TableSettings, wanted: AutoCreate, shown: Columns) -> Schema:
    try:
        columns = schema_of(wanted.columns) if wanted.columns else shown()
    except ConfigError as error:
        raise ConfigError(f"table {settings.name}: {error.message}", hint=error.hint, code=error.code) from None
    if refused := Taken().readable(columns.fields)[1]:
        told = "; ".join(f"{name!r}: {why}" for name, why in refused.items())
        raise ConfigError(
            f"table {settings.name}: not every reader could read the columns {told}",
            hint=_NAMES_HINT,
            code=Code.UNREADABLE_NAMES,
        )
    envelope = envelope_of(settings.events, settings.op_field)
    if envelope is None:
        return columns
    columns = columns if wanted.columns else envelope.row_columns(columns, table=settings.name)
    return with_order(columns) if settings.order_by and envelope.has_order else columns


def _properties(target_file_bytes: int, wanted: Mapping[str, object]) -> dict[str, str]:
    given = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in wanted.items()}
    if given.get("format-version", str(FORMAT_VERSION)) != str(FORMAT_VERSION):
        raise ConfigError(
            f"auto_create.properties: format-version is {given['format-version']}; Calve writes format version "
            f"{FORMAT_VERSION}",
            hint="leave the property out",
            code=Code.OTHER_FORMAT_VERSION,
        )
    return {**DEFAULT_PROPERTIES, "write.target-file-size-bytes": str(target_file_bytes), **given}


def _create(catalog: Catalog, new: NewTable) -> Table:
    """The table, created by us or by somebody else at the same moment."""
    with unreachable_as_ours(f"creating table {new.name}"):
        _ensure_namespace(catalog, new.name.split(".")[:-1])
        try:
            try:
                return catalog.create_table(
                    new.name, new.schema, new.location, new.spec, new.order, properties=dict(new.properties)
                )
            except (TableAlreadyExistsError, CommitFailedException):
                return catalog.load_table(new.name)
        except NoSuchTableError:
            raise dropped_meanwhile(new.name) from None


def _ensure_namespace(catalog: Catalog, namespace: list[str]) -> None:
    """Create the namespace and those it is nested in, where missing."""
    for depth in range(1, len(namespace) + 1):
        part = tuple(namespace[:depth])
        if catalog.namespace_exists(part):
            continue
        try:
            catalog.create_namespace(part)
        except Exception:
            # A SQL catalog reports a race as the database's constraint error, others as "already exists".
            if not catalog.namespace_exists(part):
                raise


def _create_statement(catalog: Catalog, settings: TableSettings, shown: Columns) -> str:
    """Spark's statement for the table the source suggests; with the columns left open if it suggests none."""
    try:
        table = new_table(settings, AutoCreate(), shown)
        columns = ", ".join(f"`{field.name}` {spark_type_text(field.field_type)}" for field in table.schema.fields)
    except CalveError:
        columns = "…"
    return f"CREATE TABLE {catalog.name}.{settings.name} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='2')"
