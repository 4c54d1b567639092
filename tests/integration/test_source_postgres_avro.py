"""The log of a real PostgreSQL in Avro, with the schemas of a real registry."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from tests import support
from tests.codes import raises
from tests.logged import Logged
from tests.postgres import Postgres, postgres
from tests.schema_registry import SchemaRegistry

TABLE = """CREATE TABLE items
    (id int PRIMARY KEY, big bigint, share real, yes boolean, raw bytea, exact numeric, tags text[])"""


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


def made(server: Postgres, broker: Broker, directory: Path, url: str, shape: str, *sql: str) -> Logged:
    value = {"type": "avro", "shape": shape, "registry": "here"}
    logged = Logged.create(server, broker.bootstrap, directory, *(sql or (TABLE,)), value=value, partitions=1)
    connections = yaml.safe_load((directory / "connections.yaml").read_text())
    (directory / "connections.yaml").write_text(yaml.safe_dump({**connections, "registry": {"here": {"url": url}}}))
    return logged


def read(logged: Logged, registry: SchemaRegistry) -> list[tuple[Any, Any]]:
    """As a consumer reads them that knows only the registry."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        decode = AvroDeserializer(client)
        messages = support.messages(logged.bootstrap, f"{logged.name}.items")
        return [(decode(m.key(), None), decode(m.value(), None)) for m in messages]


def test_change_events_are_read_by_their_registered_schema(
    server: Postgres, broker: Broker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    logged = made(server, broker, tmp_path, registry.url, "debezium")
    values = "9007199254740993, 'NaN', true, '\\xff00', 1.50, ARRAY['a', NULL]"
    logged.sql(f"INSERT INTO items VALUES (1, {values})")
    logged.run()
    # Another schema, compatible with the first.
    logged.sql("ALTER TABLE items ADD COLUMN more date", "UPDATE items SET more = '2024-02-29', share = 0.5")
    logged.sql("DELETE FROM items")
    logged.run()
    row = {"id": 1, "big": 9007199254740993, "yes": True, "raw": b"\xff\0", "exact": "1.50", "tags": '["a", null]'}
    (key, first), (_, second), (_, third), (_, tombstone) = read(logged, registry)
    assert key == {"id": 1}
    assert str(first["after"].pop("share")) == "nan"
    assert (first["op"], first["before"], first["after"]) == ("r", None, row)
    assert (second["op"], second["after"]) == ("u", {**row, "share": 0.5, "more": "2024-02-29"})
    assert (third["op"], third["after"], third["before"]["id"], third["before"]["big"]) == ("d", None, 1, None)
    assert third["source"]["table"] == "items"
    assert tombstone is None


def test_rows_alone_have_the_columns_as_fields(
    server: Postgres, broker: Broker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    logged = made(server, broker, tmp_path, registry.url, "row", "CREATE TABLE items (id int PRIMARY KEY, what text)")
    logged.sql("INSERT INTO items VALUES (1, 'a'), (2, NULL)")
    logged.run()
    assert read(logged, registry) == [({"id": 1}, {"id": 1, "what": "a"}), ({"id": 2}, {"id": 2, "what": None})]


def test_a_registry_that_does_not_answer_or_a_name_that_avro_has_not_is_said(
    server: Postgres, broker: Broker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    (tmp_path / "a").mkdir()
    logged = made(server, broker, tmp_path / "a", f"http://127.0.0.1:{support.steady_port()}", "row")
    logged.sql("INSERT INTO items (id) VALUES (1)")
    with raises(Code.REGISTRY_DOWN):
        logged.run()
    (tmp_path / "b").mkdir()
    odd = 'CREATE TABLE items (id int PRIMARY KEY, "per cent" int)'
    logged = made(server, broker, tmp_path / "b", registry.url, "row", odd)
    logged.sql("INSERT INTO items VALUES (1, 2)")
    with raises(Code.NO_AVRO_NAME):
        logged.run()
