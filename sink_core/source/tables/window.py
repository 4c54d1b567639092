"""`Window`: rows by the transaction that wrote them. PostgreSQL only; misses none, however late it commits.

A row version has the id of its transaction in `xmin`. The horizon `h` is the lowest id that was in progress when the
driver looked: all transactions below it are over, so the rows in `[last, h)` are all there and no others will be. Each
is read once; a row that is changed meanwhile has a newer version, at `h` or above it, which is for the next window.

Ids have 64 bits in a snapshot and 32 in a row. Freezing, VACUUM FULL and CLUSTER leave `xmin` as it was written, so
within 2^32 transactions a row's place is certain, and nothing tells it from one that is 2^32 older.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

import sqlalchemy as sa

from calve.sink_core.codes import Code
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError
from calve.sink_core.findings import DATABASE_RESTORED
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.tables.table import Planned, QueriedTable

XID = "xid"
ROUND = 2**32
"""As many ids there are in rows."""

FAR = 2**31
"""A database that is so far ahead is taken for another: in a running one unfrozen rows are closer together."""

STALE = 2**20
"""So many transactions may go by without a row before the offset moves all the same: it must not get `FAR` behind."""

_OPEN_S = 2
"""A transaction that has been open for so long is worth a word."""

_FIRST_NORMAL = 3
# Below it are what pg_upgrade brought frozen from before 9.4, and what initdb wrote.

_XMIN = sa.cast(sa.cast(sa.literal_column("xmin"), sa.Text), sa.BigInteger)


class Window:
    """Its offset is the horizon up to which all was read, `{"xid": h}`."""

    fields = frozenset({XID})
    whole = True

    def __init__(self, table: QueriedTable) -> None:
        """Raises ConfigError for another database."""
        self._table = table
        if not table.database.is_postgres:
            raise ConfigError(
                f"source.tables: {table.name}: by: transaction is for PostgreSQL, this is {table.database.dialect}",
                hint="set by: timestamp, incrementing or bulk",
                code=Code.WAY_DOES_NOT_FIT,
            )

    def require(self) -> None:
        self._table.require_all_seen()
        if self._no_tables:
            raise ConfigError(
                f"source.tables: {self._table.name} is or has {', '.join(self._no_tables)}, and by: transaction is for "
                "tables",
                hint="name the tables behind it, or set by: timestamp, incrementing or bulk",
                code=Code.WAY_DOES_NOT_FIT,
            )

    def blockers(self) -> Iterator[Blocker]:
        """Rows that were written since a transaction began that is open for a while."""
        horizon, end = self._horizon(None)
        holder = self._holder(horizon) if horizon < end else None
        if holder is None or not (rows := self._rows(FlatMap({XID: horizon}), end)):
            return
        pid, gid, since_ms = holder
        if since_ms is not None and since_ms > (time.time() - _OPEN_S) * 1000:
            return
        why = f"{rows:,} row{'s' * (rows != 1)} written since transaction {horizon} began, which is open"
        by, mends = (f"prepared as {gid}", "COMMIT PREPARED or ROLLBACK PREPARED") if gid else (f"pid {pid}", "end it")
        yield Blocker(self._table.name, f"{why} ({by})", mends, since_ms)

    def waiting(self, last: FlatMap | None) -> tuple[int, str]:
        horizon, _ = self._horizon(last)
        return max(self._rows(last, horizon), _is_stale(last, horizon)), ""

    def until(self) -> int:
        """The horizon: what is written from now on is for another run."""
        return self._horizon(None)[0]

    def plan(self, last: FlatMap | None, limits: Limits) -> Planned | None:
        """All or nothing; nothing once a run has what was there when it began."""
        if last is not None and limits.until is not None and _xid(last) >= int(str(limits.until)):
            return None
        horizon, _ = self._horizon(last)
        rows = self._rows(last, horizon)
        return Planned(FlatMap({XID: horizon}), rows) if rows or _is_stale(last, horizon) else None

    def read(self, last: FlatMap | None, bound: FlatMap) -> Iterator[Rows]:
        with self._table.database.streamed() as connection:
            # Of the server that is read from: a standby may be behind the one where this was planned.
            found, _ = connection.execute(sa.text(_HORIZON)).one()
            self._require(_xid(bound), found)
            for rows in connection.execute(self._table.select().where(_within(last, _xid(bound)))).partitions():
                yield self._table.rows(bound, rows)
        yield Rows(bound)

    def why_not(self) -> str:
        horizon, _ = self._horizon(None)
        if horizon < ROUND:
            return ""
        return (
            f"{self._table.name} is read by transaction, and the database has had {horizon:,} of them: a row that "
            f"nothing has changed for {ROUND:,} transactions is given again, as ids in rows begin anew"
        )

    def _horizon(self, last: FlatMap | None) -> tuple[int, int]:
        """The lowest id in progress, and the lowest that no transaction has yet."""
        with self._table.database.asked() as connection:
            horizon, end = connection.execute(sa.text(_HORIZON)).one()
        if last is not None:
            self._require(_xid(last), horizon)
        return horizon, end

    def _require(self, stored: int, found: int) -> None:
        """Raise FindingError if `found` can't be the horizon after `stored`."""
        if not stored <= found < stored + FAR:
            raise DATABASE_RESTORED.of(self._table.name, stored=f"xid {stored}", found=f"xid {found}").error()

    @cached_property
    def _no_tables(self) -> list[str]:
        """What the table is or has whose rows have no transaction of their own."""
        asked = {"schema": self._table.found.schema, "table": self._table.found.name}
        with self._table.database.asked() as connection:
            kinds = connection.execute(sa.text(_KINDS), asked).scalars().all()
        return sorted(_NAMES.get(str(kind), str(kind)) for kind in {*kinds} - {"r", "p"})

    def _rows(self, last: FlatMap | None, horizon: int) -> int:
        if last is not None and _xid(last) == horizon:
            return 0
        return self._table.count(_within(last, horizon))

    def _holder(self, horizon: int) -> tuple[int | None, str | None, int | None] | None:
        """Of the open transaction with this id: its process, its name where it is prepared, and since when."""
        with self._table.database.asked() as connection:
            found = connection.execute(sa.text(_HOLDER), {"xid": str(horizon % ROUND)}).one_or_none()
        return None if found is None else (found.pid, found.gid, found.since_ms)


def _xid(offset: FlatMap) -> int:
    return int(str(offset[XID]))


def _is_stale(last: FlatMap | None, horizon: int) -> bool:
    return last is not None and horizon - _xid(last) >= STALE


def _within(last: FlatMap | None, horizon: int) -> sa.ColumnElement[bool]:
    """The rows between two horizons; without the first, all but those that the next window has.

    The first time rows are taken for what they are not, newer: a row may be so old that its id says nothing any more.
    """
    if last is not None:
        begin = _xid(last)
        return sa.and_(_XMIN >= _FIRST_NORMAL, _behind(begin) < horizon - begin)
    end = sa.select(sa.literal_column("pg_snapshot_xmax(pg_current_snapshot())::text::bigint")).scalar_subquery()
    return sa.or_(_XMIN < _FIRST_NORMAL, _behind(horizon) >= end - horizon)


def _behind(xid: int) -> sa.ColumnElement[int]:
    """How many ids a row's is behind `xid`, round and round."""
    return (_XMIN - sa.literal(xid, sa.BigInteger)).op("&", return_type=sa.BigInteger())(ROUND - 1)


_HORIZON = """
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() s
"""
# A transaction has a lock on its own id. How long a session of somebody else is at it only few may see.
_HOLDER = """
SELECT l.pid, p.gid, floor(extract(epoch FROM coalesce(p.prepared, a.xact_start)) * 1000)::bigint AS since_ms
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid::text = :xid
"""
_KINDS = """
SELECT DISTINCT c.relkind::text FROM pg_class c
WHERE c.oid = (SELECT t.oid FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
               WHERE n.nspname = :schema AND t.relname = :table)
   OR c.oid IN (SELECT relid FROM pg_partition_tree((SELECT t.oid FROM pg_class t JOIN pg_namespace n
                ON n.oid = t.relnamespace WHERE n.nspname = :schema AND t.relname = :table)))
"""
_NAMES = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
