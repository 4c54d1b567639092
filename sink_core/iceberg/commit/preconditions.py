"""What a table must still have for a commit to it, files that an earlier one added, specs and schemas; and what events
name, checked as if somebody had forged it: whoever may write to the control topic might have.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from calve.sink_core.codes import Code
from calve.sink_core.errors import ProtocolError, TableUnusable
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.iceberg.files.manifests import published_entries
from calve.sink_core.iceberg.files.places import is_within, locations
from calve.sink_core.iceberg.files.requests import answers
from calve.sink_core.tables.batch import ManifestRef
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


def check_places(table: Table, pending: Events) -> None:
    """Raise ProtocolError for a manifest that an event names outside the table's locations. Reads nothing."""
    for logged in pending:
        for ref in manifests_named([logged]):
            _check_within(table, ref.path, f"batch {logged.event.batch_id}, control offset {logged.offset}")


def manifests_named(events: Events) -> list[ManifestRef]:
    """The manifests that events name: of files that come, and of those that leave."""
    found = list[ManifestRef]()
    for logged in events:
        found += (*logged.event.added, *(logged.event.replaces.gone if logged.event.replaces else ()))
    return found


def check_published(
    table: Table, manifests: Iterable[ManifestRef], checked: set[tuple[str, ManifestRef]] | None = None
) -> None:
    """Raise ProtocolError for a manifest that is not the one that was published, or names a file outside the table's
    locations. Each is read once: those that are well are added to `checked`, with the table's location. Raises
    TableUnusable for one that is gone, Unreachable.
    """
    checked, location = set() if checked is None else checked, table.metadata.location
    new = [ref for ref in manifests if (location, ref) not in checked]
    with unreachable_as_ours(f"reading the manifests of {'.'.join(table.name())}"):
        for ref, entries in zip(new, answers(partial(published_entries, table.io), new), strict=True):
            for entry in entries:
                _check_within(table, entry.data_file.file_path, f"manifest {ref.path}")
            checked.add((location, ref))


def _check_within(table: Table, path: str, named_by: str) -> None:
    if not is_within(path, table.metadata):
        raise ProtocolError(
            f"{'.'.join(table.name())}: {named_by} names {path}, and files of the table are below "
            f"{', '.join(locations(table.metadata))}",
            hint=Code.FOREIGN_FILES.explanation.remedy,
            code=Code.FOREIGN_FILES,
        )


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
                    code=Code.SPEC_GONE,
                )
