"""What a table must still have for a commit to it: files that an earlier one added, specs and schemas."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from calve.sink_core.error_codes.tables import SPEC_GONE
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.tables.history.shares import Events
from calve.sink_core.tables.history.view import TableView


def holds_tagged_files(table: Table, view: TableView) -> bool:
    """Whether the head still names every file that the tagged snapshot added.

    That is no proof for older snapshots of ours, which only a cherry-pick of the tagged one could have left out. Called
    when snapshots between tag and head were expired, so that the ancestry proves nothing.
    """
    tagged = table.metadata.snapshot_by_id(view.tag) if view.tag is not None else None
    head = table.metadata.snapshot_by_id(view.head) if view.head is not None else None
    if tagged is None or head is None:
        return False
    # What a merge has added lies in the snapshot below the one that says so.
    says = tagged.summary is not None and tagged.summary.operation is Operation.REPLACE
    adding = {tagged.snapshot_id, tagged.parent_snapshot_id if says else None}
    added = {
        entry.data_file.file_path
        for manifest in tagged.manifests(table.io)
        if manifest.added_snapshot_id in adding
        for entry in live_entries(table.io, manifest)
        if entry.snapshot_id in adding
    }
    held = {
        entry.data_file.file_path for manifest in head.manifests(table.io) for entry in live_entries(table.io, manifest)
    }
    # A snapshot that answers a finding may have added nothing, and then proves nothing.
    return bool(added) and added <= held


def check_still_there(table: Table, pending: Events) -> None:
    """Manifests refer to a spec and a schema of the table; a table evolved meanwhile keeps both unless removed."""
    specs, schemas = table.specs(), table.schemas()
    for logged in pending:
        event = logged.event
        for manifest in event.added:
            if manifest.spec_id not in specs or event.schema_id not in schemas:
                raise TableUnusable(
                    f"{event.table}: batch {event.batch_id} was written with spec {manifest.spec_id} and schema "
                    f"{event.schema_id}; the table has specs {sorted(specs)} and schemas {sorted(schemas)}",
                    hint="the removed spec or schema must come back before these files can be committed",
                    code=SPEC_GONE,
                )
