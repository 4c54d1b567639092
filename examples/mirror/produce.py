"""Records of a shop on the cluster `eu`: in transactions, some of them aborted, with keys, headers and tombstones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from calve.sink_core.kafka.clients import LOGGER
from calve.sink_core.kafka.failures import reported

TOPICS: Mapping[str, int] = {"shop.orders": 3, "shop.customers": 2}
"""And their partitions at first."""
GROWING = "shop.orders"
CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": "1209600000"}
"""Of shop.customers: the remote topic is to have it too."""

_TIMEOUT_S = 60.0
_TRANSACTION = 1_000
_ABORTED_EVERY = 5

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Produced:
    """Records of transactions that were committed, and of those that were aborted."""

    committed: int = 0
    aborted: int = 0


def create_topics(bootstrap: str) -> bool:
    """Create the topics; False if they are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOGGER)
    with reported("listing topics"):
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
    new = [NewTopic(name, partitions, 1) for name, partitions in TOPICS.items() if name not in there]
    for topic in new:
        topic.config = CONFIG if topic.topic == "shop.customers" else {}
    for name, made in (admin.create_topics(new) if new else {}).items():
        with reported(f"creating topic {name}"):
            made.result(_TIMEOUT_S)
    return bool(new)


def add_partition(bootstrap: str) -> int:
    """One more partition of `GROWING`; how many it has then."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOGGER)
    with reported(f"adding a partition to {GROWING}"):
        partitions = len(admin.list_topics(GROWING, timeout=_TIMEOUT_S).topics[GROWING].partitions) + 1
        admin.create_partitions([NewPartitions(GROWING, partitions)])[GROWING].result(_TIMEOUT_S)
    return partitions


def fill(bootstrap: str, records: int) -> Produced:
    """About `records` records over all topics and their partitions; every fifth transaction is aborted."""
    conf = {"bootstrap.servers": bootstrap, "transactional.id": "shop", "linger.ms": 50, "compression.type": "lz4"}
    producer = Producer({**conf, "queue.buffering.max.messages": 10 * _TRANSACTION}, logger=LOGGER)
    rows, totals = _records(), {True: 0, False: 0}
    with reported("filling the topics"):
        # New partitions are known once the client has asked for them.
        partitions = {t: len(producer.list_topics(t, timeout=_TIMEOUT_S).topics[t].partitions) for t in TOPICS}
        producer.init_transactions(_TIMEOUT_S)
        for number in range(1, -(-records // _TRANSACTION) + 1):
            producer.begin_transaction()
            for _ in range(_TRANSACTION):
                i, topic, key, value, headers = next(rows)
                producer.produce(topic, value, key, i % partitions[topic], headers=headers)
            producer.flush(_TIMEOUT_S)
            commits = number % _ABORTED_EVERY != 0
            (producer.commit_transaction if commits else producer.abort_transaction)(_TIMEOUT_S)
            totals[commits] += _TRANSACTION
    return Produced(totals[True], totals[False])


def _records() -> Iterator[tuple[int, str, bytes | None, bytes | None, Headers | None]]:
    """Number, topic, key, value and headers. Keys, values and headers may be missing or empty, each in its own way."""
    for i in count():
        if i % 4 == 0:
            # A customer who has left is a tombstone.
            value = None if i % 40 == 0 else json.dumps({"id": i % 5_000, "name": f"Customer {i % 5_000}"}).encode()
            yield i // 4, "shop.customers", b"%d" % (i % 5_000), value, None
        else:
            order = {"id": i, "item": f"sku-{i % 977}", "amount": (i * 7919) % 10_000 / 100, "note": "n" * (i % 120)}
            headers: Headers | None = [("trace", b"%016x" % i), ("trace", None)] if i % 3 == 0 else None
            yield i, "shop.orders", (None, b"", b"o%d" % i)[i % 3], json.dumps(order).encode(), headers
