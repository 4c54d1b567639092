"""What the scenarios ask of a system under test, and what can be done to any of them from outside."""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests import damage, support
from tests.peers.outcome import Outcome, counted

PARTITIONS = 4
BAD_JSON = b'{"id": 1, "text": '
BAD_VALUE = b'{"id": "abc", "text": "no number"}'
TIMEOUT_S = 300.0
POLL_S = 0.1


class Peer(ABC):
    """A sink that reads one topic of `PARTITIONS` partitions into one table `{id long, text string}`.

    Ids are 0, 1, 2, … as produced. `table` is in the SQLite catalog `catalog` below `lake`.
    """

    name: str
    bootstrap: str
    topic: str
    table: str
    catalog: str
    lake: Path
    source_group: str
    control_topic: str
    other_groups: Sequence[str] = ()

    def __init__(self) -> None:
        self.control_config: Mapping[str, str] = {}
        self.produced = 0
        self.said: list[str] = []
        self.did: list[str] = []
        self.delays_s: list[float] = []

    @abstractmethod
    def take_in(self) -> None:
        """Let it take in what there is, until it has or does no more; notes in `said` what it complains of."""

    @abstractmethod
    def begin(self) -> None:
        """Have it at work, with everything committed, when this returns."""

    @abstractmethod
    def rest(self) -> None:
        """Nothing of it runs when this returns."""

    @abstractmethod
    def die_in_the_first_commit(self) -> None:
        """Start it for the first time, and kill it when files are announced and the table has none of them."""

    @abstractmethod
    def die_at_random(self, chance: random.Random) -> None:
        """Start it, and kill it after a while."""

    @abstractmethod
    def reset_coordinator(self) -> None:
        """Have whoever commits read the control topic from its start again."""

    @abstractmethod
    def tolerate(self) -> None:
        """Do what its manual offers for records that can't be stored, if it stopped for them."""

    def outcome(self, scenario: str) -> Outcome:
        """Everything counted, as it is now."""
        said, did = tuple(dict.fromkeys(self.said)), tuple(dict.fromkeys(self.did))
        try:
            lost, twice = counted(self.produced, self.ids())
        except OSError:
            return Outcome(scenario, self.name, self.produced, unreadable=True, said=said, did=did)
        return Outcome(scenario, self.name, self.produced, lost, twice, False, said, did, tuple(self.delays_s))

    def produce(self, number: int, partitions: Sequence[int] = range(PARTITIONS)) -> None:
        """`number` good records to each of `partitions`."""
        for partition in partitions:
            values = (json.dumps({"id": n, "text": f"n{n}"}) for n in range(self.produced, self.produced + number))
            self.produced += support.produce(self.bootstrap, self.topic, values, partition=partition)

    def produce_bad(self, value: bytes, partition: int = 0) -> None:
        support.produce(self.bootstrap, self.topic, [value], partition=partition)

    def ids(self) -> list[int]:
        """The ids in the table. Raises FileNotFoundError if a file that it names is gone."""
        with self.opened() as catalog:
            found = catalog.load_table(self.table).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        return [int(number) for number in found]

    def rows(self) -> int:
        """How many rows the table says it has."""
        snapshot = self.load().current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary.additional_properties["total-records"])

    def await_all(self, timeout_s: float = 600.0) -> float:
        """Seconds until the table has as many rows as were produced."""
        began = time.monotonic()
        until(lambda: self.rows() >= self.produced, timeout_s)
        return time.monotonic() - began

    @contextmanager
    def opened(self) -> Generator[Catalog]:
        with closing(support.open_catalog(self.lake, self.catalog)) as catalog:
            yield catalog

    def load(self) -> Table:
        with self.opened() as catalog:
            return catalog.load_table(self.table)

    @property
    def head(self) -> int:
        """The snapshot the table has now."""
        snapshot = self.load().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def roll_back(self, snapshot_id: int) -> None:
        with self.opened() as catalog:
            catalog.load_table(self.table).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()

    def recreate_table(self) -> None:
        with self.opened() as catalog:
            schema = catalog.load_table(self.table).schema()
            catalog.drop_table(self.table)
            catalog.create_table(self.table, schema)

    def compact_and_expire(self, server: str) -> None:
        """By somebody who knows nothing of the peer."""
        with closing_spark(server) as spark:
            support.attach(spark, self.lake, self.catalog)
            damage.compact_and_expire(spark, f"{self.catalog}.{self.table}")

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def reset_group(self, group: str, topic: str, partitions: int) -> None:
        """What `kafka-consumer-groups --reset-offsets --to-earliest` does, once nobody consumes any more."""
        request = ConsumerGroupTopicPartitions(group, [KafkaPartition(topic, p, 0) for p in range(partitions)])
        _once_it_is_empty(lambda: self.admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT_S))

    def forget_offsets(self) -> None:
        """What `offsets.retention.minutes` does after seven days in which nobody commits."""
        for group in (self.source_group, *self.other_groups):
            self.delete_group(group)

    def delete_group(self, group: str) -> None:
        _once_it_is_empty(lambda: self.admin.delete_consumer_groups([group])[group].result(TIMEOUT_S))

    def recreate_control_topic(self) -> None:
        self.admin.delete_topics([self.control_topic])[self.control_topic].result(TIMEOUT_S)
        new = NewTopic(self.control_topic, num_partitions=1, config=dict(self.control_config))

        def created() -> bool:
            try:
                self.admin.create_topics([new])[self.control_topic].result(TIMEOUT_S)
            except KafkaException as error:
                # Right after a deletion the name may still be taken for a moment.
                return _code(error) != KafkaError.TOPIC_ALREADY_EXISTS
            return True

        until(created, TIMEOUT_S)


@contextmanager
def closing_spark(server: str) -> Generator[SparkSession]:
    """A session on a Spark Connect server."""
    session = SparkSession.builder.remote(server).create()
    try:
        yield session
    finally:
        session.stop()


def until(what: Callable[[], bool], timeout_s: float) -> None:
    """Returns when `what` is true. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def schema() -> pa.Schema:
    """The table's columns."""
    return pa.schema([("id", pa.int64()), ("text", pa.string())])


def _once_it_is_empty(change: Callable[[], object]) -> None:
    """Members that were stopped leave a group a moment later; one that is gone already is as wanted."""

    def changed() -> bool:
        try:
            change()
        except KafkaException as error:
            if _code(error) in (KafkaError.GROUP_ID_NOT_FOUND,):
                return True
            if _code(error) in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
                return False
            raise
        return True

    until(changed, TIMEOUT_S)


def _code(error: KafkaException) -> int:
    return error.args[0].code()
