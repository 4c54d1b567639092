"""Functions and operators that somebody planted in a schema of the search path are not taken for PostgreSQL's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.source.postgres.server import Server
from tests.postgres import USER, Postgres, postgres
from tests.queried import Asking, given

OTHER = "mallory"

# By a row type, a type of one's own or `varchar` each fits better than what PostgreSQL has, which is for any type.
FUNCTIONS = {
    "to_jsonb(pg_catalog.pg_publication_tables)": "pg_catalog.to_jsonb($1)",
    "to_jsonb(pg_catalog.pg_replication_slots)": "pg_catalog.to_jsonb($1)",
    "unnest(pg_catalog.int2vector)": "$1[0]",
    "concat(integer)": "pg_catalog.concat($1)",
    "concat(varchar)": "pg_catalog.concat($1)",
    "num_nulls(integer)": "pg_catalog.num_nulls($1)",
    "num_nulls(varchar)": "pg_catalog.num_nulls($1)",
}
RESULTS = {"to_jsonb": "jsonb", "unnest": "smallint", "concat": "text", "num_nulls": "integer"}
OPERATORS = ("=", ">", ">=", "<", "<=")


def planted() -> Generator[str]:
    """Statements of somebody who may make functions in `public`: each counts its calls, and does its work. A sequence
    counts those of transactions that end without a commit, too.
    """
    for number, (signature, work) in enumerate(FUNCTIONS.items()):
        result = RESULTS[signature.partition("(")[0]]
        yield from _counting(f"called_{number}", signature, result, work)
        yield f"COMMENT ON SEQUENCE public.called_{number} IS '{signature}'"
    for number, operator in enumerate(OPERATORS):
        work = f"$1::text OPERATOR(pg_catalog.{operator}) $2::text"
        yield from _counting(f"compared_{number}", f"compared_{number}(varchar, varchar)", "boolean", work)
        yield f"COMMENT ON SEQUENCE public.compared_{number} IS '{operator}'"
        yield (
            f"CREATE OPERATOR public.{operator} "
            f"(LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = public.compared_{number})"
        )


def _counting(counter: str, signature: str, result: str, work: str) -> Generator[str]:
    yield f"CREATE SEQUENCE public.{counter}"
    yield f"GRANT ALL ON SEQUENCE public.{counter} TO PUBLIC"
    yield (
        f"CREATE FUNCTION public.{signature} RETURNS {result} LANGUAGE plpgsql VOLATILE AS "
        f"$$ BEGIN PERFORM pg_catalog.nextval('public.{counter}'); RETURN {work}; END $$"
    )


CALLED = """
SELECT pg_catalog.obj_description(format('public.%I', sequencename)::regclass) FROM pg_catalog.pg_sequences
WHERE schemaname = 'public' AND last_value IS NOT NULL
"""


def called(server: Postgres) -> set[str]:
    """Those that were called since the last question."""
    with closing(psycopg2.connect(server.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SET search_path = pg_catalog; " + CALLED)
        found = {what for (what,) in cursor.fetchall()}
        for number in range(max(len(FUNCTIONS), len(OPERATORS))):
            cursor.execute(
                f"ALTER SEQUENCE IF EXISTS public.called_{number} RESTART;"
                f"ALTER SEQUENCE IF EXISTS public.compared_{number} RESTART"
            )
        connection.commit()
        return found


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        given(
            running.url,
            f"CREATE ROLE {OTHER} LOGIN",
            "GRANT CREATE ON SCHEMA public TO PUBLIC",
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, at timestamptz NOT NULL)",
            "INSERT INTO shop.orders VALUES (1, 'a', '2020-01-01Z'), (2, 'b', '2020-01-01Z'), (3, 'c', '2020-01-02Z')",
            "CREATE PUBLICATION calve FOR TABLE shop.orders",
        )
        given(running.url.replace(f"//{USER}@", f"//{OTHER}@"), *planted())
        yield running


def test_somebody_who_asks_as_it_comes_calls_them(server: Postgres) -> None:
    with closing(psycopg2.connect(server.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(p) FROM pg_publication_tables p")
        cursor.execute("SELECT concat(id), concat(name) FROM shop.orders WHERE name > 'a'")
    assert called(server) == {
        "to_jsonb(pg_catalog.pg_publication_tables)",
        "concat(integer)",
        "concat(varchar)",
        ">",
    }


def test_the_source_of_a_log_calls_none(server: Postgres) -> None:
    with closing(Server(server.url)) as asked:
        [table] = asked.tables("calve")
        assert (table.name, [*table.key]) == ("shop.orders", ["id"])
        asked.create_slot("planted")
        assert asked.slot("planted")
        with asked.rows(table, "orders", "planted", asked.next_xid()) as found:
            assert len([*found.cells]) == 3
    assert called(server) == set()


@pytest.mark.parametrize(
    "way",
    [
        {"by": "transaction"},
        {"by": "bulk"},
        {"by": "timestamp", "column": "at", "key": ["name"], "settle": "1ms"},
        {"by": "incrementing", "column": "id", "settle": "1ms"},
    ],
    ids=lambda way: way["by"],
)
def test_tables_by_query_call_none(server: Postgres, way: dict[str, object]) -> None:
    with Asking(server.url, {"table": "shop.orders", **way}) as asking:
        # A second plan goes on from the place of the first.
        found = asking.rows_at_last() + asking.rows()
        assert sorted(row["name"] for row in found if row["id"] < 4)[:3] == ["a", "b", "c"]
        given(server.url, "INSERT INTO shop.orders VALUES (4, 'd', '2020-01-02Z') ON CONFLICT DO NOTHING")
        asking.rows()
    assert called(server) == set()


def test_a_sql_catalog_calls_none(server: Postgres, tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": server.url, "warehouse": f"file://{tmp_path}"}
    for _ in range(2):
        # The second finds the tables that the first made.
        catalog = open_catalog(CatalogSettings("lake", properties, {}))
        catalog.create_namespace_if_not_exists("db")
        assert not catalog.table_exists("db.none")
        assert catalog.list_tables("db") == []
    assert called(server) == set()
