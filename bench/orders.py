"""Orders of a PostgreSQL database that have changed: what readers of its log are measured with.

All changes are in the log before anybody reads, behind a slot that nobody moves. Each reader gets a copy of it, so that
all read the same log from the same place.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg2

from bench.progress import say
from tests.postgres import Postgres, postgres

PUBLICATION, SCHEMA, TABLE = "bench", "public", "orders"
LAST_ID = -1
"""The key of the row whose insert is the last event in the log."""
_BASE = "bench_base"
_LET_GO_S = 60.0
_LOOK_EVERY_S = 0.1
_SQL = Path(__file__).with_name("orders.sql")


@dataclass(frozen=True, slots=True)
class Orders:
    """A database whose log has `events` changes of rows, of which the last inserts the row of `LAST_ID`."""

    server: Postgres
    events: int

    @property
    def url(self) -> str:
        """What Calve takes."""
        return self.server.url.replace("+psycopg2", "")

    @property
    def operations(self) -> Counter[str]:
        """How many records of each kind the topic is to have, `op` as Debezium names it; "" is a tombstone."""
        changes = self.events - 1
        updates, deletes = changes // 4, changes // 20
        return Counter({"c": self.events - updates - deletes, "u": updates, "d": deletes, "": deletes})

    @contextmanager
    def slot(self) -> Generator[str]:
        """A replication slot from before the first event; it is dropped once its reader has let go of it."""
        name = f"bench_{uuid.uuid4().hex[:8]}"
        self._ask("SELECT pg_copy_logical_replication_slot(%s, %s)", _BASE, name)
        try:
            yield name
        finally:
            self._drop(name)

    def cpu_s(self) -> float:
        """User and system time that the server has used so far, sessions that have ended included."""
        ((pid,),) = self._ask("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int")
        server = psutil.Process(pid)
        while True:
            # A session that ends meanwhile is the server's own time at the next look.
            with suppress(psutil.NoSuchProcess):
                times = [each.cpu_times() for each in (server, *server.children())]
                return sum(t.user + t.system + t.children_user + t.children_system for t in times)

    def _drop(self, slot: str) -> None:
        deadline = time.monotonic() + _LET_GO_S
        while self._ask("SELECT active FROM pg_replication_slots WHERE slot_name = %s", slot) == [(True,)]:
            if time.monotonic() > deadline:
                raise SystemExit(f"slot {slot} is still read from after {_LET_GO_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)
        self._ask("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", slot)

    def _ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(self.server.dsn)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall()


@contextmanager
def orders(events: int) -> Generator[Orders]:
    """A server of its own with these events in its log; all of it is gone at the end."""
    with postgres() as server:
        say(f"changing {events:,} rows")
        server.psql(_SQL)
        with closing(psycopg2.connect(server.dsn)) as connection, connection.cursor() as cursor:
            # A procedure that commits may be called outside of transactions only.
            connection.autocommit = True
            cursor.execute("CALL change(%s)", (events - 1,))
            cursor.execute("INSERT INTO orders VALUES (%s, 0, 'last', 0, 0, false, NULL, now())", (LAST_ID,))
            cursor.execute("CHECKPOINT")
        yield Orders(server, events)
