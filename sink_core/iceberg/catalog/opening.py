"""Opening the catalog and a table's storage, and what their errors mean for the user."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    RESTError,
    SignError,
    UnauthorizedError,
)
from pyiceberg.exceptions import ValidationError as BadMetadata
from pyiceberg.io import FileIO, load_file_io

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.error_text import describe
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import CalveError, ConfigError, RetriableError, TableUnusable, Unreachable

_SQLITE = "sqlite"
_VENDS_CREDENTIALS = "rest"
# Loaded by name, so that nobody pays for the import of another catalog's client.
_OURS = {
    "rest": "calve.sink_core.iceberg.catalog.rest.BoundedRestCatalog",
    "sql": "calve.sink_core.iceberg.catalog.sql.PlainSqlCatalog",
}

_REFUSED = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError, SignError, PermissionError)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Clients of catalogs and object stores that are optional, so that their exceptions can't be named here.
_OPTIONAL_CLIENTS = ("botocore", "thrift", "google", "azure", "aiohttp")

# What Nessie's REST interface answers when it is asked for its configuration.
_IS_NESSIE = "nessie.is-nessie-catalog"
_BY_TAG = "By its tag Calve knows what a table has"
# What Arrow and the clients of AWS, Google and Azure call it, all by errors of input and output or of a client.
_REFUSES = re.compile(
    r"AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_SIGNATURE|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT)"
    r"|HTTP status 40[13]\b|\((?:AccessDenied|UnrecognizedClient|InvalidClientTokenId|InvalidSignature)\w*\)"
    r"|PERMISSION_DENIED|Authorization(?:Failure|PermissionMismatch)"
)

_NO_TAGS_HINT = "take a catalog that keeps a table's snapshots and tags, as Iceberg's specification has them"
_REFUSED_HINT = "check `credential`, `token` (REST), the access keys and what the catalog and its storage grant them"
_FULL_HINT = "free or add space where the table's files lie, or raise its quota; then run again: nothing was lost"
_LOCKED_HINT = (
    "another process holds the SQLite database: run again; for several writers keep the catalog in a server's"
)
_LOCK_NOT_AVAILABLE = "55P03"
_ADDRESS_HINT = "correct `uri` under `catalog` in connections.yaml"
_ANSWER_HINT = "is `uri` under `catalog` the catalog's own address, with nothing in between that answers for it?"
_UNREACHABLE_HINT = "check `uri` (its user and password too) and `warehouse` under `catalog`, and that the service runs"


def open_catalog(settings: CatalogSettings) -> Catalog:
    """The catalog, its references resolved in this process. The folder of a new SQLite catalog is created.

    Raises ConfigError (a variable, setting or library is missing, the log-in is refused, the catalog is one that keeps
    no tags) and Unreachable.
    """
    properties = resolve(settings.properties)
    with unreachable_as_ours(f"opening catalog {settings.name}"):
        _create_sqlite_folder(properties)
        try:
            opened = _load(settings.name, {key: _as_text(value) for key, value in properties.items()})
        except (ValueError, ModuleNotFoundError) as error:
            if isinstance(error, _bad_address()):
                raise
            why = describe(error)
            if "CatalogType" in why:
                kinds = ", ".join(sorted(kind.value for kind in CatalogType))
                why = f"{properties.get('type')!r} is no type of catalog: there are {kinds}"
            message = f"opening catalog {settings.name}: {why}"
            raise ConfigError(message, hint="correct it under `catalog`", code=Code.CATALOG_SETTING) from None
    if opened.properties.get(_IS_NESSIE) == "true":
        raise ConfigError(
            f"opening catalog {settings.name}: it is Nessie's and keeps no tags. {_BY_TAG}",
            hint=_NO_TAGS_HINT,
            code=Code.NO_TAGS,
        )
    return opened


def open_io(catalog: CatalogSettings, table: str, location: str) -> FileIO:
    """The FileIO for `table`, whose files are at `location`.

    A REST catalog is asked for the table, since it may hand out credentials for just that one; otherwise the catalog's
    properties say it all and the catalog is not touched. Called in the process that writes. Raises ConfigError and
    Unreachable.
    """
    if catalog.properties.get("type") == _VENDS_CREDENTIALS:
        with unreachable_as_ours(f"loading table {table}"):
            return open_catalog(catalog).load_table(table).io
    # Nested ones (`auth`) are a REST client's.
    flat = {k: v for k, v in resolve(catalog.properties).items() if not isinstance(v, dict | list)}
    return load_file_io({key: str(value) for key, value in flat.items()}, location)


def without_tags(table: str, tag: str) -> CalveError:
    """The error for a catalog that has accepted a snapshot and left out the tag that came with it."""
    message = f"{table}: the catalog accepted a snapshot and left out its tag {tag}. {_BY_TAG}"
    return TableUnusable(message, hint=_NO_TAGS_HINT, code=Code.NO_TAGS)


def dropped_meanwhile(tables: str) -> RetriableError:
    """The error for tables that somebody has dropped since the run has seen them."""
    return RetriableError(
        f"{tables}: dropped while this run was at work", hint="run again", code=Code.DROPPED_MEANWHILE
    )


def has_one_writer(settings: CatalogSettings) -> bool:
    """Whether who writes waits for everybody else who does: a SQLite database."""
    return str(resolve(settings.properties).get("uri", "")).startswith(_SQLITE)


def _load(name: str, properties: Mapping[str, Any]) -> Catalog:
    if ours := _OURS.get(properties.get("type", "")):
        properties = {**{k: v for k, v in properties.items() if k != "type"}, "py-catalog-impl": ours}
    try:
        return load_catalog(name, **properties)
    except _sql_errors("SQLAlchemyError") as error:
        # Two processes that open a new SQL catalog at the same moment both create its tables.
        if "already exists" not in str(error):
            raise
        return load_catalog(name, **properties)


@contextmanager
def unreachable_as_ours(doing: str) -> Generator[None]:
    """Raise a catalog's or its storage's trouble, met while `doing` something ("loading table t"), as Calve's errors.

    Unreachable where a later try may go through, ConfigError for a refused log-in, a bad address or a missing library,
    TableUnusable for a metadata file that is gone or damaged. CalveErrors, NoSuchTableError and whatever else tells
    about a table or a commit pass through. Messages hold no SQL, and no password of a URI.
    """
    try:
        yield
    except Exception as error:
        ours = _classify(error, doing)
        if ours is None:
            raise
        # As a cause the original would be printed with tracebacks, with its SQL and addresses.
        raise ours from None


def _classify(error: Exception, doing: str) -> CalveError | None:
    if isinstance(error, CalveError | CommitStateUnknownException):
        return None
    message = f"{doing}: {describe(error)}"
    if isinstance(error, NotInstalledError):
        return ConfigError(
            message, hint="install what it names beside Calve, on Spark's executors too", code=Code.NOT_INSTALLED
        )
    from_client = isinstance(error, OSError) or _of_optional_client(error)
    if isinstance(error, _REFUSED) or (from_client and _REFUSES.search(str(error))):
        return ConfigError(message, hint=_REFUSED_HINT, code=Code.CATALOG_REFUSES)
    if isinstance(error, _bad_address()):
        return ConfigError(message, hint=_ADDRESS_HINT, code=Code.CATALOG_SETTING)
    if isinstance(error, BadRequestError):
        return ConfigError(
            message,
            hint="check `uri`, `warehouse` and `prefix` under `catalog` in connections.yaml",
            code=Code.CATALOG_SETTING,
        )
    if isinstance(error, FileNotFoundError):
        return TableUnusable(
            message, hint="restore the file, or have the catalog point to metadata that exists", code=Code.METADATA_GONE
        )
    if isinstance(error, (BadMetadata, UnicodeDecodeError)):
        return TableUnusable(
            message,
            hint="restore the file, or have the catalog point to metadata that can be read",
            code=Code.METADATA_DAMAGED,
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        return Unreachable(message, hint=_FULL_HINT, code=Code.STORAGE_FULL)
    if isinstance(error, ValidationError):
        return Unreachable(
            f"{doing}: the answer is no catalog's: {describe(error)}", hint=_ANSWER_HINT, code=Code.NO_CATALOG
        )
    if isinstance(error, _sql_errors("OperationalError")) and "database is locked" in str(error):
        return Unreachable(message, hint=_LOCKED_HINT, code=Code.DATABASE_LOCKED)
    if from_client or isinstance(error, (RESTError, *_sql_errors("SQLAlchemyError"))):
        return Unreachable(message, hint=_UNREACHABLE_HINT, code=Code.CATALOG_AWAY)
    return None


def row_is_locked(error: Exception) -> bool:
    """Whether a PostgreSQL gave up waiting for a lock, by `lock_timeout`."""
    driver = getattr(error, "orig", None)
    return _LOCK_NOT_AVAILABLE in (getattr(driver, "pgcode", None), getattr(driver, "sqlstate", None))


def _bad_address() -> tuple[type[Exception], ...]:
    ours = _errors("requests.exceptions", "InvalidURL", "InvalidSchema", "MissingSchema")
    return (*ours, *_sql_errors("ArgumentError", "NoSuchModuleError"))


def _sql_errors(*names: str) -> tuple[type[Exception], ...]:
    return _errors("sqlalchemy.exc", *names)


def _errors(module: str, *names: str) -> tuple[type[Exception], ...]:
    """Those of a client that only some catalogs have; none while nothing has imported it, as in tasks. It then can't
    have raised any.
    """
    loaded = sys.modules.get(module)
    return tuple(getattr(loaded, name) for name in names) if loaded else ()


def _of_optional_client(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in _OPTIONAL_CLIENTS


def _as_text(value: Any) -> Any:
    # pyiceberg reads its flags and numbers from texts; `auth` and the like are mappings.
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, dict | list) else str(value)


def _create_sqlite_folder(properties: Mapping[str, Any]) -> None:
    uri = str(properties.get("uri", ""))
    if not uri.startswith(_SQLITE):
        return
    from sqlalchemy.engine import make_url

    database = make_url(uri).database
    if not database or database == ":memory:" or database.startswith("file:"):
        return
    try:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder of the SQLite catalog {database} can't be created: {error.strerror}",
            hint=_ADDRESS_HINT,
            code=Code.CATALOG_SETTING,
        ) from None
