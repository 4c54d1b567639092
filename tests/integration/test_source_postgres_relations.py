"""Keys, names and membership of PostgreSQL's tables: one row has one key, and a relation is its oid, not its name."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import SourceReport, run_steps
from tests.codes import finding, raises
from tests.launch import calve
from tests.logged import ITEMS, Logged
from tests.postgres import Postgres, postgres

Create = Callable[..., Logged]


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def create(server: Postgres, broker: Broker, tmp_path: Path) -> Create:
    return lambda *sql, **options: Logged.create(
        server, broker.bootstrap, tmp_path, *(sql or (ITEMS,)), **{"partitions": 1, **options}
    )


def of_schema(logged: Logged) -> Logged:
    """Published are all tables of the schema, whatever their names."""
    name = logged.name
    logged.sql(f"DROP PUBLICATION {name}", f"CREATE PUBLICATION {name} FOR TABLES IN SCHEMA {name}")
    return logged


def by_user(logged: Logged, role: str) -> None:
    """From now on the pipeline connects as `role`."""
    file = logged.directory / "connections.yaml"
    connections = yaml.safe_load(file.read_text())
    connections["database"]["here"]["url"] = logged.server.url.replace("calve@", f"{role}@")
    file.write_text(yaml.safe_dump(connections))


def keys(logged: Logged, table: str) -> list[Any]:
    return [key for key, _ in logged.records(table, partitions=1)]


def last(logged: Logged, table: str) -> dict[Any, Any]:
    """What a compacted topic has: by id the last row."""
    records = logged.records(table, partitions=1)
    return {key["id"]: event["after"] for key, event in records if event is not None and event["op"] != "d"}


def operations(logged: Logged, table: str) -> list[tuple[int, str]]:
    return sorted((key["id"], event["op"]) for key, event in logged.records(table, partitions=1) if event is not None)


KEYED = (
    # The index has other columns first than the table, and one that is no part of the key.
    "CREATE TABLE keyed (a int, b int, v text, PRIMARY KEY (b, a) INCLUDE (v))",
    "CREATE TABLE chosen (a int NOT NULL, b int NOT NULL, v text)",
    "CREATE UNIQUE INDEX chosen_by ON chosen (b, a)",
    "ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_by",
    "CREATE TABLE whole (a int, b int, v text, PRIMARY KEY (b, a))",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
)


def test_a_row_has_one_key_from_its_snapshot_and_from_the_log(create: Create) -> None:
    logged = create(*KEYED)
    for table in ("keyed", "chosen", "whole"):
        logged.sql(f"INSERT INTO {table} VALUES (1, 2, 'a')")
    logged.run()
    for table in ("keyed", "chosen", "whole"):
        logged.sql(f"UPDATE {table} SET v = 'b'", f"DELETE FROM {table}")
    logged.run()
    for table in ("keyed", "chosen", "whole"):
        # Read, changed, deleted, and the tombstone.
        assert [list(key.items()) for key in keys(logged, table)] == [[("b", 2), ("a", 1)]] * 4


def test_rows_of_a_partition_with_columns_in_another_order_have_the_key_of_all(create: Create) -> None:
    logged = create(
        "CREATE TABLE parts (a int, b int, v text, PRIMARY KEY (b, a)) PARTITION BY RANGE (a)",
        "CREATE TABLE early (v text, b int NOT NULL, a int NOT NULL)",
        "CREATE TABLE late PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "INSERT INTO early VALUES ('a', 2, 1)",
        "ALTER TABLE parts ATTACH PARTITION early FOR VALUES FROM (0) TO (10)",
    )
    logged.sql("INSERT INTO parts VALUES (10, 2, 'a')")
    logged.run()
    logged.sql("UPDATE parts SET v = 'b'", "DELETE FROM parts")
    logged.run()
    for table, a in (("early", 1), ("late", 10)):
        assert [list(key.items()) for key in keys(logged, table)] == [[("b", 2), ("a", a)]] * 4


def test_a_key_that_was_replaced_is_the_one_of_its_time(create: Create) -> None:
    logged = create("CREATE TABLE items (id int, code int, what text, PRIMARY KEY (code, id))")
    logged.sql("INSERT INTO items VALUES (1, 10, 'a')")
    logged.run()
    logged.sql("UPDATE items SET what = 'b'")
    logged.sql("ALTER TABLE items RENAME code TO number", "UPDATE items SET what = 'c'")
    logged.sql("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id)", "UPDATE items SET what = 'd'")
    logged.run()
    assert [list(key.items()) for key in keys(logged, "items")] == [
        [("code", 10), ("id", 1)],
        [("code", 10), ("id", 1)],
        # Nobody knows this order any more: it is that of the table.
        [("id", 1), ("number", 10)],
        [("id", 1)],
    ]


def test_under_full_identity_another_primary_key_has_the_table_read_anew(create: Create) -> None:
    logged = create(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL")
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    logged.run()
    logged.sql(
        "UPDATE items SET what = 'b'", "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (what, id)"
    )
    logged.run()
    logged.sql("INSERT INTO items VALUES (2, 'c')")
    logged.run()
    assert [(key, event["op"]) for key, event in logged.records("items", partitions=1)] == [
        ({"id": 1}, "r"),
        ({"id": 1}, "u"),
        ({"what": "b", "id": 1}, "r"),
        ({"what": "c", "id": 2}, "c"),
    ]


def test_a_key_too_large_to_be_sent_is_the_old_row_s(create: Create) -> None:
    logged = create(
        "CREATE TABLE items (id text PRIMARY KEY, n int)", "ALTER TABLE items ALTER id SET STORAGE EXTERNAL"
    )
    rows = "INSERT INTO items SELECT string_agg(md5(random()::text), ''), 1 FROM generate_series(1, 78)"
    logged.sql(rows, rows)
    logged.run()
    logged.sql("UPDATE items SET n = 2")
    logged.run()
    records = logged.records("items", partitions=1)
    assert [event["op"] for _, event in records] == ["r", "r", "u", "u"]
    assert sorted(key["id"] for key, _ in records[:2]) == sorted(key["id"] for key, _ in records[2:])
    assert all(event["after"]["id"] == key["id"] for key, event in records)


def test_a_table_dropped_and_made_anew_ends_with_the_rows_of_the_new_one(create: Create) -> None:
    logged = of_schema(create())
    logged.sql("INSERT INTO items VALUES (1, 'first')")
    logged.run()
    logged.sql("UPDATE items SET what = 'stale'")
    logged.sql("DROP TABLE items", ITEMS, "INSERT INTO items VALUES (1, 'new')")
    logged.run()
    events = [event for _, event in logged.records("items", partitions=1)]
    assert [(event["op"], event["after"]["what"]) for event in events] == [("r", "first"), ("u", "stale"), ("r", "new")]
    logged.sql("UPDATE items SET what = 'newer'")
    logged.run()
    assert last(logged, "items") == {1: {"id": 1, "what": "newer"}}


def test_tables_that_swap_their_names_swap_their_topics(create: Create) -> None:
    logged = create(ITEMS, "CREATE TABLE others (id int PRIMARY KEY, what text)")
    logged.sql("INSERT INTO items VALUES (1, 'a')", "INSERT INTO others VALUES (1, 'z')")
    logged.run()
    logged.sql("UPDATE items SET what = 'b'", "UPDATE others SET what = 'y'")
    logged.sql(
        "ALTER TABLE items RENAME TO swap", "ALTER TABLE others RENAME TO items", "ALTER TABLE swap RENAME TO others"
    )
    logged.sql("UPDATE items SET what = 'x'", "UPDATE others SET what = 'c'")
    logged.run()
    logged.sql("UPDATE others SET what = 'd'")
    logged.run()
    assert last(logged, "items")[1]["what"] == "x"
    assert last(logged, "others")[1]["what"] == "d"


def test_a_schema_that_left_the_publication_and_came_back_is_read_anew(create: Create) -> None:
    logged = of_schema(create())
    logged.run()
    logged.sql(f"ALTER PUBLICATION {logged.name} DROP TABLES IN SCHEMA {logged.name}")
    logged.sql("INSERT INTO items VALUES (1, 'nobody was told')")
    logged.sql(f"ALTER PUBLICATION {logged.name} ADD TABLES IN SCHEMA {logged.name}")
    logged.run()
    assert operations(logged, "items") == [(1, "r")]


def test_a_publication_made_anew_stops_until_all_is_read_anew(create: Create) -> None:
    logged = create()
    logged.run()
    logged.sql(f"DROP PUBLICATION {logged.name}", "INSERT INTO items VALUES (1, 'of no publication')")
    logged.sql(f"CREATE PUBLICATION {logged.name} FOR TABLE {logged.name}.items")
    with raises(finding("publication-made-anew"), logged.name):
        logged.run()
    assert "publication-made-anew" in calve("check", logged.file).stdout
    assert calve("pause", logged.file, "--wait").returncode == EXIT_DONE
    assert calve("positions", "reset", logged.file, "--yes").returncode == EXIT_DONE
    assert calve("resume", logged.file).returncode == EXIT_DONE
    logged.run()
    assert operations(logged, "items") == [(1, "r")]


def test_a_table_that_can_not_be_taken_stands_alone(create: Create) -> None:
    logged = of_schema(create())
    logged.sql('CREATE TABLE "Order Items" (id int PRIMARY KEY)')
    logged.sql("INSERT INTO items VALUES (1, 'a')", 'INSERT INTO "Order Items" VALUES (1)')
    for _ in range(2):
        assert [blocker.where for blocker in logged.run().blockers] == [f"{logged.name}.Order Items"]
        logged.sql("UPDATE items SET what = 'b'", 'UPDATE "Order Items" SET id = 2')
    assert operations(logged, "items") == [(1, "r"), (1, "u")]
    logged.sql('ALTER TABLE "Order Items" RENAME TO orders')
    assert not logged.run().blockers
    assert operations(logged, "orders") == [(2, "r")]


def with_source(logged: Logged, target: dict[str, Any], **log: Any) -> None:
    """Write the file with other settings of the log and the target."""
    document = yaml.safe_load(logged.file.read_text())
    document["source"]["log"] = {"slot": logged.name, "publication": logged.name, **log}
    document["target"] |= target
    logged.file.write_text(yaml.safe_dump(document))


def test_a_table_has_the_topic_that_the_file_names(create: Create) -> None:
    logged = of_schema(create())
    logged.sql('CREATE TABLE "Order Items" (id int PRIMARY KEY)', 'INSERT INTO "Order Items" VALUES (1)')
    with_source(logged, {"topic_by_table": {f"{logged.name}.Order Items": f"{logged.name}.orders"}})
    assert not logged.run().blockers
    logged.sql('INSERT INTO "Order Items" VALUES (2)')
    logged.run()
    assert operations(logged, "orders") == [(1, "r"), (2, "c")]


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_of_a_table_that_the_file_excludes_nothing_is_read(create: Create, snapshot: str) -> None:
    logged = of_schema(create(ITEMS, "CREATE TABLE others (id int PRIMARY KEY)", log={"snapshot": snapshot}))
    logged.run()
    logged.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
    logged.run()
    with_source(logged, {}, snapshot=snapshot, exclude=["*.oth?rs", "*.Order *"])
    logged.sql('CREATE TABLE "Order Items" (id int PRIMARY KEY)')
    logged.sql("INSERT INTO items VALUES (2)", "INSERT INTO others VALUES (2)", 'INSERT INTO "Order Items" VALUES (2)')
    logged.sql("TRUNCATE others")
    logged.sql("INSERT INTO items VALUES (3)", "INSERT INTO others VALUES (3)")
    for _ in range(2):
        # The server itself may write to its log in between.
        assert (logged.run().ended.startswith("caught up"), logged.run().blockers) == (True, ())
    assert operations(logged, "items") == [(1, "c"), (2, "c"), (3, "c")]
    assert operations(logged, "others") == [(1, "c")]
    # What it has by now is read once it is no longer excluded, if rows that are there are read at all.
    with_source(logged, {}, snapshot=snapshot, exclude=["*.Order *"])
    logged.run()
    logged.sql("INSERT INTO others VALUES (4)")
    logged.run()
    assert operations(logged, "others") == [(1, "c"), *([(3, "r")] if snapshot == "initial" else []), (4, "c")]


def test_a_table_that_is_blocked_meanwhile_is_named_at_the_end_of_the_run(create: Create) -> None:
    logged = create()
    logged.run()
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    with SourcePlane(logged.pipeline) as plane:
        steps = run_steps(plane, report := SourceReport())
        assert next(steps).records == 1
        logged.sql('CREATE TABLE "Order Items" (id int)', f'ALTER PUBLICATION {logged.name} ADD TABLE "Order Items"')
        assert not list(steps)
    assert [blocker.where for blocker in report.blockers] == [f"{logged.name}.Order Items"]


def test_columns_without_the_key_stand_alone(create: Create) -> None:
    logged = create(ITEMS, "CREATE TABLE others (id int PRIMARY KEY)")
    logged.sql(
        f"ALTER PUBLICATION {logged.name} SET TABLE {logged.name}.items (what), {logged.name}.others",
        f"ALTER PUBLICATION {logged.name} SET (publish = 'insert')",
        "INSERT INTO items VALUES (1, 'a')",
        "INSERT INTO others VALUES (1)",
    )
    [blocker] = logged.run().blockers
    assert (blocker.where, "id" in blocker.why) == (f"{logged.name}.items", True)
    assert operations(logged, "others") == [(1, "r")]


def test_rows_that_a_policy_hides_are_not_taken_for_none(create: Create) -> None:
    logged = create(ITEMS, "CREATE TABLE others (id int PRIMARY KEY)")
    role = f"{logged.name}_app"
    logged.sql(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT USAGE ON SCHEMA {logged.name} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {logged.name} TO {role}",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
        "INSERT INTO items VALUES (1, 'a')",
        "INSERT INTO others VALUES (1)",
    )
    by_user(logged, role)
    [blocker] = logged.run().blockers
    assert (blocker.where, f"ALTER ROLE {role} BYPASSRLS" in blocker.hint) == (f"{logged.name}.items", True)
    assert operations(logged, "others") == [(1, "r")]
    logged.sql(f"ALTER ROLE {role} BYPASSRLS")
    assert not logged.run().blockers
    assert operations(logged, "items") == [(1, "r")]


def test_without_snapshots_rows_need_not_be_readable_and_names_must_fit(create: Create) -> None:
    logged = of_schema(create(log={"snapshot": "never"}))
    role = f"{logged.name}_app"
    logged.sql(f"CREATE ROLE {role} LOGIN REPLICATION")
    by_user(logged, role)
    logged.run()
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    logged.run()
    assert operations(logged, "items") == [(1, "c")]
    logged.sql('CREATE TABLE "Order Items" (id int PRIMARY KEY)')
    with raises(Code.TABLE_NOT_TAKEN, f"{logged.name}.Order Items"):
        logged.run()


def test_a_table_of_domains_alone_is_read(create: Create) -> None:
    logged = create(
        "CREATE DOMAIN posint AS int", "CREATE DOMAIN moment AS timestamptz", "CREATE DOMAIN raw AS bytea",
        "CREATE TABLE items (id posint PRIMARY KEY, at moment, bytes raw, many posint[])",
    )  # fmt: skip
    row = "'infinity', '\\xff', '{1,2}'"
    logged.sql(f"INSERT INTO items VALUES (1, {row})")
    logged.run()
    logged.sql(f"INSERT INTO items VALUES (2, {row})")
    logged.run()
    first, second = last(logged, "items").values()
    assert first == {"id": 1, "at": "infinity", "bytes": "/w==", "many": [1, 2]}
    assert second == {**first, "id": 2}
