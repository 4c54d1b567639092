"""iceberg-kafka-connect 1.12.0 as a peer: two tasks, a commit every two seconds, its own defaults otherwise."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition as KafkaPartition

from calve.sink_core.control.group import SourceGroup
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import high_watermarks
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.peers.connect import MEMBERS, Connect
from tests.peers.peer import PARTITIONS, POLL_S, TIMEOUT_S, Peer, schema

COMMIT_EVERY_S = 2.0
RIGHT_FOR_S = 8.0
"""How long a table that has what it should is watched for more."""
WRONG_FOR_S = 50.0
WRONG_FOR_EVENTS = 20
"""How long a table that lacks something is left alone before it counts as lost: beyond its commit time-out of 30 s, and
several rounds of commits as its control topic shows them."""
GIVE_UP_S = 600.0
RANDOM_S = (3.0, 15.0)


class Connector(Peer):
    """Its worker is a process of its own that is started, stopped and killed."""

    name = "iceberg-kafka-connect"

    def __init__(self, bootstrap: str, directory: Path) -> None:
        super().__init__()
        unique = support.unique("sink")
        self.bootstrap, self.lake, self.catalog = bootstrap, directory / unique / "lake", unique.replace("-", "_")
        self.topic = support.create_topic(bootstrap, f"{unique}-records", PARTITIONS)
        self.control_topic = support.create_topic(bootstrap, f"{unique}-control")
        self.table, self.source_group = "db.events", f"connect-{unique}"
        self.coordinator_group = f"{self.source_group}-coord"
        self.other_groups = (self.coordinator_group,)
        with self.opened() as catalog:
            catalog.create_namespace("db")
            catalog.create_table(self.table, schema())
        settings: dict[str, Any] = {
            "name": unique,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": 2,
            "topics": self.topic,
            "iceberg.tables": self.table,
            "iceberg.control.topic": self.control_topic,
            "iceberg.control.commit.interval-ms": int(COMMIT_EVERY_S * 1000),
            **{f"iceberg.kafka.{key}": value for key, value in MEMBERS.items()},
            "iceberg.catalog": self.catalog,
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.uri": f"jdbc:sqlite:{self.lake / 'catalog.db'}",
            "iceberg.catalog.warehouse": f"file://{self.lake / 'warehouse'}",
        }
        self._settings = {key: str(value) for key, value in settings.items()}
        self._connect = Connect(bootstrap, directory / unique, self._settings)

    def take_in(self) -> None:
        self._connect.start()
        self._settle()
        self._note()

    def begin(self) -> None:
        self.take_in()

    def rest(self) -> None:
        self._connect.stop()

    def die_in_the_first_commit(self) -> None:
        self._connect.start()
        with closing(clients.reader({"bootstrap.servers": self.bootstrap}, group=support.unique("watch"))) as reader:
            reader.assign([KafkaPartition(self.control_topic, 0, 0)])
            seen: set[str] = set()
            deadline = time.monotonic() + GIVE_UP_S
            while not {"DataWritten", "DataComplete"} <= seen:
                assert time.monotonic() < deadline, f"nothing was announced: {seen}"
                message = reader.poll(POLL_S)
                value = message.value() if message is not None and message.error() is None else None
                # Each event brings its Avro schema, which has the name of its Java class.
                seen |= {kind for kind in ("DataWritten", "DataComplete") if kind.encode() in (value or b"")}
        self._connect.kill()
        assert self.load().current_snapshot() is None, "it had committed before it was killed"

    def die_at_random(self, chance: random.Random) -> None:
        self._connect.start()
        time.sleep(chance.uniform(*RANDOM_S))
        self._connect.kill()

    def reset_coordinator(self) -> None:
        self.reset_group(self.coordinator_group, self.control_topic, 1)

    def tolerate(self) -> None:
        if "FAILED" not in self._connect.states() or "errors.tolerance" in self._settings:
            return
        waiting = self.produced - len(set(self.ids()))
        self.did.append(f"{waiting:,} records waited until `errors.tolerance=all` was set")
        self.rest()
        self._settings["errors.tolerance"] = "all"
        self._connect = replace(self._connect, connector=self._settings)
        self._connect.start()
        self._settle()

    def _settle(self) -> None:
        """Wait until nothing more can be expected: see `RIGHT_FOR_S` and `WRONG_FOR_S`."""
        began = since = time.monotonic()
        last, events = (-1, -1), 0
        while time.monotonic() - began < GIVE_UP_S:
            failed = "FAILED" in self._connect.states()
            now = (self.rows(), self._consumed())
            if now != last:
                last, since, events = now, time.monotonic(), self._events()
            quiet_s = time.monotonic() - since
            if quiet_s > RIGHT_FOR_S and (failed or (now[0] == self.produced and self._is_at_end())):
                return
            if quiet_s > WRONG_FOR_S and self._events() - events >= WRONG_FOR_EVENTS:
                return
            time.sleep(5 * POLL_S)
        raise TimeoutError(f"rows and consumed offsets {last}, still not settled after {GIVE_UP_S:.0f} s")

    def _note(self) -> None:
        errors = self._connect.errors()
        if "FAILED" in self._connect.states():
            self.said.append(f"tasks FAILED ({errors[0] if errors else 'without a message'})")
        elif errors:
            self.said.append(errors[0])

    def _is_at_end(self) -> bool:
        partitions = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        return self._consumed() == sum(high_watermarks(self.admin, partitions, timeout_s=TIMEOUT_S).values())

    def _events(self) -> int:
        """How many events its control topic has had."""
        return sum(high_watermarks(self.admin, [TopicPartition(self.control_topic, 0)], timeout_s=TIMEOUT_S).values())

    def _consumed(self) -> int:
        """The sum of the source group's offsets."""
        partitions = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        with closing(SourceGroup({"bootstrap.servers": self.bootstrap}, self.source_group)) as group:
            return sum(position.offset for position in group.positions(partitions).values())
