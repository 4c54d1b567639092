"""`Server`: what is asked of a PostgreSQL server, and what its errors mean. All its statements
are here.

Ordinary SQL serves for all of it: reading the log by `pg_logical_slot_peek_binary_changes` needs no streaming client,
and moves nothing until it is told to.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, RetriableError
from calve.sink_core.source.postgres.connecting import POLL_S, connected, reported, until_free
from calve.sink_core.source.postgres.records import Cells, Layout
from calve.sink_core.source.postgres.relations import KEY, PublishedTable
from calve.sink_core.source.postgres.values import NULL, TYPES, Types
from calve.sink_core.source.postgres.visibility import TableSnapshot, lsn_of, lsn_text
from calve.sink_core.timing import Deadline

if TYPE_CHECKING:
    from psycopg2.extensions import connection

CREATE_S, SETTLE_S, TRY_S = 60, 60.0, 5
"""Until a slot was made, until transactions are over that wrote before a table was published, and until a check
ends.
"""

_PAGE, _HEADS = 8192, (24, 40)
"""Bytes of a page of the log, and of what stands before its records (`XLogShortPHD`, `XLogLongPHD`)."""

AT_ONCE = 2_000
"""Rows that are fetched at a time."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose log it is: `timeline` changes when another server takes over."""

    system: int
    database: str
    timeline: int


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """Of a slot what matters here; `lost` says why it can't be read any more, empty if it can. `kept` is where the log
    begins that PostgreSQL keeps for it, `confirmed` what it was told last.
    """

    plugin: str
    database: str
    kept: int
    confirmed: int
    lost: str


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a table in a snapshot of their own; `since` is no later than any change that it has not seen."""

    snapshot: TableSnapshot
    since: int
    taken_ms: int
    layout: Layout
    cells: Iterator[Cells]


class Server:
    """One database, asked over a connection that is made when it is needed first."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def identity(self) -> Identity:
        """As it is now: behind the same address another server may answer by the next call."""
        [(system, database, segment)] = self._ask(_IDENTITY, lsn_text(self.end()))
        return Identity(system, database, int(segment[:8], 16))

    @cached_property
    def types(self) -> Types:
        """How values become JSON."""
        return Types.of(self._ask(TYPES), checked=self._unchecked)

    def end(self) -> int:
        """Up to where the log can be read."""
        return lsn_of(self._ask(_END)[0][0])

    def slot(self, name: str) -> ReplicationSlot | None:
        for (found,) in self._ask("SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s", name):
            lost = "lost" if found["wal_status"] == "lost" else found.get("invalidation_reason") or ""
            kept, confirmed = (lsn_of(found[at] or "0/0") for at in ("restart_lsn", "confirmed_flush_lsn"))
            return ReplicationSlot(found["plugin"], found["database"], kept, confirmed, lost)
        return None

    def create_slot(self, name: str) -> None:
        """Make a slot. Raises RetriableError if transactions that write hold it back too long."""
        with self._stream(f"-c statement_timeout={CREATE_S}s") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))

    def advance(self, name: str, lsn: int) -> None:
        """Let the server forget what lies before `lsn`."""
        until_free(lambda: self._ask("SELECT pg_replication_slot_advance(%s, %s)", name, lsn_text(lsn)))

    def tables(self, publication: str) -> list[PublishedTable]:
        """Of a publication, by name. Raises ConfigError if there is none, or no log that could be decoded."""
        if self._wal_level != "logical":
            raise ConfigError(
                f"database {self.identity().database}: wal_level is {self._wal_level}, and its log has no rows",
                hint="set wal_level = logical and start the server again",
                code=Code.DATABASE_REFUSED,
            )
        found = self._ask(
            _TABLES.format(key=KEY, of_schema=_OF_SCHEMA if self._publishes_schemas else "NULL"), publication
        )
        if not found and not self.has_publication(publication):
            raise ConfigError(
                f"database {self.identity().database} has no publication {publication}",
                hint=f"CREATE PUBLICATION {publication} FOR TABLE …",
                code=Code.NO_PUBLICATION,
            )
        return [PublishedTable(*row) for row in found]

    def changes(self, slot: str, publication: str, upto: int, most: int) -> Iterator[tuple[int, bytes]]:
        """Messages of pgoutput with their places, of transactions that committed up to about `upto`; the transaction
        with the `most`-th message is the last.
        """
        given = (slot, lsn_text(upto), min(most, 2**31 - 1), _quoted(publication))

        def begun() -> tuple[ExitStack, Any, list[tuple[int, memoryview]]]:
            with ExitStack() as stack:
                cursor = stack.enter_context(_cursor(stack.enter_context(self._stream())))
                cursor.execute(_CHANGES, given)
                # The server reads all of it now, and then lets go of the slot.
                some = cursor.fetchmany(AT_ONCE)
                return stack.pop_all(), cursor, some

        opened, cursor, some = until_free(begun)
        with opened:
            while some:
                for lsn, message in some:
                    yield lsn, bytes(message)
                some = cursor.fetchmany(AT_ONCE)

    def next_xid(self) -> int:
        """No transaction that wrote before this call has this id or a later one."""
        return self._ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")[0][0]

    def oldest_xid(self) -> int:
        """The lowest id of a transaction that is open."""
        return self._ask("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")[0][0]

    def seen_end(self) -> int:
        """No transaction that can be seen has committed behind this place: where the log goes on, of which the last
        part may not be on disk and so not be decoded yet.
        """
        lsn = lsn_of(self._ask(_SEEN_END)[0][0])
        # Behind the head of a page, as if that were written; the log ends before it.
        return lsn - lsn % _PAGE if lsn % _PAGE in _HEADS else lsn

    @cached_property
    def user(self) -> str:
        return self._ask("SELECT quote_ident(current_user)")[0][0]

    def has_publication(self, name: str) -> bool:
        return bool(self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", name))

    def try_reading(self, slot: str, publication: str) -> None:
        """Read a message of the log by a slot, or by one that is made for this and gone at once. Raises ConfigError for
        what PostgreSQL refuses; what takes longer than a few seconds is not waited for.
        """
        with suppress(RetriableError), self._stream(f"-c statement_timeout={TRY_S}s") as one, one.cursor() as cursor:
            if self.slot(slot) is not None:
                cursor.execute(_CHANGES, (slot, None, 1, _quoted(publication)))
            else:
                cursor.execute(
                    "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", (f"{slot[:50]}_check",)
                )

    @contextmanager
    def rows(self, table: PublishedTable, topic: str, slot: str, beyond: int) -> Generator[FoundRows]:
        """All rows of a table as they are once no transaction is open that wrote below `beyond`. The columns' order and
        forms are those of the log. Raises RetriableError if such a transaction stays open.
        """
        before = self.slot(slot)
        self._await_end_of(beyond, table.name)
        with self._stream() as connection, connection.cursor() as asking, _cursor(connection) as cursor:
            asking.execute(_SNAPSHOT)
            snapshot, lsn, taken_ms = asking.fetchone() or ("", "0/0", 0)
            asking.execute(_COLUMNS, (table.oid,))
            columns = [(name, kind) for name, kind in asking if not table.columns or name in table.columns]
            layout = Layout.of(table.schema, table.table, topic, columns, table.key, self.types)
            cursor.execute(_select(table, [name for name, _ in columns]))
            # The result has the base types of domains.
            _as_text(cursor, [*(kind for _, kind in columns), *layout.kinds])
            seen = TableSnapshot(snapshot, lsn_of(lsn))
            yield FoundRows(seen, before.kept if before else 0, taken_ms, layout, self._cells(cursor, layout))

    def _await_end_of(self, beyond: int, table: str) -> None:
        deadline = Deadline.after(SETTLE_S)
        while (oldest := self.oldest_xid()) < beyond:
            if deadline.passed:
                raise RetriableError(
                    f"{table}: transaction {oldest} was writing before this table was published, and still is",
                    hint="its rows may be in no log: let it end, then run again (pg_stat_activity.backend_xid)",
                    code=Code.STILL_WRITING,
                )
            time.sleep(POLL_S)

    def _cells(self, cursor: Any, layout: Layout) -> Iterator[Cells]:
        codec, convert = "latin-1" if self._unchecked else "utf-8", layout.to_json
        for row in cursor:
            yield [
                NULL if text is None else to_json(text.encode(codec))
                for text, to_json in zip(row, convert, strict=True)
            ]

    @cached_property
    def _publishes_schemas(self) -> bool:
        """From PostgreSQL 15 on."""
        return self._ask("SELECT to_regclass('pg_publication_namespace') IS NOT NULL")[0][0]

    @cached_property
    def _wal_level(self) -> str:
        return self._ask("SHOW wal_level")[0][0]

    @cached_property
    def _unchecked(self) -> bool:
        """Whether the database has never looked at its bytes."""
        return self._ask("SHOW server_encoding")[0][0] == "SQL_ASCII"

    def _ask(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        with reported(self._url):
            if self._connection is None or self._connection.closed:
                self._connection = connected(self._url)
                self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(sql, given)
                return cursor.fetchall()

    @contextmanager
    def _stream(self, options: str = "") -> Generator[connection]:
        """A connection of its own, in a transaction that sees one snapshot."""
        encoding = "LATIN1" if self._unchecked else "UTF8"
        with reported(self._url), closing(connected(self._url, options)) as connection:
            connection.set_session(isolation_level="REPEATABLE READ")
            connection.set_client_encoding(encoding)
            yield connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cursor(connected_to: connection) -> Any:
    """One whose rows stay on the server until they are fetched."""
    cursor = connected_to.cursor(name="calve")
    cursor.itersize = AT_ONCE
    return cursor


def _as_text(cursor: Any, kinds: Sequence[int]) -> None:
    """Have a cursor give values as the server's output functions write them."""
    from psycopg2.extensions import new_type, register_type

    register_type(new_type(tuple({*kinds}), "TEXT", lambda value, _cursor: value), cursor)


def _select(table: PublishedTable, columns: Sequence[str]) -> Any:
    from psycopg2 import sql

    named = sql.SQL(", ").join(sql.Identifier(name) for name in columns)
    of = sql.SQL("{}" if table.partitioned else "ONLY {}").format(sql.Identifier(table.schema, table.table))
    where = sql.SQL(f" WHERE {table.filter}" if table.filter else "")
    return sql.SQL("SELECT {} FROM {}{}").format(named, of, where)


_END = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text
"""
_SEEN_END = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END)::text
"""
_IDENTITY = "SELECT system_identifier, current_database(), pg_walfile_name(%s) FROM pg_control_system()"
_CHANGES = """
SELECT (lsn - '0/0'::pg_lsn)::bigint, data FROM pg_logical_slot_peek_binary_changes
    (%s, %s, %s, 'proto_version', '1', 'publication_names', %s)
"""
_SNAPSHOT = """
SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, (extract(epoch FROM now()) * 1000)::bigint
"""
_COLUMNS = """
SELECT attname, atttypid::bigint FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_TABLES = """
SELECT c.oid::bigint, p.schemaname, p.tablename, coalesce(
           (SELECT max(r.oid::bigint) FROM pg_publication_rel r WHERE r.prpubid = b.oid AND r.prrelid = ANY (i.ids)),
           {of_schema}, b.oid::bigint),
       ARRAY(SELECT jsonb_array_elements_text(to_jsonb(p) -> 'attnames')), to_jsonb(p) ->> 'rowfilter', c.relkind = 'p',
       {key},
       c.relreplident = 'f',
       CASE WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 100 ELSE c.reltuples END::bigint,
       has_schema_privilege(n.oid, 'USAGE') AND (
           SELECT coalesce(bool_and(has_column_privilege(c.oid, a.attnum, 'SELECT')), true) FROM pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
               AND coalesce(to_jsonb(p) -> 'attnames' ? a.attname::text, true)),
       row_security_active(c.oid)
FROM pg_publication_tables p
JOIN pg_publication b ON b.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
CROSS JOIN LATERAL (SELECT ARRAY(SELECT relid::oid FROM pg_partition_ancestors(c.oid)) || c.oid AS ids) i
WHERE p.pubname = %s ORDER BY 2, 3
"""
_OF_SCHEMA = """
(SELECT max(s.oid::bigint) FROM pg_publication_namespace s JOIN pg_class a ON a.relnamespace = s.pnnspid
 WHERE s.pnpubid = b.oid AND a.oid = ANY (i.ids))
"""
