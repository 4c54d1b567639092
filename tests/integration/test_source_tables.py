"""Tables of a real PostgreSQL by query into a real broker's topics, by a pipeline's file."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED
from calve.sink_core.failpoints import VARIABLE
from tests.codes import finding, says
from tests.launch import calve, forked
from tests.postgres import Postgres, postgres
from tests.queried import Shop, as_server, stopped, until

ORDERS, ITEMS = {"table": "public.orders"}, {"table": "public.items"}


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres("hush") as server:
        yield server


@pytest.fixture
def shop(broker: Broker, server: Postgres, tmp_path: Path) -> Shop:
    made = Shop.of(broker, server.url.replace("//calve@", "//calve:hush@"), tmp_path)
    made.do(
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "CREATE TABLE orders (id int PRIMARY KEY, state text)",
        "CREATE TABLE items (id int, at timestamptz PRIMARY KEY DEFAULT clock_timestamp())",
        "INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 3) g",
        "INSERT INTO items VALUES (1)",
    )
    return made


def _states(shop: Shop) -> Counter[tuple[int, str]]:
    return Counter((value["id"], value["state"]) for _, value in shop.records("public.orders"))


@pytest.mark.parametrize(
    "point", ["transaction.after-event@2", "transaction.after-commit@2", "source.before-acknowledge"]
)
def test_a_run_that_is_killed_loses_and_doubles_nothing(point: str, shop: Shop) -> None:
    file = shop.file(ORDERS, ITEMS)
    name, _, visit = point.partition("@")
    killed = forked("run", file, **{VARIABLE: f"{name}=kill@{visit or 1}"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    shop.do("UPDATE orders SET state = 'paid' WHERE id = 1", "INSERT INTO orders VALUES (4, 'new')")
    done = calve("run", file)
    assert done.returncode == EXIT_DONE, done.stderr
    # A version that was overwritten before it was read is no more.
    first = {(1, "new"): 1} if name != "transaction.after-event" else {}
    assert _states(shop) == {**first, (1, "paid"): 1, (2, "new"): 1, (3, "new"): 1, (4, "new"): 1}
    assert [value["id"] for _, value in shop.records("public.items")] == [1]
    shop.do("DELETE FROM orders WHERE id = 2", "UPDATE orders SET state = 'sent' WHERE id = 4")
    assert calve("run", file).returncode == EXIT_DONE
    assert _states(shop) == {
        **first,
        (1, "paid"): 1,
        (2, "new"): 1,
        (3, "new"): 1,
        (4, "new"): 1,
        (4, "sent"): 1,
    }
    assert "caught up" in calve("run", file).stdout
    assert ({"id": 4}, {"id": 4, "state": "sent"}) in shop.records("public.orders")


def test_what_the_commands_say(shop: Shop) -> None:
    file = shop.file(ORDERS)
    checked = calve("check", file)
    assert checked.returncode == EXIT_DONE, checked.stdout
    assert "3 rows" in checked.stdout
    assert "postgresql " in checked.stdout
    assert calve("run", file).returncode == EXIT_DONE
    shown = json.loads(calve("status", file, "--json").stdout)
    assert (shown["lag"], shown["records"], shown["waiting"], shown["findings"]) == (0, 3, "0 rows", [])
    [offset] = shown["offsets"]
    assert (offset["partition"], [*offset["offset"]]) == (ORDERS, ["xid"])
    said = checked.stdout + calve("config", file).stdout + calve("status", file).stdout
    assert "hush" not in said


def test_a_way_that_can_miss_rows_is_refused_where_none_may_be_missed(shop: Shop) -> None:
    numbers = {**ORDERS, "by": "incrementing", "column": "id", "settle": "100ms"}
    times = {**ITEMS, "by": "timestamp", "column": "at", "settle": "100ms"}
    file = shop.file(numbers, times)
    refused = calve("run", file)
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.NOT_EXACTLY_ONCE, "shop", "public.orders", "incrementing")
    file = shop.file(numbers, times, exactly_once="requested")

    def all_there() -> bool:
        assert calve("run", file).returncode == EXIT_DONE
        return sum(_states(shop).values()) == 3 and len(shop.records("public.items")) == 1

    until(all_there)
    shop.do("INSERT INTO orders VALUES (4, 'new')", "INSERT INTO items VALUES (2)")

    def one_more() -> bool:
        assert calve("run", file).returncode == EXIT_DONE
        return len(_states(shop)) == 4 and len(shop.records("public.items")) == 2

    until(one_more)
    assert set(_states(shop).values()) == {1}


def test_all_rows_are_read_once_by_a_run_and_again_when_it_is_time(shop: Shop) -> None:
    file = shop.file({**ORDERS, "by": "bulk", "every": "1h"})
    assert calve("run", file).returncode == EXIT_DONE
    assert calve("run", file).returncode == EXIT_DONE
    assert set(_states(shop).values()) == {1}
    file = shop.file({**ORDERS, "by": "bulk", "every": "1ms"}, run={"max_batches": 2})
    assert "run.max_batches 2" in calve("run", file).stdout
    assert set(_states(shop).values()) == {3}


def test_a_database_that_was_restored_stops_the_run_with_both(shop: Shop, server: Postgres) -> None:
    file = shop.file(ORDERS)
    with stopped(shop.url, server.port) as data:
        as_server("cp", "-a", data, f"{data}.backup")
    shop.do(*["UPDATE orders SET state = 'paid'"] * 50)
    assert calve("run", file).returncode == EXIT_DONE
    [offset] = json.loads(calve("status", file, "--json").stdout)["offsets"]
    with stopped(shop.url, server.port) as data:
        as_server("mv", data, f"{data}.lost")
        as_server("mv", f"{data}.backup", data)
    ended = calve("run", file)
    assert ended.returncode == EXIT_STOPPED
    says(ended.stderr, finding("database-restored"), "public.orders", offset["offset"]["xid"])
    assert _states(shop) == {(1, "paid"): 1, (2, "paid"): 1, (3, "paid"): 1}


def test_a_table_that_is_not_there_is_named(shop: Shop) -> None:
    refused = calve("run", shop.file({"table": "public.gone"}))
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.NO_TABLE_TO_ASK, "public.gone", "postgresql+psycopg2://127.0.0.1")
    assert "hush" not in refused.stderr
