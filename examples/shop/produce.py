"""Fills the twelve topics of a shop with Avro records; one in fifty is broken.

`python examples/shop/produce.py --bootstrap 127.0.0.1:9092 --records 1000` appends so many records to each topic.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fastavro import schemaless_writer
from fastavro.schema import load_schema

ENTITIES = (
    *("addresses", "carts", "clicks", "customers", "deliveries", "invoices"),
    *("items", "orders", "payments", "refunds", "reviews", "stock"),
)
SCHEMAS = Path(__file__).parent / "schemas"
SCHEMA_OF = {"clicks": "click", "orders": "order"}
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
    schema = load_schema(str(SCHEMAS / f"{SCHEMA_OF.get(entity, 'thing')}.avsc"))
    for i in range(number):
        value = BytesIO()
        schemaless_writer(value, schema, record(entity, i))
        # A broken one ends too early.
        yield value.getvalue()[: -1 if i % BROKEN_EVERY == BROKEN_EVERY - 1 else None]


def record(entity: str, i: int) -> dict[str, Any]:
    common = {"id": i, "at": datetime(2026, 1, i % 28 + 1, 12, tzinfo=UTC)}
    if entity == "clicks":
        return {**common, "kind": KINDS[i % len(KINDS)]}
    if entity == "orders":
        return {**common, "ship_to": {"region": REGIONS[i % len(REGIONS)], "city": f"city {i % 7}"}}
    return {**common, "name": f"{entity} {i}"}


if __name__ == "__main__":
    main()
