"""A table's `select` and `where` as one query over `record`, and what such a query must not do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import duckdb

from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import first_line
from calve.sink_core.errors import ConfigError

ROW = "calve:row"
"""The record's number, by a name that no field of a record should have."""
_ONE_ROW = "each record gives one row, or none by `where`"
_REFUSED = {"WINDOW": "a window function", "SUBQUERY": "a subquery"}
_OF_MANY = {"unnest", "generate_subscripts", "json_each", "json_tree"}


def opened() -> duckdb.DuckDBPyConnection:
    """DuckDB in memory: one thread, bounded memory, no files, network or extensions; SQL can't change that."""
    connection = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": "256MB",
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
    )
    connection.execute("SET TimeZone = 'UTC'; SET lock_configuration = true")
    return connection


def query(connection: duckdb.DuckDBPyConnection, select: str, where: str | None, *, table: str) -> str:
    """The query. Raises ConfigError for what is no SQL, and for what could make several rows of one or vice versa."""
    text = f'SELECT "{ROW}", {select}\nFROM record' + (f"\nWHERE ({where}\n)" if where else "")
    [found] = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    parsed = json.loads(found[0])
    if parsed["error"]:
        raise _wrong(table, str(parsed["error_message"]), "correct the SQL")
    reason = _shape(parsed["statements"]) or next(_parts(parsed["statements"]), None)
    if reason:
        raise _wrong(table, f"{reason}; {_ONE_ROW}", "use expressions of the record's own columns")
    return text


def bind(connection: duckdb.DuckDBPyConnection, text: str, *, table: str) -> None:
    """Raises ConfigError if the query doesn't fit the columns of what is registered as `record`."""
    try:
        connection.sql(text)
    except duckdb.Error as error:
        raise _wrong(
            table, first_line(error), "correct the SQL, or name the value's columns under transform.columns"
        ) from None


def _wrong(table: str, message: str, hint: str) -> ConfigError:
    return ConfigError(f"{table}: transform: {message}", hint=hint, code=Code.UNUSABLE_SQL)


def _shape(statements: list[dict[str, Any]]) -> str | None:
    """What a statement is that isn't one plain SELECT from `record`."""
    if len(statements) != 1:
        return "several statements"
    node = statements[0]["node"]
    source = node.get("from_table") or {}
    plain = node["type"] == "SELECT_NODE" and source.get("type") == "BASE_TABLE" and not source.get("sample")
    extras = ("modifiers", "group_expressions", "having", "qualify", "sample")
    if not plain or any(node.get(extra) for extra in extras) or node["cte_map"]["map"]:
        return "more than expressions and a condition"
    return None


def _parts(node: object) -> Iterator[str]:
    """What must not be, anywhere in a parsed statement."""
    if isinstance(node, list):
        for part in cast(list[object], node):
            yield from _parts(part)
    elif isinstance(node, dict):
        known = cast(dict[str, object], node)
        if known.get("class") in _REFUSED:
            yield _REFUSED[str(known["class"])]
        if known.get("class") == "FUNCTION" and known.get("function_name") in _OF_MANY:
            yield f"{known['function_name']}()"
        for part in known.values():
            yield from _parts(part)
