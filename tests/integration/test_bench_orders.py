"""The log that `bench.source` has its readers read: what it says is in it, and that it is the same for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from bench.orders import LAST_ID, PUBLICATION, Orders, orders

EVENTS = 2_000


@pytest.fixture(scope="module")
def changed() -> Generator[Orders]:
    with orders(EVENTS) as found:
        yield found


def _asked(of: Orders, query: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(of.server.dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchall()


def _messages(of: Orders, slot: str, how: str) -> list[bytes]:
    query = f"SELECT data FROM pg_logical_slot_{how}_binary_changes(%s, NULL, NULL, VARIADIC %s)"
    options = ["proto_version", "1", "publication_names", PUBLICATION]
    return [bytes(data) for (data,) in _asked(of, query, slot, options)]


def test_the_log_has_as_many_of_each_operation_as_it_says_and_ends_with_the_last_row(changed: Orders) -> None:
    with changed.slot() as slot:
        messages = _messages(changed, slot, "peek")
    kinds = Counter(chr(message[0]) for message in messages)
    says = changed.operations
    assert (kinds["I"], kinds["U"], kinds["D"]) == (says["c"], says["u"], says["d"])
    assert kinds["I"] + kinds["U"] + kinds["D"] == EVENTS
    assert says[""] == says["d"], "a tombstone behind each delete"
    last = [message for message in messages if chr(message[0]) in "IUD"][-1]
    assert chr(last[0]) == "I"
    assert b"%d" % LAST_ID in last


def test_each_reader_has_the_whole_log_whatever_others_have_read_and_its_slot_is_gone_afterwards(
    changed: Orders,
) -> None:
    with changed.slot() as one, changed.slot() as other:
        read = _messages(changed, one, "get")
        assert _messages(changed, one, "get") == []
        assert _messages(changed, other, "get") == read
    assert _asked(changed, "SELECT slot_name FROM pg_replication_slots") == [("bench_base",)]


def test_the_whole_server_is_measured(changed: Orders) -> None:
    before_s = changed.cpu_s()
    _asked(changed, "SELECT count(*) FROM generate_series(1, 3000000)")
    assert changed.cpu_s() > before_s, "a session that has ended counts"
