"""Tables of any database: by time, by number, and all rows, in SQLite."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.units import HOUR
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from tests.codes import Naming, names, raises, says
from tests.queried import Asking, given, until

BY_TIME = {"table": "main.t", "by": "timestamp", "column": "at", "settle": "1s"}
BY_NUMBER = {"table": "main.t", "by": "incrementing", "column": "id", "settle": "1ms"}
LONG = {**BY_NUMBER, "settle": "1h"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/shop.db"
    given(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP, name TEXT, price NUMERIC, ok BOOLEAN, raw BLOB)")
    return url


def _insert(url: str, at: str, *numbers: int) -> None:
    given(url, *(f"INSERT INTO t (id, at, name) VALUES ({n}, '{at}', 'n{n}')" for n in numbers))


def test_by_time_goes_on_by_the_key_among_rows_of_one_time(url: str) -> None:
    _insert(url, "2024-01-01 00:00:00", 3, 1, 2)
    _insert(url, "2024-01-01 00:00:00.5", 0)
    with Asking(url, BY_TIME) as asking:
        assert asking.look() == (4, Naming(4))
        assert [row["id"] for row in asking.rows(most=2)] == [1, 2]
        assert asking.offset("main.t") == {"at": "2024-01-01 00:00:00", "id": 2}
        assert [row["id"] for row in asking.rows(most=2)] == [3, 0]
        assert asking.rows() == []
        # A row that changes has a new time.
        given(url, "UPDATE t SET at = '2024-01-02 00:00:00' WHERE id = 1")
        assert [(row["id"], row["at"]) for row in asking.rows()] == [(1, "2024-01-02T00:00:00")]
        assert asking.look() == (0, Naming(0))


def test_by_time_leaves_alone_what_has_not_settled(url: str) -> None:
    given(
        url,
        "INSERT INTO t (id, at) VALUES (1, datetime('now', '-1 hour'))",
        "INSERT INTO t (id, at) VALUES (2, datetime('now'))",
        "INSERT INTO t (id) VALUES (3)",
    )
    with Asking(url, {**BY_TIME, "settle": "30m"}) as asking:
        assert [row["id"] for row in asking.rows()] == [1]
        assert asking.rows() == []
    with Asking(url, BY_TIME) as asking:
        settled = list[int]()
        until(lambda: bool(settled.extend(row["id"] for row in asking.rows()) or len(settled) == 2))
        assert settled == [1, 2]


def test_by_number_reads_what_was_there_long_enough(url: str) -> None:
    _insert(url, "", 1, 2, 3)
    with Asking(url, LONG) as asking:
        assert asking.look() == (3, Naming(3))
        # They are noted, and settle.
        assert asking.rows() == []
        assert asking.offset("main.t").items() >= {"read": None, "seen": 3}.items()
        rows, what = asking.look()
        assert rows == 0
        names(what, "main.t", 3)
        assert "3,600" in what
        assert asking.source.plan(asking.stored, Limits(10, 10)) == ()
    with Asking(url, BY_NUMBER) as asking:
        asking.rows()
        _insert(url, "", 4, 5)
        assert [row["id"] for row in asking.rows_at_last()] == [1, 2, 3]
        # What was seen while these were read is noted with them.
        assert asking.offset("main.t").items() >= {"read": 3, "seen": 5}.items()
        assert [row["id"] for row in asking.rows_at_last()] == [4, 5]
        assert asking.rows() == []
        assert asking.look() == (0, Naming(0))


def test_by_number_reads_no_more_at_a_time_than_may_be(url: str) -> None:
    _insert(url, "", *range(1, 6))
    with Asking(url, BY_NUMBER) as asking:
        asking.rows()
        until(lambda: asking.look()[0] == 5)
        assert [[row["id"] for row in asking.rows(most=2)] for _ in range(4)] == [[1, 2], [3, 4], [5], []]


def test_a_table_without_rows_is_nothing(url: str) -> None:
    with Asking(url, BY_NUMBER) as asking:
        assert asking.look() == (0, Naming(0))
        assert asking.rows() == []
        assert asking.stored == {}


def test_a_plan_that_is_read_again_from_its_middle_goes_on_there(url: str) -> None:
    _insert(url, "2024-01-01 00:00:00", *range(2_500))
    for table in (BY_TIME, BY_NUMBER):
        with Asking(url, table) as asking:
            if table is BY_NUMBER:
                asking.rows()
                until(lambda asking=asking: asking.look()[0] > 0)
            [work] = asking.source.plan(asking.stored, Limits(10_000, 0))
            first = next(asking.source.read(work))
            assert isinstance(first, Rows)
            assert len(first.records) == 1_000
            asking.stored[work.partition] = first.offset
            assert [row["id"] for row in asking.rows_at_last()] == [*range(1_000, 2_500)]


def test_bulk_reads_all_rows_once_until_it_is_time_again(url: str) -> None:
    _insert(url, "", 1, 2)
    with Asking(url, {"table": "main.t", "by": "bulk"}) as asking:
        [work] = asking.source.plan({}, Limits(1, 1))
        assert (work.size, work.whole) == (2, True)
        assert [row["id"] for row in asking.rows(most=1)] == [1, 2]
        assert asking.rows() == []
        rows, what = asking.look()
        assert rows == 0
        names(what, "main.t")
        assert " 3," in what, "almost an hour"
        asking.stored[FlatMap({"table": "main.t"})] = FlatMap({"at": time.time() - HOUR})
        assert asking.look()[0] == 2
        assert [row["id"] for row in asking.rows()] == [1, 2]
        assert asking.source.exactly_once().exactly_once


def test_rows_and_keys_are_json(url: str) -> None:
    given(url, "INSERT INTO t VALUES (1, '2024-01-01 00:00:00', 'ü', 1.5, 1, X'00FF')")
    bulk = {"table": "main.t", "by": "bulk"}
    with Asking(url, bulk, topics="shop.{schema}.{table}") as asking:
        [record] = asking.records()
        assert [topic.name for topic in asking.source.topics()] == ["shop.main.t"]
    assert (record.topic, record.key) == ("shop.main.t", b'{"id":1}')
    row = '{"id":1,"at":"2024-01-01T00:00:00","name":"ü","price":1.5,"ok":true,"raw":"AP8="}'
    assert (record.value or b"").decode() == row
    with Asking(url, {**bulk, "key": ["name", "id"]}) as asking:
        [record] = asking.records()
    assert (record.key or b"").decode() == '{"name":"ü","id":1}'
    given(url, "CREATE VIEW v AS SELECT * FROM t")
    with Asking(url, {**bulk, "table": "main.v"}) as asking:
        [record] = asking.records()
    assert record.key is None


def test_a_column_keeps_what_sqlite_keeps_in_it(url: str) -> None:
    given(
        url,
        "CREATE TABLE loose (id INTEGER PRIMARY KEY, ok BOOLEAN, at TIMESTAMP, day DATE, n INTEGER, note TEXT,"
        " d DECIMAL)",
        "INSERT INTO loose VALUES (1, 'yes', '2024-01-01 00:00:00.123456789', 'n/a', 'abc', x'00ff', 'much')",
        "INSERT INTO loose VALUES (2, 0, 5.5, 20240101, 1.5, '', 9e999)",
        "INSERT INTO loose VALUES (3, 2, x'61', NULL, 9223372036854775807, 'ü', 12345678901234567890)",
        "INSERT INTO loose VALUES (4, 1, 0, 0, 0, CAST(x'61ff' AS TEXT), 0)",
    )
    with Asking(url, {"table": "main.loose", "by": "bulk"}) as asking:
        assert [[*row.values()] for row in asking.rows()] == [
            [1, "yes", "2024-01-01 00:00:00.123456789", "n/a", "abc", "AP8=", "much"],
            [2, False, 5.5, 20240101, 1.5, "", "Infinity"],
            [3, 2, "YQ==", None, 2**63 - 1, "ü", 12345678901234567890.0],
        ]
        [bad] = asking.bad
    assert dict(bad.where) == {"table": "main.loose", "column": "note", "key": '{"id":4}'}
    names(bad.error, "note")


def test_rows_that_no_run_will_read_are_counted(url: str) -> None:
    given(
        url,
        "CREATE TABLE loose (id TEXT PRIMARY KEY, n INTEGER, at TIMESTAMP)",
        "INSERT INTO loose VALUES ('a', 1, '2024-01-01'), ('b', 'two', 'n/a'), ('c', NULL, NULL)",
        "INSERT INTO loose VALUES ('d', 4.5, x'00'), (NULL, 5, '2024-01-01'), ('e', 6, 1700000000)",
    )
    with Asking(url, {**BY_NUMBER, "table": "main.loose", "column": "n"}) as asking:
        [blocker] = asking.held()
        assert blocker.where == "main.loose"
        names(blocker.why, 3, "n")
        asking.rows()
        assert [row["n"] for row in asking.rows_at_last()] == [1, 5, 6]
    with Asking(url, {**BY_TIME, "table": "main.loose"}) as asking:
        [blocker] = asking.held()
        names(blocker.why, 4, "at")
        assert [row["id"] for row in asking.rows()] == ["e", "a"]
    with Asking(url, BY_TIME) as asking:
        assert not asking.held()


def test_a_table_that_can_not_be_read_keeps_no_other_from_going_on(url: str) -> None:
    _insert(url, "2024-01-01 00:00:00", 1)
    with Asking(url, BY_TIME, {**BY_TIME, "table": "main.gone"}) as asking:
        assert [row["id"] for row in asking.rows()] == [1]
        [blocker] = asking.held()
    assert blocker.where == "main.gone"
    says(blocker.why, Code.NO_TABLE_TO_ASK, "main.gone")


@pytest.mark.parametrize(
    ("table", "code", "named"),
    [
        ({**BY_TIME, "table": "main.gone"}, Code.NO_TABLE_TO_ASK, ["main.gone", "sqlite://"]),
        ({**BY_TIME, "column": "gone"}, Code.NO_TABLE_TO_ASK, ["main.t", "gone", "id, at, name"]),
        ({**BY_TIME, "key": ["gone"]}, Code.NO_TABLE_TO_ASK, ["main.t", "gone"]),
        ({**BY_TIME, "key": ["name"]}, Code.WAY_DOES_NOT_FIT, ["main.t", "key", "timestamp"]),
        ({**BY_TIME, "table": "main.bare", "column": "at"}, Code.WAY_DOES_NOT_FIT, ["main.bare", "timestamp"]),
        ({**BY_TIME, "column": "id"}, Code.WAY_DOES_NOT_FIT, ["main.t.id", "INTEGER", "timestamp"]),
        ({**BY_NUMBER, "column": "name"}, Code.WAY_DOES_NOT_FIT, ["main.t.name", "TEXT", "incrementing"]),
        (
            {"table": "main.t", "by": "transaction"},
            Code.WAY_DOES_NOT_FIT,
            ["main.t", "transaction", "PostgreSQL", "sqlite"],
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(table: dict[str, str], code: Code, named: list[str], url: str) -> None:
    given(url, "CREATE TABLE bare (at TIMESTAMP)")
    with raises(code, "source.tables", *named), Asking(url, table) as asking:
        asking.rows()
    with raises(code, "source.tables", *named), Asking(url, table) as asking:
        asking.look()


def test_an_offset_of_another_way_is_refused_with_both(url: str) -> None:
    _insert(url, "2024-01-01 00:00:00", 1)
    with Asking(url, BY_TIME) as asking:
        asking.rows()
        stored = dict(asking.stored)
    with Asking(url, BY_NUMBER) as asking, raises(Code.OTHER_WAY, "at", "seen"):
        asking.source.plan(stored, Limits(1, 1))


@pytest.mark.parametrize(("table", "way"), [(BY_TIME, "timestamp"), (BY_NUMBER, "incrementing")])
def test_a_way_that_can_miss_rows_says_when(table: dict[str, str], way: str, url: str) -> None:
    with Asking(url, {**table, "settle": "30s"}) as asking:
        support = asking.source.exactly_once()
    assert not support.exactly_once
    names(support.why_not, "main.t", way, "settle", "30 s")


def test_the_fingerprint_has_no_user_and_no_password(url: str) -> None:
    with Asking(url, BY_TIME) as asking:
        assert asking.source.fingerprint == url
    with raises(Code.NO_DATABASE, of=ConfigError) as raised:
        Asking("mydb://joe:hush@host/shop", BY_TIME)
    assert "hush" not in str(raised.value)


def test_a_driver_that_is_not_there_is_named(url: str) -> None:
    with raises(Code.NO_DRIVER, "asyncpg"):
        Asking("postgresql+asyncpg://joe:hush@host/shop", BY_TIME)


def test_without_the_driver_of_postgresql_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with raises(Code.NO_DRIVER, "psycopg2", "pip install 'calve[postgres]'") as raised:
        Asking("postgresql://joe:hush@host/shop", BY_TIME)
    assert "hush" not in str(raised.value)


def test_a_database_that_is_away_is_unreachable(tmp_path: Path) -> None:
    with (
        Asking(f"sqlite:///{tmp_path}/no/such/folder.db", BY_TIME) as asking,
        raises(Code.NO_DATABASE, "open", of=Unreachable),
    ):
        asking.rows()
