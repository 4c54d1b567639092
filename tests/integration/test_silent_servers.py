"""A server that accepts and never answers again: each run ends by itself, and the next one makes it good.

Of a registry `test_avro.py` shows it, of a REST catalog `test_trouble_rest.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from calve.orchestration.local import broker as embedded
from calve.orchestration.local.broker import Broker
from calve.sink_core import libpq
from calve.sink_core.codes import Code
from calve.sink_core.config.load import CONNECTIONS_FILE
from calve.sink_core.kafka import clients
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.codes import raises
from tests.logged import ITEMS, Logged
from tests.mirror_flow import MirrorFlow
from tests.object_store import BUCKET, ObjectStore
from tests.pipelines import Flow, reached
from tests.postgres import DATABASE, USER, Postgres, postgres
from tests.relay import Relay, relay
from tests.source_flow import lines_of
from tests.support import TopicFactory

FIRST, LATER = range(10), range(10, 20)
IDS = [*FIRST, *LATER]


@pytest.fixture
def silent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of PostgreSQL is known to be silent after two seconds, not after a minute and a half."""
    monkeypatch.setattr(libpq, "WATCH", libpq.Watch())
    for name in ("EVERY_S", "ANSWER_S"):
        monkeypatch.setattr(libpq, name, 0.5)


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def between(server: Postgres) -> Generator[Relay]:
    with relay(server.port) as relayed:
        yield relayed


@pytest.fixture
def mute(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Generator[Broker]:
    """A broker of the test's own, to be stopped; six seconds are waited for it, not thirty."""
    monkeypatch.setattr(clients, "ADMIN_TIMEOUT_S", 6.0)
    directory = tmp_path_factory.mktemp("mute")
    with support.short_lived():
        broker = embedded.start(directory, heap_mb=512)
    try:
        yield broker
    finally:
        psutil.Process(broker.pid).resume()
        embedded.stop(directory)


def stop(broker: Broker) -> None:
    """Its kernel accepts and acknowledges for it."""
    psutil.Process(broker.pid).suspend()


def check_each_is_there_once(flow: Flow) -> None:
    with flow.session() as session:
        assert sorted(session.catalog.load_table(flow.table).scan().to_arrow()["id"].to_pylist()) == IDS
        assert verify(session, deep=True).violations == ()


def test_a_sink_ends_whose_broker_is_silent(tmp_path: Path, mute: Broker) -> None:
    flow = Flow.create(tmp_path, mute.bootstrap, support.create_topic(mute.bootstrap, support.unique("t")))
    flow.produce(FIRST)
    flow.run()
    flow.produce(LATER)
    with raises(Code.NO_BROKER), reached("plan.after-start-commit", lambda: stop(mute)):
        flow.run()
    psutil.Process(mute.pid).resume()
    flow.run()
    check_each_is_there_once(flow)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_mirror_ends_one_of_whose_clusters_is_silent(end: str, tmp_path: Path, mute: Broker, broker: Broker) -> None:
    source, target = (mute, broker) if end == "source" else (broker, mute)
    topic = support.create_topic(source.bootstrap, support.unique("t"))
    mirror = MirrorFlow.create(tmp_path, source.bootstrap, target.bootstrap, topic)
    support.produce(source.bootstrap, topic, [b"a"])
    mirror.run()
    support.produce(source.bootstrap, topic, [b"b"])
    stop(mute)
    with raises(Code.NO_BROKER):
        mirror.run()
    psutil.Process(mute.pid).resume()
    mirror.run()
    assert support.consume(target.bootstrap, mirror.remote(topic)) == [b"a", b"b"]


def test_a_source_ends_whose_target_is_silent(tmp_path: Path, mute: Broker) -> None:
    lines = lines_of(mute, tmp_path)
    lines.write("a", "one")
    lines.run()
    lines.write("a", "two")
    stop(mute)
    with raises(Code.NO_BROKER):
        lines.run()
    psutil.Process(mute.pid).resume()
    lines.run()
    assert lines.values() == ["one", "two"]


@pytest.mark.usefixtures("silent_soon")
def test_a_sink_ends_whose_sql_catalog_is_silent(
    between: Relay, tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    by_way = {"uri": f"postgresql+psycopg2://{USER}@127.0.0.1:{between.port}/{DATABASE}"}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), lake_properties=by_way)
    flow.produce(FIRST)
    flow.run()
    flow.produce(LATER)
    with raises(Code.CATALOG_AWAY), reached("commit.after-check", between.fall_silent):
        flow.run()
    between.recover()
    flow.run()
    check_each_is_there_once(flow)


@pytest.mark.usefixtures("silent_soon")
@pytest.mark.parametrize("way", [{}, {"tables_by": "transaction", "value": {"shape": "row"}}])
def test_a_source_ends_whose_database_is_silent(
    way: dict[str, Any], between: Relay, server: Postgres, tmp_path: Path, broker: Broker
) -> None:
    """Before its rows are read; by the log, and by query."""
    logged = Logged.create(server, broker.bootstrap, tmp_path, ITEMS, **way)
    connections = logged.file.with_name(CONNECTIONS_FILE)
    connections.write_text(connections.read_text().replace(f":{server.port}/", f":{between.port}/"))
    logged.sql("INSERT INTO items VALUES (1, 'a')")
    logged.run()
    logged.sql("INSERT INTO items VALUES (2, 'b')")
    with raises(Code.NO_DATABASE), reached("transaction.after-begin", between.fall_silent):
        logged.run()
    between.recover()
    logged.run()
    assert sorted(at["id"] for at, _ in logged.records("items")) == [1, 2]


def test_an_object_store_that_is_silent_ends_the_run(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    store = ObjectStore(tmp_path)
    store.start()
    try:
        with relay(store.ports["s3"]) as between:
            properties = {**store.properties, "s3.endpoint": f"http://127.0.0.1:{between.port}"}
            flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
            flow = flow.but(lake_properties={**properties, "warehouse": f"s3://{BUCKET}/{flow.name}"})
            flow.produce(FIRST)
            flow.run()
            flow.produce(LATER)
            with raises(Code.CATALOG_AWAY), reached("write.after-files", between.fall_silent):
                flow.run()
            between.recover()
            flow.run()
            check_each_is_there_once(flow)
    finally:
        store.stop()
