"""What tests share that is not a fixture."""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from calve.spark_jobs.session import defaults

TopicFactory = Callable[..., str]
Produce = Callable[..., int]
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options of servers that live for minutes: the optimising compiler costs more than it gains."""

SHORT_CUT = {"spark_from_records": 1_000_000_000}
"""Part of `batch` of pipelines whose tests are not about Spark: all that they move is moved by the run's process."""

TIMEOUT_S = 30.0
_FLUSH_SECONDS = 60.0
_CLIENTS = 3
_QUEUE_LIMIT = 50_000
_GIB = 1 << 30


def unique(prefix: str) -> str:
    """A name no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def steady_port(*, further: int = 0) -> int:
    """A free port for a server that is started again: below those that the kernel gives to clients.

    A client that keeps trying a closed port among those meets itself in the end, and holds it. `further`: a server that
    listens that many ports higher as well.
    """
    while True:
        port = random.randint(20_000, 32_000 - further)
        if _is_free(port) and (not further or _is_free(port + further)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextmanager
def short_lived() -> Generator[None]:
    """Servers that are started meanwhile, by whatever code, get the options for a short life."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(SHORT_LIVED))
        yield


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Create a topic and return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([topic])[name].result(30)
    return name


def topics(bootstrap: str) -> set[str]:
    """All that there are."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def delete_topic(admin: AdminClient, topic: str) -> None:
    """Delete a topic, and wait until nobody is told of it any more."""
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while topic in admin.list_topics(timeout=TIMEOUT_S).topics:
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.05)


def delete_records(admin: AdminClient, topic: str, before: int, partition: int = 0) -> None:
    """What retention does."""
    for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        done.result(TIMEOUT_S)


def commit_offset(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """What a consumer of the group does that has read up to there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Where a group goes on; negative if it has no offset there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    [found] = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
    consumer.close()
    return found.offset


def until_stable(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open in a topic: its end is there a moment after its producer hears of it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S).partitions

    def ends(level: IsolationLevel) -> list[int]:
        asked = {TopicPartition(topic, p.id): OffsetSpec.latest() for p in partitions}
        return [found.result(TIMEOUT_S).offset for found in admin.list_offsets(asked, isolation_level=level).values()]

    deadline = time.monotonic() + TIMEOUT_S
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, f"a transaction is open in {topic}"
        time.sleep(0.01)


def topic_config(bootstrap: str, topic: str) -> dict[str, str | None]:
    """A topic's configuration as it applies, defaults of the broker included."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in entries.items()}


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | str | None],
    *,
    partition: int = 0,
    keys: Sequence[bytes | str | None] | None = None,
    timestamps: Sequence[int] | None = None,
) -> int:
    """Append `values` (None = tombstone) to one partition, in order; `timestamps` in ms. Returns their number."""
    producer = _producer(bootstrap, topic)
    failures: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    count = 0
    for count, value in enumerate(values, start=1):
        key = None if keys is None else keys[count - 1]
        now_or_given = 0 if timestamps is None else timestamps[count - 1]
        while len(producer) > _QUEUE_LIMIT:
            producer.poll(0.1)
        producer.produce(topic, value, key, partition=partition, timestamp=now_or_given, on_delivery=note)
        producer.poll(0)
    assert producer.flush(_FLUSH_SECONDS) == 0
    assert not failures
    return count


def _producer(bootstrap: str, topic: str) -> Producer:
    """One whose broker answers: a client that is cut off by a broker that starts takes it for an old one, for good."""
    # An idempotent one mostly waits half a second for its id; no broker goes while this one waits for its answers.
    conf = {"bootstrap.servers": bootstrap, "max.in.flight": 1, "linger.ms": 5, "reconnect.backoff.ms": 10}
    for _ in range(_CLIENTS):
        producer = Producer(conf)
        with suppress(KafkaException):
            producer.list_topics(topic, timeout=_FLUSH_SECONDS / _CLIENTS)
            return producer
    raise AssertionError(f"none of {_CLIENTS} clients in a row got an answer from {bootstrap}")


def consume(bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed") -> list[bytes | None]:
    """The values of one partition from its start to the end it had at the call, as `isolation` shows them."""
    return [message.value() for message in messages(bootstrap, topic, partition=partition, isolation=isolation)]


def messages(bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed") -> list[Message]:
    """As `consume`, with keys, headers and timestamps."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("test"),
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
            "auto.offset.reset": "error",
        }
    )
    try:
        start, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, start)])
        return _until_the_end(consumer)
    finally:
        consumer.close()


def _until_the_end(consumer: Consumer) -> list[Message]:
    found: list[Message] = []
    while (message := consumer.poll(30)) is not None:
        if error := message.error():
            assert error.name() == "_PARTITION_EOF", error
            return found
        found.append(message)
    raise AssertionError("the partition's end was not reached in 30 s")


def open_catalog(directory: Path, name: str = "lake") -> SqlCatalog:
    """A pyiceberg catalog on SQLite in `directory`, its warehouse beside it. Close it with `.close()`."""
    directory.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(name, **catalog_properties(directory))


def catalog_properties(directory: Path) -> dict[str, str]:
    """pyiceberg's properties of that catalog."""
    return {"uri": f"sqlite:///{directory / 'catalog.db'}", "warehouse": f"file://{directory / 'warehouse'}"}


def attach(spark: SparkSession, directory: Path, name: str) -> None:
    """Make the catalog of `directory` known to a running Spark session. `name` must be the one pyiceberg uses."""
    for key, value in spark_catalog(directory, name).items():
        spark.conf.set(key, value)


def spark_catalog(directory: Path, name: str) -> dict[str, str]:
    """Spark's settings for the catalog of `directory`."""
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{directory / 'catalog.db'}",
        f"{prefix}.warehouse": f"file://{directory / 'warehouse'}",
        # Spark reads what others commit in the same second.
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.jdbc.schema-version": "V1",
    }


def start_spark(directory: Path, lake: Path) -> SparkSession:
    """A classic `local[2]` session as runs have it, with the catalog `lake`; its scratch files go to `directory`."""
    (scratch := directory / "local").mkdir(mode=0o700)
    settings = {
        **defaults("local[2]", _GIB, str(scratch)),
        "spark.app.name": "calve-tests",
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **spark_catalog(lake, "lake"),
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_worker(config: pytest.Config) -> bool:
    """Whether xdist has started this process."""
    return hasattr(config, "workerinput")


def shared_directory(config: pytest.Config) -> Path:
    """A folder that whoever started the workers has in common with all of them."""
    base: Path = config._tmp_path_factory.getbasetemp()  # pyright: ignore
    return base.parent if is_worker(config) else base
