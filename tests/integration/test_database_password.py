"""A password of any characters lets in by each way to write it, and no message of a failure holds a part of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.connections import DatabaseConnection
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import CalveError
from calve.sink_core.source.postgres import connecting
from calve.sink_core.source.tables.database import Database
from tests.codes import raises
from tests.postgres import Postgres, postgres

PASSWORD = "pg@1 2/:?#%x"
PARTS = ("pg@1", "@1", "2/:", "%x", "1%402", "pg%401")


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres(PASSWORD) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_TEST_PG", PASSWORD)


def ways(server: Postgres, port: int) -> list[str]:
    """Parts, a reference in an address, and an address with the password as it is."""
    before, _, place = server.url.partition("@")
    user, (_, _, database) = before.rpartition("/")[2], place.partition("/")
    parts = {"host": "127.0.0.1", "port": port, "user": user, "password": "${ENV:CALVE_TEST_PG}", "database": database}
    return [
        resolve(DatabaseConnection.model_validate(parts).properties)["url"],
        resolve({"url": f"postgresql://{user}:${{ENV:CALVE_TEST_PG}}@127.0.0.1:{port}/{database}"})["url"],
        f"postgresql://{user}:{PASSWORD}@127.0.0.1:{port}/{database}",
    ]


def test_each_way_lets_in(server: Postgres) -> None:
    for url in ways(server, server.port):
        with closing(connecting.connected(url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
        assert Database(url).fingerprint


def test_no_failure_holds_a_part_of_the_password(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for url in ways(server, 1):
        with raises(Code.NO_DATABASE, "127.0.0.1") as raised, connecting.reported(url):
            connecting.connected(url)
        said.append(str(raised.value))
        assert raised.value.__cause__ is None
        with pytest.raises(CalveError) as failed:
            _ = Database(url).fingerprint
        said.append(str(failed.value))
    monkeypatch.setenv("CALVE_TEST_PG", f"{PASSWORD}no")
    wrong = ways(server, server.port)[0]
    with raises(Code.NO_DATABASE) as raised, connecting.reported(wrong):
        connecting.connected(wrong)
    said.append(str(raised.value))
    assert [(part, text) for part in PARTS for text in said if part in text] == []
