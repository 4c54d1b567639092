"""The peer of sources: Debezium's PostgreSQL connector with exactly-once, in a Kafka Connect worker of its own.

It is set to be fast: large batches and queues, lz4 on the way, records of ten seconds in a transaction, no headers.
What it does without a start is measured from the half of the records on, when its JVM has compiled what it needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from bench.java_peer import JavaPeer
from bench.measure import Measured
from bench.orders import PUBLICATION, SCHEMA, TABLE
from calve.sink_core.detached import HOST, free_port
from calve.sink_core.jars import JarSet, kafka_jars, resolve
from calve.sink_core.java import write_properties
from tests.peers.connect import CONNECT
from tests.postgres import DATABASE, USER

VERSION = "3.6.1.Final"
DEBEZIUM = JarSet("debezium-postgres", roots=(f"io.debezium:debezium-connector-postgres:{VERSION}",))
OF_THE_WORKER = ("connect-", "kafka-clients-", "slf4j-")
"""What begins so comes with the worker, in its version."""
JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {
    "group.id": "bench-connect",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    **{f"{of}.converter": JSON for of in ("key", "value")},
    **{f"{of}.converter.schemas.enable": "false" for of in ("key", "value")},
    **{f"{of}.storage.topic": f"bench-connect-{of}" for of in ("config", "offset", "status")},
    **{f"{of}.storage.replication.factor": "1" for of in ("config", "offset", "status")},
    **{f"{of}.storage.partitions": "1" for of in ("offset", "status")},
    "producer.batch.size": "1000000",
    "producer.linger.ms": "50",
    "producer.buffer.memory": str(256 * 2**20),
    "producer.compression.type": "lz4",
    "producer.max.request.size": str(16 * 2**20),
}
CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "exactly.once.support": "required",
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "10000",
    "plugin.name": "pgoutput",
    "publication.name": PUBLICATION,
    "publication.autocreate.mode": "disabled",
    "table.include.list": f"{SCHEMA}.{TABLE}",
    "snapshot.mode": "no_data",
    "decimal.handling.mode": "string",
    "tombstones.on.delete": "true",
    "extended.headers.enabled": "false",
    "max.batch.size": "20000",
    "max.queue.size": "80000",
    "database.hostname": HOST,
    "database.user": USER,
    "database.password": "none",
    "database.dbname": DATABASE,
}
_DIED = "uncaught and unrecoverable exception"


@dataclass(frozen=True, slots=True)
class Debezium:
    """What it reads, and where to: topic `NAME.public.orders`. `directory` is for its files."""

    bootstrap: str
    directory: Path
    postgres_port: int
    slot: str
    name: str

    def read(self, records: int, sent: Callable[[], int]) -> Sequence[Measured]:
        """From the half of the records to the last, and from the worker's start to the last. `sent` says how many there
        are. Raises SystemExit if it ends, or doesn't come to an end.
        """
        port, plugins = free_port(), self.directory / "plugins" / DEBEZIUM.name
        plugins.mkdir(parents=True)
        for jar in resolve(DEBEZIUM):
            if not jar.name.startswith(OF_THE_WORKER):
                (plugins / jar.name).symlink_to(jar)
        settings = {
            **{key: value.replace("bench-connect", self.name) for key, value in WORKER.items()},
            "bootstrap.servers": self.bootstrap,
            "plugin.path": str(plugins.parent),
            "listeners": f"http://{HOST}:{port}",
        }
        file = write_properties(self.directory / "worker.properties", settings)
        main, jars = "org.apache.kafka.connect.cli.ConnectDistributed", [*resolve(CONNECT), *kafka_jars()]
        peer = JavaPeer("Debezium", main, file, jars, self.directory, _DIED)
        return peer.measured(records, sent, begin=lambda: _posted(port, self.name, self._connector()))

    def _connector(self) -> Mapping[str, str]:
        of_this_run = {
            "database.port": str(self.postgres_port),
            "slot.name": self.slot,
            "topic.prefix": self.name,
        }
        return {**CONNECTOR, **of_this_run}


def fetch() -> None:
    """Its jars, which a machine gets once: no part of a start."""
    for jars in (CONNECT, DEBEZIUM):
        resolve(jars)


def _posted(port: int, name: str, connector: Mapping[str, str]) -> bool:
    """Whether the worker has taken the connector; False while it does not listen yet. Raises SystemExit if it is
    refused.
    """
    connection = HTTPConnection(HOST, port, timeout=30)
    with suppress(OSError, HTTPException):
        connection.request(
            "PUT", f"/connectors/{name}/config", json.dumps(connector), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status == 400:
            raise SystemExit(f"the worker refuses Debezium: {text}")
        return answer.status in (200, 201)
    return False
