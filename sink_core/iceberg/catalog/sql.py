"""SQL catalogs by plain statements, which read no metadata file that was read or written here before.

A batch loads each of its tables four times when a process begins with it. pyiceberg's own catalog does so once more in
the commit itself, reads a file each time, and has SQLAlchemy make objects of rows: a third of what a commit costs, all
of it under Python's lock, where threads are no help.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock

from pyiceberg.catalog import METADATA_LOCATION, PREVIOUS_METADATA_LOCATION
from pyiceberg.catalog.sql import ICEBERG_TABLE_TYPE, IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import Engine, bindparam, event, func, literal_column, make_url, select, text, update

from calve.sink_core.iceberg.compat import staged, write_staged
from calve.sink_core.libpq import PLUGIN, POSTGRES

_ROWS = SqlCatalogBaseTable.metadata.tables[IcebergTables.__tablename__]
_KEY = ("catalog_name", "table_namespace", "table_name")
_IS, _BECOMES = "is", "becomes"
_IS_ITS_ROW = [_ROWS.c[each] == bindparam(f"row_{each}") for each in _KEY]
# All columns there are: catalogs made by early versions have no `iceberg_type`.
_ROW = select(literal_column("*")).select_from(_ROWS).where(*_IS_ITS_ROW)
_SWAP = (
    update(_ROWS)
    .where(*_IS_ITS_ROW, _ROWS.c[METADATA_LOCATION] == bindparam(_IS))
    .values({METADATA_LOCATION: bindparam(_BECOMES), PREVIOUS_METADATA_LOCATION: bindparam(_IS)})
)

LOCK_TIMEOUT = "10s"
"""At each try of a commit, for a row of PostgreSQL that somebody else is changing, where nothing else sets one: a
process that sleeps in the middle of its commit would hold up all others of the table.
"""
_LOCK_TIMEOUT = select(func.set_config("lock_timeout", bindparam("most"), True)).where(
    func.current_setting("lock_timeout") == "0"
)

_SCHEMA = text("""
SELECT n.nspname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(:name)
""")
_OWN_NAMES = "SET LOCAL search_path = pg_catalog"

KEPT = 6_000
"""Snapshots in the metadata that is kept, of all tables together; some five kilobytes each. A table counts for `_FIXED`
more. The table used longest ago makes room, the last one always stays.
"""

_FIXED = 5
_MOST_IOS = 64


class PlainSqlCatalog(SqlCatalog):
    """pyiceberg's SQL catalog, which keeps tables' metadata: a metadata file never changes. Which one is a table's is
    asked each time.
    """

    def __init__(self, name: str, **properties: str) -> None:
        self._kept: dict[Identifier, tuple[str, TableMetadata]] = {}
        self._weight = 0
        self._ios: dict[tuple[object, ...], FileIO] = {}
        self._keeping = Lock()
        super().__init__(name, **{**properties, "uri": _with_deadlines(properties.get("uri", ""))})
        if self.engine.dialect.name == POSTGRES:
            self.engine = _by_full_names(self.engine)

    def load_table(self, identifier: str | Identifier) -> Table:
        """As pyiceberg's. Tables may share their metadata, which nobody changes."""
        names = self.identifier_to_tuple(identifier)
        with self.engine.connect() as connection:
            row = connection.execute(_ROW, self._row_of(names)).mappings().first()
        # Other rows are views, of other clients.
        if row is None or (row.get("iceberg_type") or ICEBERG_TABLE_TYPE) != ICEBERG_TABLE_TYPE:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(names)}")
        location = row[METADATA_LOCATION]
        if not location:
            raise NoSuchTableError(f"Table property {METADATA_LOCATION} is missing")
        metadata = self._metadata(names, location)
        return Table(names, metadata, location, self._opened_io(metadata.properties, location), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """As pyiceberg's: the row changes if it still names the file that the updates are based on."""
        if not self.engine.dialect.supports_sane_rowcount:
            # Whether the row has changed is then asked otherwise.
            return super().commit_table(table, requirements, updates)
        place, metadata = self._kept.get(table.name(), ("", None))
        if metadata is not None and place == table.metadata_location:
            # Mostly nobody has changed the table since, and the swap says it otherwise.
            with suppress(CommitFailedException):
                return self._swapped(Table(table.name(), metadata, place, table.io, self), requirements, updates)
        try:
            now = self.load_table(table.name())
        except NoSuchTableError:
            return super().commit_table(table, requirements, updates)
        return self._swapped(now, requirements, updates)

    def _swapped(
        self, now: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Raises CommitFailedException if `now` does not meet the requirements, or the table is not that any more."""
        after = staged(self, now, requirements, updates, self._opened_io)
        if after.metadata == now.metadata:
            return _response(now)
        write_staged(self, after)
        places = {_IS: now.metadata_location, _BECOMES: after.metadata_location}
        with self.engine.begin() as connection:
            if connection.dialect.name == POSTGRES:
                connection.execute(_LOCK_TIMEOUT, {"most": LOCK_TIMEOUT})
            if connection.execute(_SWAP, {**self._row_of(now.name()), **places}).rowcount < 1:
                raise CommitFailedException(f"Table has been updated by another process: {'.'.join(now.name())}")
        self._keep(now.name(), after.metadata_location, after.metadata)
        return _response(after)

    def _opened_io(self, properties: Mapping[str, str], location: str) -> FileIO:
        """One for all tables of the same properties: another one of object storage has connections of its own."""
        together = {**self.properties, **properties}
        key = (location.partition(":")[0], *sorted(together.items()))
        if (found := self._ios.get(key)) is None:
            if len(self._ios) >= _MOST_IOS:
                self._ios.clear()
            found = self._ios[key] = load_file_io(together, location)
        return found

    def _metadata(self, names: Identifier, location: str) -> TableMetadata:
        place, metadata = self._kept.get(names, ("", None))
        if metadata is None or place != location:
            metadata = FromInputFile.table_metadata(self._opened_io({}, location).new_input(location))
        self._keep(names, location, metadata)
        return metadata

    def _keep(self, names: Identifier, location: str, metadata: TableMetadata) -> None:
        with self._keeping:
            self._forget(names)
            self._kept[names] = location, metadata
            self._weight += _weight(metadata)
            while self._weight > KEPT and len(self._kept) > 1:
                self._forget(next(iter(self._kept)))

    def _forget(self, names: Identifier) -> None:
        if names in self._kept:
            _, metadata = self._kept.pop(names)
            self._weight -= _weight(metadata)

    def _row_of(self, names: Identifier) -> dict[str, str]:
        key = (self.name, self.namespace_to_string(names[:-1]), names[-1])
        return {f"row_{column}": value for column, value in zip(_KEY, key, strict=True)}


def _with_deadlines(uri: str) -> str:
    """`uri` so that a connection to PostgreSQL ends whose server is gone or silent."""
    if not uri.startswith(POSTGRES):
        return uri
    return make_url(uri).update_query_dict({"plugin": PLUGIN}).render_as_string(hide_password=False)


def _by_full_names(engine: Engine) -> Engine:
    """An engine of PostgreSQL that names the catalog's tables with their schema, and takes nothing else from there: who
    may make operators in it would have them called, as whoever commits.
    """
    with engine.connect() as connection:
        schema = connection.execute(_SCHEMA, {"name": IcebergTables.__tablename__}).scalar()
    if schema is None:
        return engine
    # For each transaction: a pool between here and the server gives a session to others too.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(_OWN_NAMES))
    return engine.execution_options(schema_translate_map={None: schema})


def _weight(metadata: TableMetadata) -> int:
    return _FIXED + len(metadata.snapshots)


def _response(table: Table) -> CommitTableResponse:
    return CommitTableResponse(metadata=table.metadata, **{"metadata-location": table.metadata_location})
