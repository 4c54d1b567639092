"""Which files of a table may be looked at as orphans, before Iceberg's `remove_orphan_files` has the last word.

It deletes what is listed and no snapshot names. To be listed a file must be old, be named by no event of the control
log, and not belong to a commit that may still land: a process that was stopped between writing a snapshot's files and
the swap of the table's metadata may wake up at any time, and age proves nothing about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import fastavro
from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.files.manifests import entries_of, rewritten_for
from calve.sink_core.iceberg.files.places import locations
from calve.sink_core.tables.log.state import CommitState

LOOKED_AT = "calve.orphans-listed"
"""Property of a table whose orphans have been listed once, without deleting any."""

_METADATA_VERSION = re.compile(r"v?(\d+)(?:-[0-9a-f-]+)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_MANIFEST_LIST = re.compile(r"snap-.*\.avro")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file below a table's location. `path` as Iceberg's metadata would spell it, `size` in bytes."""

    path: str
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def list_files(table: Table) -> Iterator[Listed]:
    """Every file below the table's location and where its properties put data and metadata, by the table's own FileIO.

    Hidden ones are left out: names that begin with a dot or an underscore belong to others, unless it is a partition's
    folder. Raises ConfigError for a FileIO that can't list.
    """
    fields = {field.name for spec in table.specs().values() for field in spec.fields}
    for location in locations(table.metadata):
        for found in _listing(table.io, location):
            if not _is_hidden(found.path.removeprefix(location), fields):
                yield found


def named_by_events(state: CommitState, name: str, table: Table) -> set[str]:
    """Manifests that events still in the log name for the table of that name, and the files in them; for any of its
    UUIDs. Also of what a range job takes out: the job's commit looks at it.

    A manifest that does not exist any more names nothing.
    """
    named, io = set[str](), table.io
    for logged in state.written.get(name, []):
        gone = logged.event.replaces.gone if logged.event.replaces else ()
        for ref in (*logged.event.added, *gone):
            named.add(ref.path)
            if io.new_input(ref.path).exists():
                named |= {entry.data_file.file_path for entry in entries_of(io, ref)}
    return named


def may_still_land(file: Listed, table: Table) -> bool:
    """Whether the file may be part of a commit whose process has not made its swap yet.

    `table` must have been loaded after the file was listed. A metadata file can become the table's only as the
    successor of the current one; a manifest list only with the next sequence number, and so a manifest that was written
    again for it, whose name says that number.
    """
    if file.name.endswith((".metadata.json", ".metadata.json.gz")):
        ours, current = _version(file.name), _version(table.metadata_location)
        return ours is None or current is None or ours > current
    if _MANIFEST_LIST.fullmatch(file.name):
        sequence_number = _sequence_number(table.io, file.path)
        return sequence_number is None or sequence_number >= table.metadata.next_sequence_number()
    again = rewritten_for(file.name)
    return again is not None and again >= table.metadata.next_sequence_number()


def known_of_snapshots(table: Table) -> set[str]:
    """Manifest lists of the table's snapshots: nothing needs to be asked about these."""
    return {snapshot.manifest_list for snapshot in table.metadata.snapshots}


def was_looked_at(table: Table) -> bool:
    return LOOKED_AT in table.metadata.properties


def note_looked_at(catalog: Catalog, table: Table, now_ms: int) -> None:
    """Make `was_looked_at` true. Where the note does not arrive, the next run only lists once more."""
    update = SetPropertiesUpdate(updates={LOOKED_AT: str(now_ms)})
    with (
        unreachable_as_ours(f"setting a property of {'.'.join(table.name())}"),
        suppress(CommitFailedException, CommitStateUnknownException, NoSuchTableError),
    ):
        catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))


def locations_of_all(catalog: Catalog) -> dict[str, str | CalveError]:
    """The locations of all tables of the catalog by name, other people's included; why, of one that can't be loaded."""
    found = dict[str, str | CalveError]()
    with unreachable_as_ours("listing the tables of the catalog"):
        for namespace in _namespaces(catalog, ()):
            for name in map(".".join, catalog.list_tables(namespace)):
                try:
                    table = load_if_there(catalog, name)
                except CalveError as error:
                    found[name] = error
                else:
                    found |= {name: table.location()} if table is not None else {}
    return found


def _namespaces(catalog: Catalog, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for namespace in catalog.list_namespaces(parent):
        yield namespace
        if len(namespace) > len(parent):
            yield from _namespaces(catalog, namespace)


def _is_hidden(relative: str, partition_fields: Iterable[str]) -> bool:
    return any(
        part.startswith((".", "_")) and not any(part.startswith(f"{field}=") for field in partition_fields)
        for part in relative.split("/")
    )


def _listing(io: FileIO, location: str) -> Iterator[Listed]:
    scheme, netloc, path = PyArrowFileIO.parse_location(location)
    if isinstance(io, PyArrowFileIO):
        base = path.rstrip("/")
        selector = FileSelector(base, allow_not_found=True, recursive=True)
        for info in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
            if info.type == FileType.File:
                yield Listed(
                    location + info.path.removeprefix(base).lstrip("/"), info.size or 0, (info.mtime_ns or 0) // 10**6
                )
    elif isinstance(io, FsspecFileIO):
        found = io.get_fs(scheme).find(location, detail=True)
        base = path.strip("/")
        for name, info in cast(dict[str, dict[str, Any]], found).items():
            relative = name.strip("/").removeprefix(base).lstrip("/")
            yield Listed(location + relative, int(info.get("size") or 0), _modified_ms(info))
    else:
        raise ConfigError(
            f"files below {location} can't be listed: {type(io).__name__} has no listing",
            hint="leave py-io-impl out, or set it to pyiceberg's PyArrowFileIO or FsspecFileIO",
            code=Code.NO_LISTING,
        )


def _modified_ms(info: dict[str, Any]) -> int:
    found = info.get("LastModified") or info.get("last_modified") or info.get("mtime") or info.get("updated")
    if isinstance(found, datetime):
        return int(found.timestamp() * 1000)
    if isinstance(found, str):
        return int(datetime.fromisoformat(found).timestamp() * 1000)
    return int(float(found) * 1000) if found else 2**63 - 1


def _version(path: str) -> int | None:
    """The number of a metadata file, None where its name has none."""
    found = _METADATA_VERSION.fullmatch(path.rpartition("/")[2])
    return int(found[1]) if found else None


def _sequence_number(io: FileIO, path: str) -> int | None:
    """What a manifest list says of its snapshot; None if it can't be read or says nothing."""
    try:
        with io.new_input(path).open() as stream:
            return int(fastavro.reader(stream).metadata["sequence-number"])  # pyright: ignore[reportArgumentType]
    except (OSError, ValueError, KeyError, EOFError, StopIteration):
        return None
