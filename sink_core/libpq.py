"""Connections to PostgreSQL by libpq: what ends one whose server has gone, or says nothing any more.

Of a host that has gone the kernel tells, with `LIBPQ`. A server that stands still, and a proxy that has lost its
server, go on acknowledging what they are sent: libpq then waits for ever, and hears no signal meanwhile. How long a
statement may take nobody knows. So the server is asked by another connection whether it lives: a busy one answers. One
that does not, twice, is silent, and its connections end as if it had closed them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import closing, suppress
from functools import partial
from threading import Lock, Thread
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Engine, event
from sqlalchemy.dialects import plugins
from sqlalchemy.engine import CreateEnginePlugin

from calve.sink_core.timing import apart

LIBPQ = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Parameters by which a client of PostgreSQL ends a connection whose other end is gone within a minute. Seconds, and
milliseconds for the last. By itself it waits a quarter of an hour for what it has sent, and two hours for an answer.
"""

POSTGRES, DRIVERS = "postgresql", ("psycopg2", "psycopg")
"""SQLAlchemy's names of PostgreSQL, and of the drivers by libpq."""

PLUGIN = "calve-libpq"
"""By which an engine of SQLAlchemy is told of `LibpqPlugin`."""

EVERY_S = 30.0
"""Between two questions whether a server lives."""

ANSWER_S = 10.0
"""That it has for an answer, which may be a refusal."""

TRIES = 2
"""Questions without an answer after which it is silent."""


class Connection(Protocol):
    """What psycopg2's and psycopg's have in common."""

    @property
    def closed(self) -> int | bool: ...
    def fileno(self) -> int: ...
    def cursor(self) -> Any: ...
    def close(self) -> None: ...


Connect = Callable[[], Connection]
"""Makes another connection to the same server. It may take longer than `ANSWER_S`."""


class Watch:
    """The open connections of a process, and the questions to which their servers did not answer in a row."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connects: WeakKeyDictionary[Connection, Connect] = WeakKeyDictionary()
        self._unanswered: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._thread: Thread | None = None

    def add(self, connection: Connection, connect: Connect) -> None:
        """Have a connection ended once its server is silent."""
        with self._lock:
            self._connects[connection] = connect
            # That of a parent process is not alive in a fork.
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._ask_on, daemon=True, name="calve-libpq")
                self._thread.start()

    def _ask_on(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self._ask()

    def _ask(self) -> None:
        with self._lock:
            connects = {each: connect for each, connect in self._connects.items() if not each.closed}
        questions = {each: _Question(connect) for each, connect in connects.items()}
        wait([question.answer for question in questions.values()], timeout=ANSWER_S)
        for connection, question in questions.items():
            if question.answer.done():
                self._unanswered.pop(connection, None)
                continue
            question.give_up()
            self._unanswered[connection] = self._unanswered.get(connection, 0) + 1
            if self._unanswered[connection] >= TRIES:
                _shut(connection)


class _Question:
    """Whether a server lives: it does if `answer` is there, be it an error."""

    def __init__(self, connect: Connect) -> None:
        self._connection: Connection | None = None
        self._connect = connect
        self.answer = apart(self._ask, "calve-libpq-question")

    def give_up(self) -> None:
        if self._connection is not None:
            _shut(self._connection)

    def _ask(self) -> None:
        with closing(self._connect()) as self._connection, self._connection.cursor() as cursor:
            cursor.execute("SELECT 1")


WATCH = Watch()


def watched(connect: Callable[..., Any], *places: Any, **names: Any) -> Any:
    """The connection that a driver's `connect` makes, which ends once its server is silent."""
    connection = connect(*places, **names)
    WATCH.add(connection, partial(connect, *places, **{**names, "connect_timeout": str(round(2 * ANSWER_S))}))
    return connection


class LibpqPlugin(CreateEnginePlugin):
    """What an engine of SQLAlchemy has from its first connection on, if it is by libpq: `LIBPQ`, where its address says
    nothing else, and a `Watch`.
    """

    def update_url(self, url: URL) -> URL:
        url = url.difference_update_query(["plugin"])
        if url.get_backend_name() != POSTGRES or url.get_driver_name() not in DRIVERS:
            return url
        return url.update_query_dict({**LIBPQ, **url.query})

    def engine_created(self, engine: Engine) -> None:
        if engine.dialect.driver in DRIVERS:
            # Before SQLAlchemy asks by it what server that is.
            event.listen(engine, "do_connect", _connect)


def _connect(dialect: Any, _record: object, places: Sequence[Any], names: Mapping[str, Any]) -> Any:
    return watched(dialect.connect, *places, **names)


plugins.register(PLUGIN, __name__, LibpqPlugin.__name__)


def _shut(connection: Connection) -> None:
    """End a connection that another thread waits for: that reads its end."""
    # It may have been closed meanwhile.
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
