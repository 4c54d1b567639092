"""Connections to PostgreSQL by psycopg2, and what its errors mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.exc import ArgumentError

from calve.sink_core.codes import Code
from calve.sink_core.config.references import redact_text, without_user_info
from calve.sink_core.config.urls import encoded
from calve.sink_core.errors import ConfigError, RetriableError, Unreachable
from calve.sink_core.libpq import LIBPQ, POSTGRES, watched
from calve.sink_core.source.postgres.values import SESSION
from calve.sink_core.timing import Deadline

if TYPE_CHECKING:
    from psycopg2.extensions import connection

FREE_S = 15.0
"""Until another session has let go of a slot."""

POLL_S = 0.2

_SCHEMES = (POSTGRES, "postgres")

T = TypeVar("T")


def until_free(ask: Callable[[], T]) -> T:
    """What `ask` gives. A slot refuses at once while another session has it, also that of a client which is gone and
    still decodes.
    """
    deadline = Deadline.after(FREE_S)
    while True:
        try:
            return ask()
        except RetriableError as error:
            if error.code != Code.SLOT_IN_USE or deadline.passed:
                raise
        time.sleep(POLL_S)


def connected(url: str, options: str = "") -> connection:
    """A connection to `postgresql://…`, whose texts are those of `values.py`. Raises ConfigError without psycopg2."""
    names = keywords(url)
    session = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    ours = {"application_name": "calve", "client_encoding": "UTF8"}
    options = f"{names.get('options', '')} {session} {options}".strip()
    return watched(_driver().connect, **{**names, **LIBPQ, **ours, "options": options})


def keywords(url: str) -> dict[str, Any]:
    """What libpq is given of `postgresql://…`, of which it would quote what it can't take. Several hosts stand between
    commas, as libpq has it. Raises ConfigError for an address that is none.
    """
    scheme, _, rest = encoded(url).partition("://")
    place = re.split(r"[/?]", rest, maxsplit=1)[0]
    info, at, hosts = place.rpartition("@")
    several = hosts.split(",") if "," in hosts else []
    try:
        if scheme.partition("+")[0] not in _SCHEMES:
            raise ArgumentError(scheme)
        parsed = make_url(f"{POSTGRES}://{info}{at}{'' if several else hosts}{rest[len(place) :]}")
    except (ArgumentError, ValueError):
        raise ConfigError(
            f"database.url: {without_user_info(encoded(url))} is no address of PostgreSQL",
            hint="write postgresql://user:${ENV:PASSWORD}@host:5432/shop",
            code=Code.NO_DATABASE,
        ) from None
    if several:
        parsed = parsed.update_query_dict({"host": several})
    return PGDialect_psycopg2().create_connect_args(parsed)[1]


@contextmanager
def reported(url: str) -> Generator[None]:
    """Raise what an error of PostgreSQL means: Unreachable, RetriableError, or ConfigError for what it refuses.

    Without the driver's own, whose words nobody has looked through for secrets.
    """
    driver = _driver()
    from psycopg2 import errors

    try:
        yield
    except driver.Error as error:
        said = (error.diag.message_primary or str(error)).strip()
        where = f"database {without_user_info(encoded(url))}: {redact_text(said)}"
        if isinstance(error, errors.ObjectInUse):
            hint = "end the session that it names, if it is none of Calve's; run again"
            raise RetriableError(where, hint=hint, code=Code.SLOT_IN_USE) from None
        if isinstance(error, errors.QueryCanceled):
            hint = "a slot waits for all transactions that write at the moment: end those that are open, run again"
            raise RetriableError(where, hint=hint, code=Code.SLOT_IN_USE) from None
        if isinstance(error, driver.OperationalError | driver.InterfaceError):
            raise Unreachable(where, hint="is it up, and are address and user right?", code=Code.NO_DATABASE) from None
        if isinstance(error, driver.InternalError):
            raise RetriableError(where, hint="see the server's log if it stays", code=Code.DATABASE_NOT_NOW) from None
        if isinstance(error, errors.InsufficientPrivilege):
            hint = "GRANT SELECT ON the table TO the user; for a log also ALTER ROLE the user REPLICATION"
            raise ConfigError(where, hint=hint, code=Code.DATABASE_RIGHTS) from None
        if isinstance(error, errors.UndefinedObject):
            raise ConfigError(where, hint="make what it names", code=Code.DATABASE_LACKS) from None
        raise ConfigError(
            where, hint="docs/sources.md says what PostgreSQL needs", code=Code.DATABASE_REFUSED
        ) from None


def _driver() -> ModuleType:
    """psycopg2, which comes with an extra of its own. Raises ConfigError without it."""
    try:
        import psycopg2
    except ImportError as error:
        raise ConfigError(
            "psycopg2 is not installed, which reads PostgreSQL",
            hint="pip install 'calve[postgres]'",
            code=Code.NO_DRIVER,
        ) from error
    return psycopg2
