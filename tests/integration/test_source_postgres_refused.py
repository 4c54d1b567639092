"""What stops a source of PostgreSQL's log, and what is said of it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE, EXIT_STOPPED, FindingError, Unreachable
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.source.postgres import connecting
from tests.codes import finding, raises, says
from tests.launch import calve, forked
from tests.logged import ITEMS, Logged
from tests.postgres import Postgres, postgres


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


Make = Callable[..., Logged]


@pytest.fixture
def made(server: Postgres, broker: Broker, tmp_path: Path) -> Make:
    return lambda *sql, **options: Logged.create(server, broker.bootstrap, tmp_path, *(sql or (ITEMS,)), **options)


def found_by_a_run(logged: Logged, finding: str) -> tuple[str, str]:
    """Both values."""
    with pytest.raises(FindingError, match=finding) as raised:
        logged.run()
    assert logged.name in raised.value.subject
    return raised.value.stored, raised.value.found


def test_a_slot_that_was_dropped_stops_until_all_is_read_anew(made: Make) -> None:
    logged = made()
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    logged.run()
    logged.ask("SELECT pg_drop_replication_slot(%s)::text", logged.name)
    logged.sql("INSERT INTO items VALUES (2, 'in no log that is kept')")
    stored, found = found_by_a_run(logged, "replication-slot-gone")
    assert stored == logged.offsets()["log"]["lsn"] != found
    assert logged.told("items") == [(1, "r")]
    [listed] = json.loads(calve("status", logged.file, "--json").stdout)["findings"]
    assert listed.startswith("replication-slot-gone: ")
    checked = calve("check", logged.file)
    assert (checked.returncode, "replication-slot-gone" in checked.stdout) == (EXIT_STOPPED, True)
    # As the hint says.
    assert calve("pause", logged.file, "--wait").returncode == EXIT_DONE
    assert calve("positions", "reset", logged.file, "--yes").returncode == EXIT_DONE
    assert calve("resume", logged.file).returncode == EXIT_DONE
    logged.run()
    assert logged.told("items") == [(1, "r"), (1, "r"), (2, "r")]


def test_a_slot_that_somebody_else_advanced_stops_with_both_places(made: Make) -> None:
    logged = made()
    logged.run()
    logged.sql("INSERT INTO items VALUES (1, 'read by another')")
    logged.ask("SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())::text", logged.name)
    assert found_by_a_run(logged, "replication-slot-ahead") == (logged.offsets()["log"]["lsn"], logged.confirmed())
    assert logged.told("items") == []


def test_another_timeline_stops_until_somebody_says_that_nothing_was_lost(made: Make) -> None:
    logged = made()
    logged.run()
    log = logged.offsets()["log"]
    partition = json.dumps({"slot": logged.name})
    # As it looks where a standby has taken over since: the server is on the first timeline.
    assert calve("pause", logged.file, "--wait").returncode == EXIT_DONE
    for timeline in (7, 1):
        offset = json.dumps({**log, "timeline": timeline})
        said = calve("positions", "set", logged.file, "--partition", partition, "--offset", offset, "--yes")
        assert said.returncode == EXIT_DONE, said.stderr
        if timeline == 7:
            assert calve("resume", logged.file).returncode == EXIT_DONE
            logged.sql("INSERT INTO items VALUES (1, 'a')")
            stored, found = found_by_a_run(logged, "other-timeline")
            assert (stored.split()[-1], found.split()[-1]) == ("7", "1")
            assert calve("pause", logged.file, "--wait").returncode == EXIT_DONE
    assert calve("resume", logged.file).returncode == EXIT_DONE
    logged.run()
    assert logged.told("items") == [(1, "c")]


def test_another_database_is_another_system(made: Make) -> None:
    logged = made()
    logged.run()
    written = yaml.safe_load(logged.file.read_text())
    written["source"]["log"]["slot"] = f"{logged.name}_2"
    logged.file.write_text(yaml.safe_dump(written))
    with raises(finding("other-system")):
        logged.run()


def test_a_slot_in_use_is_waited_for_and_then_named_with_who_has_it(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = made()
    logged.run()
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    monkeypatch.setattr(connecting, "FREE_S", 0.5)
    with logged.streaming() as pid, raises(Code.SLOT_IN_USE, pid):
        logged.run()
    logged.run()
    assert logged.told("items") == [(1, "c")]


def test_what_is_missing_is_said_by_the_check_and_by_the_run(made: Make) -> None:
    logged = made()
    logged.sql(f"DROP PUBLICATION {logged.name}")
    with raises(Code.NO_PUBLICATION, logged.name):
        logged.run()
    said = calve("check", logged.file)
    assert said.returncode == EXIT_STOPPED
    says(said.stdout, Code.NO_PUBLICATION, f"CREATE PUBLICATION {logged.name} FOR TABLE")


def test_a_server_that_writes_no_rows_to_its_log_says_what_to_set(broker: Broker, tmp_path: Path) -> None:
    with postgres(wal_level="replica") as server:
        said = calve("check", Logged.create(server, broker.bootstrap, tmp_path, ITEMS).file)
    assert said.returncode == EXIT_STOPPED
    says(said.stdout, Code.DATABASE_REFUSED, "wal_level", "replica", "wal_level = logical")


def test_what_a_server_can_not_do_for_the_moment_is_tried_again(made: Make) -> None:
    logged = made()
    with raises(Code.DATABASE_NOT_NOW), connecting.reported(logged.server.url), logged.session() as cursor:
        # As a standby answers that has not taken over yet.
        cursor.execute("SET default_transaction_read_only TO on")
        cursor.execute("CREATE TABLE new (id int)")


def test_a_slot_of_another_plugin_is_not_touched(made: Make) -> None:
    logged = made()
    logged.ask("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')::text", logged.name)
    with raises(Code.NOT_OUR_SLOT, logged.name, "test_decoding"):
        logged.run()


def test_a_user_without_the_permission_is_told_so_without_its_password(made: Make) -> None:
    logged = made()
    role = f"{logged.name}_app"
    logged.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'pg-secret'")
    connections = yaml.safe_load((logged.directory / "connections.yaml").read_text())
    url = logged.server.url.replace("calve@", f"{role}:pg-secret@")
    connections["database"]["here"]["url"] = url
    (logged.directory / "connections.yaml").write_text(yaml.safe_dump(connections))
    with raises(Code.DATABASE_RIGHTS, "REPLICATION") as raised:
        logged.run()
    assert "pg-secret" not in str(raised.value)
    assert "pg-secret" not in calve("config", logged.file).stdout
    says(calve("check", logged.file).stdout, Code.DATABASE_RIGHTS, "REPLICATION")
    logged.sql(f"ALTER ROLE {role} REPLICATION")
    [blocker] = logged.run().blockers
    assert f"GRANT USAGE ON SCHEMA {logged.name} TO {role}" in blocker.hint
    logged.sql(f"GRANT USAGE ON SCHEMA {logged.name} TO {role}")
    [blocker] = logged.run().blockers
    assert blocker.where == f"{logged.name}.items"
    assert f"GRANT SELECT ON {logged.name}.items TO {role}" in blocker.hint
    assert blocker.hint in calve("check", logged.file).stdout.replace("\n", " ")
    logged.sql("INSERT INTO items VALUES (1, 'a')", f"GRANT SELECT ON {logged.name}.items TO {role}")
    assert not logged.run().blockers
    assert logged.told("items") == [(1, "r")]
    connections["database"]["here"]["url"] = re.sub(r":\d+/", ":1/", url)
    (logged.directory / "connections.yaml").write_text(yaml.safe_dump(connections))
    with raises(Code.NO_DATABASE, of=Unreachable):
        logged.run()


@pytest.mark.parametrize("point", ["generation.after-fence", "slot.after-check", "transaction.mid-rows"])
def test_a_snapshot_that_is_killed_is_taken_anew(point: str, made: Make) -> None:
    logged = made()
    logged.sql("INSERT INTO items SELECT i, 'there' FROM generate_series(1, 25000) i")
    at = "source.after-offsets" if point == "transaction.mid-rows" else point
    killed = forked("run", logged.file, **{VARIABLE: f"{at}=kill"})
    assert killed.returncode == -signal.SIGKILL
    logged.sql("UPDATE items SET what = 'changed' WHERE id <= 10", "DELETE FROM items WHERE id = 11")
    logged.run()
    assert logged.rows("items") == logged.there("items")
    assert len(logged.records("items")) == 24_999
