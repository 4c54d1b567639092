"""What Kafka and the tables have, by readers that know nothing of Calve: a consumer, pyiceberg and hudi-rs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder
from pyiceberg.catalog import load_catalog

from examples.mirror import compare

Flight = tuple[str, int]
"""Carrier and number."""

_TIMEOUT_S = 30.0


def flights_in_kafka(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """Each record of the topic that is a flight."""
    for value in _values(bootstrap, topic):
        try:
            flight = json.loads(value)
        except ValueError:
            continue
        if "time_hour" in flight:
            yield flight


def carriers(table: pa.Table) -> Counter[str]:
    """Rows by carrier."""
    counts = pc.value_counts(table["carrier"].combine_chunks()).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
    return Counter({each["values"]: each["counts"] for each in counts})


def iceberg(directory: Path, name: str) -> pa.Table:
    """All of a table of the demo's catalog."""
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{directory}/lake/catalog.db")
    return catalog.load_table(name).scan(selected_fields=("carrier",)).to_arrow()


def hudi(directory: Path, name: str) -> pa.Table:
    """All of a table of the demo's warehouse."""
    table = HudiTableBuilder.from_base_uri(str(directory / "hudi" / name.replace(".", "/"))).build()
    return pa.Table.from_batches(table.read(None))


def last_hours(table: pa.Table) -> Mapping[Flight, datetime]:
    """When each flight took off last."""
    columns = (table[name].to_pylist() for name in ("carrier", "flight", "time_hour"))
    return {(carrier, flight): hour for carrier, flight, hour in zip(*columns, strict=True)}


def _values(bootstrap: str, topic: str) -> Iterator[bytes]:
    with compare.reader(bootstrap) as consumer:
        for partition in consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions:
            values = (message.value() for message in compare.messages(consumer, topic, partition))
            yield from (value for value in values if value is not None)
