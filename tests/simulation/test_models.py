"""Modelled cluster and catalog behave as real ones do, wherever the protocol leans on it: the same tests for both."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import NewTopic, OffsetSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID
from pyiceberg.types import LongType, NestedField

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load
from calve.sink_core.iceberg.commit.append import build_append
from calve.sink_core.iceberg.commit.plan import Attempt
from calve.sink_core.kafka import clients
from calve.sink_core.tables.history.shares import Step
from tests import support
from tests.simulation.environment import installed
from tests.simulation.world import World, pipeline_files

MODEL, REAL = "model", "real"
TAG = "calve-p"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture
def world(tmp_path: Path) -> Generator[World]:
    with installed() as environment:
        first, added = pipeline_files(tmp_path)
        environment.world = World(0, (load(first), load(added)))
        yield environment.world


@dataclass
class Kafka:
    """Clients as Calve opens them, for a topic and a group of the test's own. `world` is set for the model."""

    settings: clients.Settings
    world: World | None
    topic: str
    group: str

    @cached_property
    def admin(self) -> Any:
        return clients.admin(self.settings)

    @property
    def at(self) -> KafkaPartition:
        return KafkaPartition(self.topic, 0)

    def publisher(self, name: str = "publisher") -> Any:
        """A transactional producer that has fenced every earlier one of that name."""
        producer = clients.transactional_producer(self.settings, f"{self.topic}.{name}")
        producer.init_transactions(30)
        return producer

    def send(self, publisher: Any, *values: bytes) -> None:
        publisher.begin_transaction()
        for value in values:
            publisher.produce(self.topic, value, partition=0)
        assert publisher.flush(30) == 0

    def offset(self, publisher: Any, offset: int, metadata: str) -> None:
        wanted = [KafkaPartition(self.topic, 0, offset, metadata=metadata)]
        group = clients.reader(self.settings, group=self.group)
        publisher.send_offsets_to_transaction(wanted, group.consumer_group_metadata(), 30)
        group.close()

    def positions(self, timeout: float = 10) -> tuple[int, str]:
        group = clients.reader(self.settings, group=self.group)
        try:
            found = group.committed([self.at], timeout)[0]
            return found.offset, found.metadata or ""
        finally:
            group.close()

    def ends(self) -> tuple[int, int]:
        """Last stable offset and high watermark."""
        found = [
            self.admin.list_offsets({self.at: OffsetSpec.latest()}, isolation_level=level)[self.at].result(30).offset
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        return found[0], found[1]

    def settle(self) -> None:
        """Wait until what is decided is visible."""
        if self.world is not None:
            self.world.cluster.settle()
        deadline = time.monotonic() + 30
        while (ends := self.ends())[0] != ends[1]:
            assert time.monotonic() < deadline, ends
            time.sleep(0.05)

    def read(self, start: int = 0) -> list[tuple[int, object]]:
        """Offset and value of what a reader is given, and how it ends: `end` or the name of an error."""
        reader = clients.reader(self.settings, group=f"{self.group}.reader")
        reader.assign([KafkaPartition(self.topic, 0, start)])
        found: list[tuple[int, object]] = []
        try:
            for _ in range(100):
                for message in reader.consume(10, timeout=0.2):
                    error = message.error()
                    if error is not None:
                        ended = "end" if error.code() == KafkaError._PARTITION_EOF else error.name()
                        return [*found, (message.offset(), ended)]
                    found.append((message.offset(), message.value()))
        finally:
            reader.close()
        raise AssertionError(f"no end after {found}")


@pytest.fixture(params=[MODEL, REAL])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    topic = support.unique("events")
    if request.param == MODEL:
        made = Kafka({}, request.getfixturevalue("world"), topic, f"{topic}.group")
    else:
        broker: Broker = request.getfixturevalue("broker")
        made = Kafka({"bootstrap.servers": broker.bootstrap}, None, topic, f"{topic}.group")
    made.admin.create_topics([NewTopic(topic, num_partitions=1, config={})])[topic].result(30)
    return made


def _code(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    return raised.value.args[0].code()


def test_a_transaction_is_seen_once_it_is_committed(kafka: Kafka) -> None:
    publisher = kafka.publisher()
    kafka.send(publisher, b"a", b"b")
    assert kafka.ends() == (0, 2)
    assert kafka.read() == [(0, "end")]
    publisher.commit_transaction(30)
    kafka.settle()
    assert kafka.ends() == (3, 3)
    assert kafka.read() == [(0, b"a"), (1, b"b"), (3, "end")]


def test_a_fence_ends_what_an_earlier_holder_has_left_open(kafka: Kafka) -> None:
    first = kafka.publisher()
    kafka.send(first, b"a")
    second = kafka.publisher()
    kafka.settle()
    assert kafka.read() == [(2, "end")]
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(30)
    assert _code(raised) == KafkaError._FENCED
    kafka.send(second, b"b")
    second.commit_transaction(30)
    kafka.settle()
    assert kafka.read() == [(2, b"b"), (4, "end")]


def test_a_fence_leaves_alone_what_was_committed(kafka: Kafka) -> None:
    first = kafka.publisher()
    kafka.send(first, b"a")
    first.commit_transaction(30)
    kafka.publisher()
    kafka.settle()
    assert kafka.read() == [(0, b"a"), (2, "end")]


def test_holders_of_other_ids_are_not_fenced(kafka: Kafka) -> None:
    first = kafka.publisher("one")
    kafka.send(first, b"a")
    kafka.publisher("two")
    first.commit_transaction(30)
    kafka.settle()
    assert kafka.read() == [(0, b"a"), (2, "end")]


def test_offsets_come_with_the_transaction_and_keep_their_metadata(kafka: Kafka) -> None:
    publisher = kafka.publisher()
    assert kafka.positions() == (-1001, "")
    kafka.send(publisher, b"a")
    kafka.offset(publisher, 7, "batch-1")
    with pytest.raises(KafkaException):
        kafka.positions(timeout=1)
    publisher.commit_transaction(30)
    kafka.settle()
    assert kafka.positions() == (7, "batch-1")


def test_offsets_of_an_aborted_transaction_are_those_of_before(kafka: Kafka) -> None:
    publisher = kafka.publisher()
    publisher.begin_transaction()
    kafka.offset(publisher, 7, "batch-1")
    publisher.commit_transaction(30)
    publisher.begin_transaction()
    kafka.offset(publisher, 9, "batch-2")
    kafka.publisher()
    kafka.settle()
    assert kafka.positions() == (7, "batch-1")


def test_plain_records_wait_behind_an_open_transaction(kafka: Kafka) -> None:
    publisher, plain = kafka.publisher(), clients.producer(kafka.settings)
    kafka.send(publisher, b"a")
    plain.produce(kafka.topic, b"b", partition=0)
    assert plain.flush(30) == 0
    assert kafka.ends() == (0, 2)
    publisher.commit_transaction(30)
    kafka.settle()
    assert kafka.read() == [(0, b"a"), (1, b"b"), (3, "end")]


def test_what_was_deleted_can_not_be_read(kafka: Kafka) -> None:
    plain = clients.producer(kafka.settings)
    for value in (b"a", b"b", b"c"):
        plain.produce(kafka.topic, value, partition=0)
    assert plain.flush(30) == 0
    wanted = KafkaPartition(kafka.topic, 0, 2)
    kafka.admin.delete_records([wanted])[wanted].result(30)
    start = kafka.admin.list_offsets({kafka.at: OffsetSpec.earliest()})[kafka.at].result(30).offset
    assert start == 2
    assert kafka.read(2) == [(2, b"c"), (3, "end")]
    assert kafka.read(0)[-1][1] == "_AUTO_OFFSET_RESET"
    assert kafka.read(9)[-1][1] == "_AUTO_OFFSET_RESET"
    beyond = KafkaPartition(kafka.topic, 0, 9)
    with pytest.raises(KafkaException) as raised:
        kafka.admin.delete_records([beyond])[beyond].result(30)
    assert _code(raised) == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_recreated_topic_has_another_id_and_no_offsets(kafka: Kafka) -> None:
    publisher = kafka.publisher()
    publisher.begin_transaction()
    kafka.offset(publisher, 7, "batch-1")
    publisher.commit_transaction(30)
    kafka.settle()
    before = _topic_id(kafka)
    _delete_topic(kafka)
    kafka.admin.create_topics([NewTopic(kafka.topic, num_partitions=1, config={})])[kafka.topic].result(30)
    assert _topic_id(kafka) != before
    assert kafka.positions() == (-1001, "")


def _topic_id(kafka: Kafka) -> str:
    deadline = time.monotonic() + 30
    while True:
        try:
            return str(kafka.admin.describe_topics(TopicCollection([kafka.topic]))[kafka.topic].result(30).topic_id)
        except KafkaException:
            # A topic that was just created is unknown for a moment.
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _delete_topic(kafka: Kafka) -> None:
    if kafka.world is not None:
        kafka.world.cluster.delete_topic(kafka.topic)
        return
    kafka.admin.delete_topics([kafka.topic])[kafka.topic].result(30)
    deadline = time.monotonic() + 30
    while kafka.topic in kafka.admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_topics_that_are_there_and_that_are_not(kafka: Kafka) -> None:
    with pytest.raises(KafkaException) as raised:
        kafka.admin.create_topics([NewTopic(kafka.topic, num_partitions=1, config={})])[kafka.topic].result(30)
    assert _code(raised) == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as raised:
        kafka.admin.describe_topics(TopicCollection(["nowhere"]))["nowhere"].result(30)
    assert _code(raised) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.fixture(params=[MODEL, REAL])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog with table `db.t`."""
    catalog: Any = request.getfixturevalue("world" if request.param == MODEL else "catalog")
    if isinstance(catalog, World):
        catalog = catalog.catalog
    catalog.create_namespace(("db",))
    catalog.create_table("db.t", SCHEMA, properties={"format-version": "2"})
    return catalog


def _attempt(table: Table) -> Attempt:
    return build_append(table, [Step([], {"calve.p.batches": "b"})], tag=TAG)


def _refs(catalog: Any) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in catalog.load_table("db.t").metadata.refs.items()}


def _swapped(catalog: Any) -> tuple[Table, Attempt]:
    table = catalog.load_table("db.t")
    attempt = _attempt(table)
    catalog.commit_table(table, attempt.requirements, attempt.updates)
    return table, attempt


def test_a_snapshot_its_branch_and_its_tag_come_in_one_call(tables: Any) -> None:
    _, first = _swapped(tables)
    assert _refs(tables) == {"main": first.snapshot_id, TAG: first.snapshot_id}
    _, second = _swapped(tables)
    assert _refs(tables) == {"main": second.snapshot_id, TAG: second.snapshot_id}
    metadata = tables.load_table("db.t").metadata
    snapshot = metadata.snapshot_by_id(second.snapshot_id)
    assert snapshot.parent_snapshot_id == first.snapshot_id
    assert snapshot.summary.additional_properties["calve.p.batches"] == "b"
    assert snapshot.sequence_number > metadata.snapshot_by_id(first.snapshot_id).sequence_number


def test_the_same_call_is_refused_the_second_time(tables: Any) -> None:
    _swapped(tables)
    table, attempt = _swapped(tables)
    _refused(tables, table, attempt.requirements, attempt)


@pytest.mark.parametrize("ref", ["main", TAG])
def test_a_ref_that_is_elsewhere_refuses_the_call(tables: Any, ref: str) -> None:
    _swapped(tables)
    table = tables.load_table("db.t")
    attempt = _attempt(table)
    wrong = AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": 1})
    _refused(tables, table, (wrong,), attempt)
    absent = AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": None})
    _refused(tables, table, (absent,), attempt)


def test_a_recreated_table_has_another_uuid_and_refuses_the_old_one(tables: Any) -> None:
    table = tables.load_table("db.t")
    attempt = _attempt(table)
    if hasattr(tables, "tables"):
        del tables.tables["db.t"]
    else:
        tables.drop_table("db.t")
    tables.create_table("db.t", SCHEMA, properties={"format-version": "2"})
    assert tables.load_table("db.t").metadata.table_uuid != table.metadata.table_uuid
    _refused(tables, table, (AssertTableUUID(uuid=table.metadata.table_uuid),), attempt)


def test_what_was_loaded_stays_as_it_was(tables: Any) -> None:
    before = tables.load_table("db.t")
    _swapped(tables)
    assert not before.metadata.snapshots


def _refused(catalog: Any, table: Table, requirements: Sequence[Any], attempt: Attempt) -> None:
    before = catalog.load_table("db.t").metadata
    with pytest.raises(Exception):  # noqa: B017, PT011 - catalogs differ in what they raise, and Calve asks none of them
        catalog.commit_table(table, tuple(requirements), attempt.updates)
    assert catalog.load_table("db.t").metadata == before
