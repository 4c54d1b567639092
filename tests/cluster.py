"""Three real brokers in one KRaft cluster: partitions have leaders that can be killed while the others go on."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from calve.orchestration.local import broker_files
from calve.sink_core.detached import HOST, tail
from calve.sink_core.jars import kafka_jars
from calve.sink_core.java import find_java, write_properties
from calve.sink_core.kafka import clients
from tests import support

NODES = (1, 2, 3)
HEAP_MB = 256
START_S = 120.0
TRANSACTIONS = "__transaction_state"
_COPIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A dead follower leaves the in-sync replicas after this long.
    "replica.lag.time.max.ms": "4000",
}


@dataclass
class ThreeBrokers:
    """Each node is broker and controller; everything of node N is below `directory`/N."""

    directory: Path
    ports: Mapping[int, int] = field(default_factory=lambda: {node: support.steady_port() for node in NODES})
    _controllers: Mapping[int, int] = field(default_factory=lambda: {node: support.steady_port() for node in NODES})
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict[int, "subprocess.Popen[bytes]"])

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def start(self) -> None:
        """Format and start all; returns once each of them is registered."""
        cluster_id = broker_files.new_cluster_id()
        for node in NODES:
            self._format(node, cluster_id)
        self.start_missing()

    def start_missing(self) -> None:
        """Start those that were killed, on their data and ports; returns once all three answer."""
        for node in NODES:
            if node not in self._processes:
                command = [*self._java(node), f"-Xmx{HEAP_MB}m", "kafka.Kafka", str(self._properties(node))]
                with self._log(node).open("ab") as log:
                    self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log)
        self._await(lambda: len(self._metadata().brokers) == len(NODES))

    def stop(self) -> None:
        """SIGKILL to all."""
        for node in list(self._processes):
            self.kill(node)

    def kill(self, node: int) -> None:
        """SIGKILL, and gone when this returns."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def create_topic(self, name: str, partitions: int) -> str:
        self._admin.create_topics([NewTopic(name, partitions)])[name].result(START_S)
        self.await_in_sync(name)
        return name

    def create_unreplicated(self, name: str) -> str:
        """A topic of one partition for each node, 0 on the first."""
        new = NewTopic(name, len(NODES), replica_assignment=[[node] for node in NODES])
        self._admin.create_topics([new])[name].result(START_S)
        self._await(lambda: [self.leader(name, partition) for partition in range(len(NODES))] == list(NODES))
        return name

    def kill_noticed(self, node: int, topic: str, partition: int) -> None:
        """As `kill`; returns once the others know that a partition of its own has no leader."""
        self.kill(node)
        self._await(lambda: self.leader(topic, partition) == -1)

    def leader(self, topic: str, partition: int = 0) -> int:
        return self._metadata(topic).topics[topic].partitions[partition].leader

    def coordinator(self, transactional_id: str) -> int:
        """The node that decides this id's transactions."""
        partitions = len(self._metadata(TRANSACTIONS).topics[TRANSACTIONS].partitions)
        return self.leader(TRANSACTIONS, (java_hash(transactional_id) & 0x7FFFFFFF) % partitions)

    def await_in_sync(self, topic: str) -> None:
        """Until every partition of a topic has three replicas in sync again."""
        self._await(
            lambda: all(len(p.isrs) == len(NODES) for p in self._metadata(topic).topics[topic].partitions.values())
        )

    def _metadata(self, topic: str | None = None) -> ClusterMetadata:
        return self._admin.list_topics(topic, timeout=10) if topic else self._admin.list_topics(timeout=10)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3}, logger=clients.LOGGER)

    def _await(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while True:
            with suppress(KafkaException, KeyError):
                if there():
                    return
            dead = [node for node, process in self._processes.items() if process.poll() is not None]
            assert not dead, tail(self.directory / str(dead[0]) / "broker.log")
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _format(self, node: int, cluster_id: str) -> None:
        (self.directory / str(node)).mkdir(parents=True)
        self._properties(node)
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties(node))]
        done = subprocess.run([*self._java(node), *tool], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def _properties(self, node: int) -> Path:
        folder = self.directory / str(node)
        voters = ",".join(f"{other}@{HOST}:{self._controllers[other]}" for other in NODES)
        mine = {**_COPIES, "node.id": str(node), "controller.quorum.voters": voters}
        settings = broker_files.settings(folder, HOST, self.ports[node], self._controllers[node], mine)
        return write_properties(folder / "server.properties", settings)

    def _java(self, node: int) -> list[str]:
        logging = broker_files.write_logging(self.directory / str(node))
        jars = os.pathsep.join(map(str, kafka_jars()))
        return [str(find_java()), *support.SHORT_LIVED, "-cp", jars, f"-Dlog4j2.configurationFile={logging}"]

    def _log(self, node: int) -> Path:
        return self.directory / str(node) / "broker.log"


def java_hash(text: str) -> int:
    """`String.hashCode` of an ASCII text, as an unsigned 32-bit number."""
    value = 0
    for character in text.encode("ascii"):
        value = (31 * value + character) & 0xFFFFFFFF
    return value
