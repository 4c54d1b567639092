"""The log of a real PostgreSQL into a real broker's topics."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.postgres import log as log_module
from calve.sink_core.source.postgres.changes import AT_MOST
from calve.sink_core.source.postgres.visibility import lsn_of
from calve.sink_core.source.run import SourceReport, run_steps
from tests import support
from tests.codes import names
from tests.launch import forked
from tests.logged import ITEMS, Logged
from tests.postgres import Postgres, postgres

LIMITS = Limits(1_000_000, 1 << 30)


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


Make = Callable[..., Logged]


def changes(rows: Rows) -> list[tuple[int, str]]:
    """Key and operation of change events, without tombstones."""
    told = [(json.loads(record.key or b""), json.loads(record.value)) for record in rows.records if record.value]
    return [(key["id"], event["op"]) for key, event in told]


@pytest.fixture
def made(server: Postgres, broker: Broker, tmp_path: Path) -> Make:
    return lambda *sql, **options: Logged.create(server, broker.bootstrap, tmp_path, *(sql or (ITEMS,)), **options)


def test_what_is_there_and_what_changes_each_once(made: Make) -> None:
    logged = made()
    logged.sql("INSERT INTO items SELECT i, 'old ' || i FROM generate_series(1, 5) i")
    report = logged.run()
    assert (report.ended, report.records) == ("caught up", 5)
    assert {(event["op"], event["after"]["what"]) for _, event in logged.records("items")} == {
        ("r", f"old {i}") for i in range(1, 6)
    }
    logged.sql(
        "INSERT INTO items VALUES (6, 'new')",
        "UPDATE items SET what = 'changed' WHERE id = 2",
        "UPDATE items SET id = 30 WHERE id = 3",
        "DELETE FROM items WHERE id = 4",
    )
    # Two for the delete, and three for the row with another key.
    assert logged.run().records == 7
    assert logged.rows("items") == logged.there("items")
    assert logged.offsets()["log"]["lsn"] == logged.confirmed()
    before = len(logged.records("items"))
    assert logged.run().records == 0
    assert len(logged.records("items")) == before


TYPED = """CREATE TABLE typed (
    id int PRIMARY KEY, big bigint, yes boolean, real8 double precision, exact numeric(30, 10), name text,
    padded char(4), raw bytea, day date, clock time, local timestamp, moment timestamptz, uuid uuid, doc jsonb,
    numbers int[], words text[], span interval, address inet, made int GENERATED ALWAYS AS (id + 1) STORED,
    mail email)"""


def test_each_type_is_the_json_that_the_documents_say_from_snapshot_and_log(made: Make) -> None:
    logged = made("CREATE DOMAIN email AS text", TYPED)
    values = (
        "9007199254740993, true, 'NaN', 12345678901234567890.0123456789, E'a \"b\" \\\\ é\\n', 'x', '\\xdeadbeef', "
        "'2024-02-29', '23:59:59.000001', '2024-02-29 12:00:00.5', '2024-02-29 12:00:00.123456+02', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": 1}', '{{1,NULL},{-3,4}}', "
        "ARRAY['a \"b\"', NULL, 'null', 'c,d}', ''], '1 day 02:03', '10.0.0.1', DEFAULT, 'a@b'"
    )
    wanted = {
        "big": 9007199254740993,
        "yes": True,
        "real8": "NaN",
        "exact": "12345678901234567890.0123456789",
        "name": 'a "b" \\ é\n',
        "padded": "x   ",
        "raw": "3q2+7w==",
        "day": "2024-02-29",
        "clock": "23:59:59.000001",
        "local": "2024-02-29T12:00:00.5",
        "moment": "2024-02-29T10:00:00.123456Z",
        "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "doc": '{"a": 1}',
        "numbers": [[1, None], [-3, 4]],
        "words": ['a "b"', None, "null", "c,d}", ""],
        "span": "1 day 02:03:00",
        "address": "10.0.0.1",
        "mail": "a@b",
    }
    nothing = dict.fromkeys(wanted)
    logged.sql(f"INSERT INTO typed VALUES (1, {values})", "INSERT INTO typed (id) VALUES (2)")
    logged.run()
    logged.sql(f"INSERT INTO typed VALUES (3, {values})", "INSERT INTO typed (id) VALUES (4)")
    logged.run()
    found = {event["after"]["id"]: (event["op"], event["after"]) for _, event in logged.records("typed")}
    assert found == {
        1: ("r", {"id": 1, **wanted}),
        2: ("r", {"id": 2, **nothing}),
        3: ("c", {"id": 3, **wanted}),
        4: ("c", {"id": 4, **nothing}),
    }


def test_what_a_snapshot_has_seen_is_left_out_of_the_log_and_nothing_else(made: Make) -> None:
    logged = made()
    logged.sql("INSERT INTO items VALUES (1, 'there before the slot')")
    with closing(logged.source) as source, logged.session() as late, logged.session() as later:
        source.prepare({})
        logged.sql(
            "INSERT INTO items VALUES (2, 'seen, and in the log')", "INSERT INTO items VALUES (3, 'to be deleted')"
        )
        [work] = source.plan({}, LIMITS)
        late.execute("BEGIN; INSERT INTO items VALUES (4, 'begun before the snapshot, committed behind it')")
        later.execute("BEGIN; DELETE FROM items WHERE id = 3")
        [found] = source.read(work)
        assert sorted(number for number, *_ in changes(found)) == [1, 2, 3]
        late.execute("COMMIT")
        logged.sql("UPDATE items SET what = 'changed' WHERE id = 2")
        later.execute("COMMIT")
        [work] = source.plan({work.partition: found.offset}, LIMITS)
        [told] = source.read(work)
    assert changes(told) == [(4, "c"), (2, "u"), (3, "d")]
    assert told.dropped == 2


def test_rows_of_a_table_wait_for_transactions_that_wrote_before_it_was_published(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = made()
    logged.run()
    logged.sql("CREATE TABLE more (id int PRIMARY KEY, what text)")
    monkeypatch.setattr(log_module, "SETTLE_S", 0.5)
    with logged.session() as late:
        late.execute("BEGIN; INSERT INTO more VALUES (1, 'in no log: the table was not published')")
        logged.sql(f"ALTER PUBLICATION {logged.name} ADD TABLE {logged.name}.more", "INSERT INTO more VALUES (2, 'b')")
        logged.sql("INSERT INTO items VALUES (1, 'not held up')")
        report = logged.run()
        assert [blocker.where for blocker in report.blockers] == [f"{logged.name}.more"]
        assert (logged.told("more"), logged.told("items")) == ([], [(1, "c")])
        late.execute("COMMIT")
    assert not logged.run().blockers
    logged.sql("INSERT INTO more VALUES (3, 'c')")
    logged.run()
    assert [(number, op) for number, op in logged.told("more")] == [(1, "r"), (2, "r"), (3, "c")]


def test_a_table_that_left_the_publication_and_came_back_is_read_anew(made: Make) -> None:
    logged = made()
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    logged.run()
    logged.sql(f"ALTER PUBLICATION {logged.name} DROP TABLE {logged.name}.items")
    logged.sql("INSERT INTO items VALUES (2, 'nobody was told')")
    logged.sql(f"ALTER PUBLICATION {logged.name} ADD TABLE {logged.name}.items")
    logged.run()
    assert [event["op"] for _, event in logged.records("items")] == ["r"] * 3
    logged.sql("INSERT INTO items VALUES (3, 'c')")
    logged.run()
    assert {event["after"]["id"] for _, event in logged.records("items")} == {1, 2, 3}


def test_rows_alone_are_tombstoned_and_what_they_can_not_say_goes_to_the_dead_letters(made: Make) -> None:
    logged = made(ITEMS, "CREATE TABLE keyless (what text)", value={"type": "json", "shape": "row"}, partitions=1)
    logged.run()
    logged.sql("INSERT INTO items VALUES (1, 'a'), (2, 'b')", "UPDATE items SET id = 3 WHERE id = 2")
    logged.sql("DELETE FROM items WHERE id = 1", "INSERT INTO keyless VALUES ('x')", "TRUNCATE items")
    logged.run()
    assert logged.records("items", partitions=1) == [
        ({"id": 1}, {"id": 1, "what": "a"}),
        ({"id": 2}, {"id": 2, "what": "b"}),
        ({"id": 2}, None),
        ({"id": 3}, {"id": 3, "what": "b"}),
        ({"id": 1}, None),
    ]
    assert logged.records("keyless", partitions=1) == [(None, {"what": "x"})]
    [letter] = support.messages(logged.bootstrap, f"{logged.name}.dead")
    error = bytes(dict(letter.headers() or ())["calve.error"]).decode()
    assert ("TRUNCATE" in error, f"{logged.name}.items" in error) == (True, True)


def test_a_row_that_is_larger_than_its_topic_takes_is_a_dead_letter_and_others_go_on(made: Make) -> None:
    logged = made(ITEMS, "CREATE TABLE others (id int PRIMARY KEY)", config={"max.message.bytes": 20_000}, partitions=1)
    noise = random.Random(1).randbytes(20_000).hex()
    large = f"INSERT INTO items VALUES (%s, 'a'), (%s, '{noise}'), (%s, 'c')"
    rows = "INSERT INTO others VALUES (%s)"
    for first in (1, 4):
        # By the snapshot, then by the log.
        logged.sql(large % (first, first + 1, first + 2), rows % first)
        assert logged.run().ended == "caught up"
    items, others = (logged.records(table, partitions=1) for table in ("items", "others"))
    assert [(key["id"], event["op"]) for key, event in items] == [(1, "r"), (3, "r"), (4, "c"), (6, "c")]
    assert [(key["id"], event["op"]) for key, event in others] == [(1, "r"), (4, "c")]
    letters = [dict(each.headers() or ()) for each in support.messages(logged.bootstrap, f"{logged.name}.dead")]
    places = [json.loads(bytes(each["calve.where"])) for each in letters]
    assert [(at["table"], json.loads(at["key"])) for at in places] == [
        (f"{logged.name}.items", {"id": n}) for n in (2, 5)
    ]
    names(bytes(letters[1]["calve.error"]).decode(), f"{logged.name}.items", "max.message.bytes", "20,000")


def test_what_has_no_key_is_a_dead_letter_where_the_topic_is_compacted(made: Make) -> None:
    logged = made(ITEMS, "CREATE TABLE keyless (v int)", config={"cleanup.policy": "compact"}, partitions=1)
    for number in (1, 2):
        # By the snapshot, then by the log.
        logged.sql(f"INSERT INTO items VALUES ({number}, 'a')", f"INSERT INTO keyless VALUES ({number})")
        assert logged.run().ended == "caught up"
        logged.sql("TRUNCATE items")
        assert logged.run().ended == "caught up"
    events = [event["op"] for _, event in logged.records("items", partitions=1)]
    assert (events, logged.records("keyless", partitions=1)) == (["r", "c"], [])
    letters = [dict(each.headers() or ()) for each in support.messages(logged.bootstrap, f"{logged.name}.dead")]
    tables = [json.loads(bytes(each["calve.where"]))["table"].split(".")[1] for each in letters]
    assert tables == ["keyless", "items", "keyless", "items"]
    for letter, table in zip(letters, tables, strict=True):
        names(bytes(letter["calve.error"]).decode(), f"{logged.name}.{table}", "cleanup.policy")


def test_a_large_value_that_did_not_change_is_named_or_comes_with_the_old_row(made: Make) -> None:
    table = "CREATE TABLE large (id int PRIMARY KEY, what int, note text)"
    logged = made(table, "ALTER TABLE large ALTER COLUMN note SET STORAGE EXTERNAL")
    logged.run()
    logged.sql("INSERT INTO large VALUES (1, 1, repeat('n', 9000))", "UPDATE large SET what = 2")
    logged.sql("ALTER TABLE large REPLICA IDENTITY FULL", "UPDATE large SET what = 3")
    logged.run()
    notes = {event["after"]["what"]: event["after"]["note"] for _, event in logged.records("large")}
    assert notes == {1: "n" * 9000, 2: "__debezium_unavailable_value", 3: "n" * 9000}


def test_while_only_others_write_the_log_is_let_go_of_and_nothing_is_read_twice(made: Make) -> None:
    logged = made(log={"snapshot": "never"})
    logged.run()
    logged.sql("CREATE TABLE others (what text)", "INSERT INTO items VALUES (1, 'a')")
    held = list[int]()
    for _ in range(3):
        logged.sql("INSERT INTO others SELECT repeat('x', 1000) FROM generate_series(1, 10000)")
        report = logged.run()
        [(bytes_held,)] = logged.ask(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint FROM pg_replication_slots "
            "WHERE slot_name = %s",
            logged.name,
        )
        held.append(bytes_held)
        assert len(report.batches) == 1
    # Each round wrote ten million bytes.
    assert max(held) < 1_000_000
    assert [event["op"] for _, event in logged.records("items")] == ["c"]


def test_a_transaction_of_any_size_is_split_and_each_row_is_there_once(made: Make) -> None:
    logged = made(log={"snapshot": "never"}, value={"type": "json", "shape": "row"})
    logged.run()
    logged.sql("INSERT INTO items SELECT i, 'large' FROM generate_series(1, 120000) i")
    killed = forked("run", logged.file, **{VARIABLE: "transaction.after-commit=kill"})
    assert killed.returncode == -signal.SIGKILL
    offset = logged.offsets()["log"]
    assert offset["seq"] == AT_MOST
    # Only whole transactions are let go of.
    assert lsn_of(logged.confirmed()) <= lsn_of(offset["lsn"])
    assert logged.run().records == 70_000
    assert sorted(row["id"] for _, row in logged.records("items")) == [*range(1, 120_001)]


def test_a_run_ends_with_what_was_there_when_it_began(made: Make) -> None:
    logged = made(log={"snapshot": "never"})
    logged.run()
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    with SourcePlane(logged.pipeline) as plane:
        steps = run_steps(plane, report := SourceReport())
        assert next(steps).records == 1
        # Somebody writes all the while.
        logged.sql("INSERT INTO items VALUES (2, 'b')")
        assert not list(steps)
    assert not report.stopped_early
    assert logged.run().records == 1, "what was written since"
