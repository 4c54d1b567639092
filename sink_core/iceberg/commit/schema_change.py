"""Changing a table's schema: load, work out, one compare-and-swap on the schema it was worked out from."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.records.columns.evolution import Evolved, Used, evolved
from calve.sink_core.timing import back_off

_LAST_ADDED = -1


def change_schema(catalog: Catalog, name: str, wanted: Schema, steps: Collection[EvolveStep]) -> tuple[str, ...]:
    """Give table `name` what is `wanted` of it, as far as `steps` allow; the changes in words, none if it has it all.

    Each attempt starts from the load: somebody else may have made the same change, or another. Raises TableUnusable for
    a table that was dropped, CommitConflict or Unreachable after too many attempts.
    """
    lost_to: Exception | None = None
    for conflicts in range(ATTEMPTS):
        table = load_if_there(catalog, name)
        if table is None:
            raise dropped_meanwhile(name)
        change = evolved(table.schema(), wanted, steps, used_by(table.metadata))
        if change is None:
            return ()
        unchanged = AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id})
        requirements = AssertTableUUID(uuid=table.metadata.table_uuid), unchanged
        reach("evolve.before-change")
        try:
            catalog.commit_table(table, requirements, _updates(table, change))
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises, the next load shows whether it landed
            lost_to = error
            back_off(conflicts)
            continue
        reach("evolve.after-change")
        return change.changes
    raise gave_up(name, lost_to)


def used_by(metadata: TableMetadata) -> Used:
    """The ids that a table has used."""
    return Used(metadata.last_column_id, max(schema.schema_id for schema in metadata.schemas))


def _updates(table: Table, change: Evolved) -> tuple[TableUpdate, ...]:
    """The new schema; and the new fields in the table's name mapping, if it has one, as Iceberg's own changes do."""
    metadata: TableMetadata = table.metadata
    updates: tuple[TableUpdate, ...] = (
        AddSchemaUpdate(schema=change.schema),
        SetCurrentSchemaUpdate.model_validate({"schema-id": _LAST_ADDED}),
    )
    mapping = table.name_mapping() if TableProperties.DEFAULT_NAME_MAPPING in metadata.properties else None
    if mapping is None:
        return updates
    text = update_mapping(mapping, {}, dict(change.added)).model_dump_json()
    return (*updates, SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: text}))
