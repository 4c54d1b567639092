"""Fills the twelve topics of a shop with JSON records; one in fifty is broken.

`python examples/shop/produce.py --bootstrap 127.0.0.1:9092 --records 1000` appends so many records to each topic.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ENTITIES = (
    *("addresses", "carts", "clicks", "customers", "deliveries", "invoices"),
    *("items", "orders", "payments", "refunds", "reviews", "stock"),
)
BROKEN_EVERY = 50
KINDS = ("view", "buy", "share", "hover")
REGIONS = ("eu-west", "eu-north", "us-east")
TIMEOUT_S = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, default=1000, help="for each topic")
    options = parser.parse_args()
    fill(options.bootstrap, options.records)


def fill(bootstrap: str, records: int) -> None:
    """Create what is missing of the topics, and append `records` to each of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    new = [NewTopic(f"shop.{entity}", 2) for entity in ENTITIES if f"shop.{entity}" not in known]
    for made in (admin.create_topics(new) if new else {}).values():
        made.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for entity in ENTITIES:
        for number, value in enumerate(values(entity, records)):
            producer.produce(f"shop.{entity}", value, partition=number % 2)
        producer.flush(TIMEOUT_S)


def values(entity: str, number: int) -> Iterator[bytes]:
    for i in range(number):
        yield b"{broken" if i % BROKEN_EVERY == BROKEN_EVERY - 1 else json.dumps(record(entity, i)).encode()


def record(entity: str, i: int) -> dict[str, Any]:
    common = {"id": i, "at": f"2026-01-{i % 28 + 1:02d}T12:00:00Z"}
    if entity == "clicks":
        return {**common, "kind": KINDS[i % len(KINDS)]}
    if entity == "orders":
        return {**common, "ship_to": {"region": REGIONS[i % len(REGIONS)], "city": f"city {i % 7}"}}
    return {**common, "name": f"{entity} {i}"}


if __name__ == "__main__":
    main()
