"""`Database`: the database whose tables are asked, by SQLAlchemy, and what its errors mean."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    NoSuchTableError,
    OperationalError,
    SAWarning,
    SQLAlchemyError,
)

from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import describe
from calve.sink_core.config.references import without_user_info
from calve.sink_core.config.urls import encoded
from calve.sink_core.errors import ConfigError, RetriableError, Unreachable
from calve.sink_core.libpq import PLUGIN, POSTGRES
from calve.sink_core.source.postgres.values import SESSION, TYPES, Types

AT_ONCE = 1_000
"""Rows that are fetched at a time, and sent in one `Rows`."""

_ZONE = "timezone"
# The zone is the user's own where the clock is asked.
_SETTINGS = {name: value for name, value in SESSION.items() if name != _ZONE}
_NOT_GRANTED = "42501"


class Database:
    """One database, connected when it is asked first."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError for an address that is none, and for a driver that is not installed."""
        self._shown = without_user_info(encoded(url))
        self._engine = _engine(encoded(url), self._shown)

    @property
    def dialect(self) -> str:
        """What SQLAlchemy calls the database: `postgresql`, `sqlite`, …"""
        return self._engine.dialect.name

    @property
    def is_postgres(self) -> bool:
        return self.dialect == POSTGRES

    @cached_property
    def fingerprint(self) -> str:
        """PostgreSQL's system identifier and the database's name; of others the address without user and password."""
        if not self.is_postgres:
            return self._shown
        with self.asked() as connection:
            system, name = connection.execute(sa.text(_IDENTITY)).one()
        return f"{POSTGRES} {system}/{name}"

    @contextmanager
    def asked(self) -> Generator[sa.Connection]:
        """A connection each statement of which is a transaction of its own. Raises what `reported` raises."""
        with self.reported(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    @contextmanager
    def streamed(self) -> Generator[sa.Connection]:
        """A connection whose rows stay in the database until they are fetched, `AT_ONCE` at a time."""
        with self.reported(), self._engine.connect() as connection:
            if self.is_postgres:
                connection.exec_driver_sql(f"SET LOCAL {_ZONE} = '{SESSION[_ZONE]}'")
            yield connection.execution_options(stream_results=True, yield_per=AT_ONCE)

    @cached_property
    def types(self) -> Types:
        """How values of PostgreSQL become JSON."""
        with self.asked() as connection:
            found = connection.execute(sa.text(TYPES)).all()
        return Types.of(((oid, element, base) for oid, element, base in found), checked=self.unchecked)

    @cached_property
    def unchecked(self) -> bool:
        """Whether a database of PostgreSQL has never looked at its bytes."""
        with self.asked() as connection:
            return connection.exec_driver_sql("SHOW server_encoding").scalar_one() == "SQL_ASCII"

    def table(self, name: str) -> sa.Table:
        """The table or view `schema.table` as it is now. Raises ConfigError if there is none."""
        schema, _, table = name.partition(".")
        with self.asked() as connection, warnings.catch_warnings():
            # Of a type that SQLAlchemy doesn't know the driver's text is read.
            warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)
            try:
                found = sa.Table(table, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)
            except NoSuchTableError:
                raise ConfigError(
                    f"source.tables: {name} is not in the database {self._shown}",
                    hint="correct the name, or grant the user what it needs to see the table",
                    code=Code.NO_TABLE_TO_ASK,
                ) from None
        for column in found.c:
            while isinstance(column.type, DOMAIN):
                column.type = column.type.data_type
        return found

    @contextmanager
    def reported(self) -> Generator[None]:
        """Raise an error of the database as Calve's: Unreachable, or ConfigError for what it refuses.

        Messages hold no SQL, and no values.
        """
        try:
            yield
        except SQLAlchemyError as error:
            where = f"database {self._shown}: {describe(error)}"
            gone = isinstance(error, DBAPIError) and error.connection_invalidated
            if gone or isinstance(error, OperationalError | InterfaceError):
                hint = "is it up, and are address, user and password right?"
                raise Unreachable(where, hint=hint, code=Code.NO_DATABASE) from None
            if isinstance(error, InternalError):
                raise RetriableError(
                    where, hint="see the server's log if it stays", code=Code.DATABASE_NOT_NOW
                ) from None
            if isinstance(error, DBAPIError) and getattr(error.orig, "pgcode", None) == _NOT_GRANTED:
                hint = "GRANT SELECT on what the message names; where it is row-level security, ALTER ROLE … BYPASSRLS"
                raise ConfigError(where, hint=hint, code=Code.DATABASE_RIGHTS) from None
            hint = "docs/sources.md says what each way to read a table needs"
            raise ConfigError(where, hint=hint, code=Code.DATABASE_REFUSED) from None

    def close(self) -> None:
        self._engine.dispose()


_IDENTITY = "SELECT system_identifier, current_database() FROM pg_control_system()"


def _engine(url: str, shown: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        postgres = parsed.get_backend_name() == POSTGRES
        # Which driver stands behind the name alone differs from one release of SQLAlchemy to the next.
        if parsed.drivername == POSTGRES:
            parsed = parsed.set(drivername=f"{POSTGRES}+psycopg2")
        given = {"fallback_application_name": "calve"} if postgres else {}
        engine = sa.create_engine(
            parsed, connect_args=given, hide_parameters=True, pool_pre_ping=True, plugins=[PLUGIN]
        )
    except ImportError as error:
        extra = "pip install 'calve[postgres]'" if error.name == "psycopg2" else f"install {error.name}"
        raise ConfigError(
            f"database {shown}: its driver {error.name} is not installed",
            hint=f"{extra}, wherever Calve runs",
            code=Code.NO_DRIVER,
        ) from error
    except (ArgumentError, NoSuchModuleError, ValueError):
        message = f"database.url: {shown} is no address that SQLAlchemy takes"
        hint = "write postgresql://user:${ENV:PASSWORD}@host:5432/shop, or another database's"
        raise ConfigError(message, hint=hint, code=Code.NO_DATABASE) from None
    if prepare := _PREPARE.get(engine.dialect.name):
        # Before SQLAlchemy asks by it what server that is.
        event.listen(engine, "connect", lambda connection, _record: prepare(connection), insert=True)
    return engine


def _prepare_postgres(connection: Any) -> None:
    """Have a session write values as they are read here, whatever its role or database sets."""
    cursor = connection.cursor()
    for name, value in _SETTINGS.items():
        cursor.execute(f"SET {name} = {value}")
    cursor.close()
    connection.commit()


def _prepare_sqlite(connection: Any) -> None:
    """SQLite keeps any bytes as a text: what is no UTF-8 is a matter of its row."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")


_PREPARE = {POSTGRES: _prepare_postgres, "sqlite": _prepare_sqlite}
