"""Hudi tables a pipeline needs: created where they are missing, given an id where they have none."""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, IntegerType, LongType, StringType

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.schema import HUDI_COLUMNS, to_avro
from calve.sink_core.hudi.files.timeline import read_properties
from calve.sink_core.hudi.java.client import UUID, HudiClient, NewHudiTable
from calve.sink_core.hudi.java.jvm import HudiRefused
from calve.sink_core.iceberg.changes.settings import row_changes_of
from calve.sink_core.iceberg.create.tables import Columns, NewTable, new_table
from calve.sink_core.iceberg.files.stand_in import stand_in
from calve.sink_core.records.columns.checked import of_fields
from calve.sink_core.records.columns.type_text import type_text

_IN_PATHS = (BooleanType, IntegerType, LongType, StringType, DateType)
"""Types whose values are the same text in every writer's paths."""


def ensure_table(client: HudiClient, place: Place, settings: TableSettings, shown: Columns) -> None:
    """Create a table where it is missing, and give one an id that has none.

    It is made beside its place, and appears there whole. Raises ConfigError for one that is missing and not to be
    created, and for columns or partitions that it can't have; Unreachable for what Hudi refuses.
    """
    properties = read_properties(place)
    if properties is not None and UUID in properties:
        return
    try:
        if properties is not None:
            client.set_properties(place.folder, {UUID: str(uuid.uuid4())})
            return
        new = new_hudi_table(settings, shown)
        with client.jvm.locked(place.lock):
            if read_properties(place) is None:
                _create(client, place, new)
    except HudiRefused as error:
        raise Unreachable(
            f"creating table {settings.name}: {error}",
            hint=f"see whether {place.folder} can be written to",
            code=Code.HUDI_REFUSED,
        ) from None


def new_hudi_table(settings: TableSettings, shown: Columns) -> NewHudiTable:
    """What `auto_create` asks for. Raises ConfigError naming the table and the setting."""
    if settings.auto_create is None:
        raise ConfigError(
            f"table {settings.name} doesn't exist in the warehouse of `hudi`, and its `auto_create` is not set",
            hint="set `auto_create: {}` for it",
            code=Code.NO_SUCH_TABLE,
        )
    new = new_table(settings, settings.auto_create, lambda: _shown(shown(), settings.name))
    columns, partitions = new.schema, tuple(_partitions(new, new.schema))
    if not settings.changes_rows:
        return NewHudiTable(
            settings.name, str(uuid.uuid4()), to_avro(columns, settings.name), settings.hudi_type, partitions
        )
    key = columns.identifier_field_names()
    # Of a row that goes the key alone may be known.
    columns = Schema(*(field.model_copy(update={"required": field.name in key}) for field in columns.fields))
    metadata = stand_in(columns, partitions, "")
    changes = row_changes_of(metadata, settings)
    assert changes is not None
    order = None if changes.order is None else metadata.schema().find_column_name(changes.order)
    return NewHudiTable(
        settings.name,
        str(uuid.uuid4()),
        to_avro(columns, settings.name, marked=not settings.soft_deletes),
        settings.hudi_type,
        partitions,
        tuple(metadata.schema().find_field(field_id).name for field_id in changes.key),
        order or "",
    )


def _shown(columns: Schema, table: str) -> Schema:
    """The columns that records show, without fields of names that Hudi has not: these are counted."""
    return of_fields(f"what the records of {table} show", columns.fields, rule=replace(HUDI_COLUMNS, types=()))


def _partitions(new: NewTable, schema: Schema) -> list[str]:
    names: list[str] = []
    for column, whole in new.partitions:
        kind = schema.find_type(column)
        if not whole or "." in column or not isinstance(kind, _IN_PATHS):
            raise ConfigError(
                f"table {new.name}: partition_by: {column} is {type_text(kind)}; a Hudi table is partitioned by whole "
                "numbers, text, dates and booleans, and by no nested column",
                hint="name another column; a transform can make one",
                code=Code.BAD_TERM,
            )
        names.append(column)
    return names


def _create(client: HudiClient, place: Place, new: NewHudiTable) -> None:
    made = place.new()
    try:
        client.create(new, made)
        place.folder.parent.mkdir(parents=True, exist_ok=True)
        made.rename(place.folder)
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(made)
