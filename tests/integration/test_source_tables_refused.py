"""What of PostgreSQL's tables can't be read by query stands alone: it is named, and all others go on."""

from __future__ import annotations

import json
import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE, EXIT_STOPPED
from tests.codes import names, raises, says
from tests.launch import calve
from tests.postgres import Postgres, postgres
from tests.queried import Asking, Shop, given, until

T = {"table": "public.t"}
GOOD = {"table": "public.good"}
SECRET = "hush"


@pytest.fixture(scope="module")
def module_server() -> Generator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture
def server(module_server: Postgres) -> Postgres:
    """With tables `t` and `good`, of three rows each, and a user joe who may read both."""
    given(
        module_server.url,
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "DROP ROLE IF EXISTS joe",
        "CREATE ROLE joe LOGIN",
        "GRANT USAGE ON SCHEMA public TO joe",
        "CREATE TABLE t (id int PRIMARY KEY, note text, at timestamptz)",
        "CREATE TABLE good (id int PRIMARY KEY)",
        "INSERT INTO t SELECT g, 'note', now() - interval '1 h' FROM generate_series(1, 3) g",
        "INSERT INTO good SELECT g FROM generate_series(1, 3) g",
        "GRANT SELECT ON t, good TO joe",
    )
    return module_server


@pytest.fixture
def joe(server: Postgres) -> str:
    return server.url.replace("//calve@", "//joe@")


@pytest.fixture
def shop(broker: Broker, joe: str, tmp_path: Path) -> Shop:
    return Shop.of(broker, joe, tmp_path)


UNSEEN = [
    ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", 'ALTER ROLE "joe" BYPASSRLS'),
    ("REVOKE SELECT ON t FROM joe", 'GRANT SELECT ON "public"."t" TO "joe"'),
    ("REVOKE USAGE ON SCHEMA public FROM joe", 'GRANT USAGE ON SCHEMA "public" TO "joe"'),
    (
        "REVOKE SELECT ON t FROM joe; GRANT SELECT (id, at) ON t TO joe",
        'GRANT SELECT ("note") ON "public"."t" TO "joe"',
    ),
]


@pytest.mark.parametrize(("statement", "mends"), UNSEEN)
@pytest.mark.parametrize(
    "way",
    [
        {},
        {"by": "bulk"},
        {"by": "timestamp", "column": "at", "settle": "1s"},
        {"by": "incrementing", "column": "id", "settle": "1ms"},
    ],
    ids=["transaction", "bulk", "timestamp", "incrementing"],
)
def test_a_table_that_the_user_does_not_see_is_refused_with_what_mends_it(
    way: dict[str, Any], statement: str, mends: str, server: Postgres, joe: str
) -> None:
    given(server.url, statement)
    with Asking(joe, {**T, **way}) as asking, raises(Code.DATABASE_RIGHTS, "public", "joe", mends) as raised:
        asking.look()
    with Asking(joe, {**T, **way}) as asking, raises(Code.DATABASE_RIGHTS, mends):
        asking.rows()
    given(server.url, raised.value.hint)
    with Asking(joe, {**T, "by": "bulk"}) as asking:
        assert len(asking.rows()) == 3


def test_row_level_security_behind_a_view_is_refused(server: Postgres, joe: str) -> None:
    given(
        server.url,
        "CREATE VIEW v WITH (security_invoker) AS SELECT * FROM t",
        "GRANT SELECT ON v TO joe",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    )
    with Asking(joe, {"table": "public.v", "by": "bulk"}) as asking, raises(Code.DATABASE_RIGHTS):
        asking.rows()


def test_a_table_that_is_refused_keeps_no_other_from_going_on(shop: Shop, server: Postgres) -> None:
    given(server.url, "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    file = shop.file(T, GOOD)
    checked = calve("check", file)
    assert checked.returncode == EXIT_DONE, checked.stdout
    says(checked.stdout, Code.DATABASE_RIGHTS, "public.t", 'ALTER ROLE "joe" BYPASSRLS')
    done = calve("run", file, "--json")
    assert done.returncode == EXIT_DONE, done.stderr
    assert [value["id"] for _, value in shop.records("public.good")] == [1, 2, 3]
    [blocker] = json.loads(done.stdout)["blockers"]
    assert blocker["where"] == "public.t"
    [blocker] = json.loads(calve("status", file, "--json").stdout)["blockers"]
    assert (blocker["where"], blocker["hint"]) == ("public.t", 'ALTER ROLE "joe" BYPASSRLS')
    given(server.url, blocker["hint"])
    assert calve("run", file).returncode == EXIT_DONE
    assert len(shop.records("public.t")) == 3
    assert json.loads(calve("status", file, "--json").stdout)["blockers"] == []


def test_a_row_that_the_database_can_not_read_holds_back_its_table_alone(shop: Shop, server: Postgres) -> None:
    """Of a transaction that is whole nothing is there, of others what comes before."""
    given(
        server.url,
        "CREATE VIEW bad AS SELECT g AS id, 10 / (2500 - g) AS n FROM generate_series(1, 3000) g",
        "GRANT SELECT ON bad TO joe",
    )
    file = shop.file({"table": "public.bad", "by": "bulk"}, GOOD, T)
    done = calve("run", file, "--json")
    assert done.returncode == EXIT_DONE, done.stderr
    assert shop.records("public.bad") == []
    assert (len(shop.records("public.good")), len(shop.records("public.t"))) == (3, 3)
    [blocker] = json.loads(done.stdout)["blockers"]
    assert blocker["where"] == "public.bad"
    names(blocker["why"], "division by zero", f"[{Code.DATABASE_REFUSED}]")
    ended = json.loads(calve("status", file, "--json").stdout)["last_batch"]["ended"]
    names(ended, "public.bad")
    proof = calve("verify", file, "--deep")
    assert proof.returncode == EXIT_DONE, proof.stdout


def test_rows_that_no_run_will_read_are_counted(server: Postgres) -> None:
    given(
        server.url, "INSERT INTO t VALUES (4, 'x', NULL), (5, 'x', 'infinity'), (6, 'x', '-infinity'), (7, 'x', NULL)"
    )
    given(server.url, "CREATE VIEW w AS SELECT nullif(id, 7) AS id, note, at FROM t")
    by_time = {"by": "timestamp", "column": "at", "settle": "1s"}
    by_number = {"by": "incrementing", "column": "id", "settle": "1ms"}
    with Asking(server.url, {**T, **by_time}) as asking:
        [blocker] = asking.held()
        assert blocker.where == "public.t"
        names(blocker.why, 3, "at")
        assert [row["id"] for row in asking.rows()] == [6, 1, 2, 3]
    with Asking(server.url, {**T, **by_number}) as asking:
        assert not asking.held()
    with Asking(server.url, {"table": "public.w", **by_number}) as asking:
        [blocker] = asking.held()
        names(blocker.why, 1, "id")
    given(server.url, "UPDATE t SET at = now() - interval '1 min' WHERE id = 7")
    with Asking(server.url, {"table": "public.w", "key": ["id"], **by_time}) as asking:
        [blocker] = asking.held()
        # Two without a time, one without a key.
        names(blocker.why, 3)
        assert [row["id"] for row in asking.rows()] == [6, 1, 2, 3]


def test_a_run_that_leaves_rows_says_so_wherever_people_look(shop: Shop, server: Postgres) -> None:
    given(server.url, "INSERT INTO t VALUES (4, 'x', NULL), (5, 'x', 'infinity')")
    file = shop.file({**T, "by": "timestamp", "column": "at", "settle": "1s"}, GOOD, exactly_once="requested")
    done = json.loads(calve("run", file, "--json").stdout)
    assert (len(shop.records("public.t")), len(shop.records("public.good"))) == (3, 3)
    assert ([each["where"] for each in done["blockers"]], done["ended"] != "caught up") == (["public.t"], True)
    assert [b["where"] for b in json.loads(calve("status", file, "--json").stdout)["blockers"]] == ["public.t"]
    names(calve("check", file).stdout, "public.t", 2, "at")


def test_a_key_has_the_order_of_the_index_that_the_log_goes_by(server: Postgres) -> None:
    given(
        server.url,
        "CREATE TABLE k (a int NOT NULL, b int NOT NULL, c int NOT NULL, PRIMARY KEY (b, a))",
        "INSERT INTO k VALUES (1, 2, 3)",
        "CREATE UNIQUE INDEX other ON k (c, b)",
    )
    for key in ('{"b":2,"a":1}', '{"c":3,"b":2}'):
        with Asking(server.url, {"table": "public.k"}) as asking:
            assert [(record.key or b"").decode() for record in asking.records()] == [key]
        given(server.url, "ALTER TABLE k REPLICA IDENTITY USING INDEX other")


def test_a_domain_may_tell_new_rows(server: Postgres) -> None:
    given(
        server.url,
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE DOMAIN number AS bigint",
        "CREATE TABLE d (id number PRIMARY KEY, at moment NOT NULL)",
        "INSERT INTO d VALUES (1, '2024-01-01'), (2, '2024-01-01')",
    )
    with Asking(server.url, {"table": "public.d", "by": "timestamp", "column": "at", "settle": "1s"}) as asking:
        assert [[row["id"] for row in asking.rows(most=1)] for _ in range(3)] == [[1], [2], []]
    with Asking(server.url, {"table": "public.d", "by": "incrementing", "column": "id", "settle": "1ms"}) as asking:
        asking.rows()
        assert [row["id"] for row in asking.rows_at_last()] == [1, 2]


def test_a_text_that_is_none_is_a_bad_row_that_names_table_column_and_key(server: Postgres) -> None:
    """A database that has never looked at its bytes."""
    given(
        server.url,
        "DROP DATABASE IF EXISTS odd",
        "CREATE DATABASE odd ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    url = server.url.replace("/bank", "/odd")
    given(
        url,
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        "INSERT INTO t VALUES (1, E'\\xc3\\xbc'), (3, 'c')",
        "INSERT INTO t VALUES (2, convert_from('\\x61ff', 'SQL_ASCII'))",
    )
    with Asking(url, T) as asking:
        assert sorted((row["id"], row["note"]) for row in asking.rows()) == [(1, "ü"), (3, "c")]
        [bad] = asking.bad
    assert dict(bad.where) == {"table": "public.t", "column": "note", "key": '{"id":2}'}
    assert bad.raw == b'{"id":2,"note":"a\\\\xff"}'
    names(bad.error, "note")


def test_a_row_that_is_larger_than_its_topic_takes_is_a_dead_letter(shop: Shop, server: Postgres) -> None:
    noise = random.Random(1).randbytes(1_600_000).hex()
    given(
        server.url,
        f"INSERT INTO t VALUES (4, '{noise}', now()), (5, repeat('x', 4000000), now()), (6, 'after', now())",
    )
    refused = calve("run", shop.file(T, GOOD))
    assert refused.returncode == EXIT_STOPPED
    says(
        refused.stderr,
        Code.TOO_LARGE_FOR_TOPIC,
        "public.t",
        f"{shop.name}.public.t",
        "max.message.bytes",
        '{\\"id\\":4}',
    )
    file = shop.file(T, GOOD, dead_letters={"topic": f"{shop.name}.dead"})
    done = calve("run", file)
    assert done.returncode == EXIT_DONE, done.stderr
    # What compression makes small enough arrives.
    assert sorted(value["id"] for _, value in shop.records("public.t")) == [1, 2, 3, 5, 6]
    assert len(shop.records("public.good")) == 3
    [(headers, raw)] = shop.letters()
    where = json.loads(headers["calve.where"])
    assert (where["table"], json.loads(where["key"])) == ("public.t", {"id": 4})
    names(headers["calve.error"], "max.message.bytes", f"{shop.name}.public.t")
    assert int(headers["calve.cut"]) > len(noise) > len(raw)
    assert raw.startswith(b'{"id":4,"note":"')
    until(lambda: calve("run", file).returncode == EXIT_DONE)
    assert len(shop.letters()) == 1
