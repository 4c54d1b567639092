"""A pipeline with a topic whose every record is known: what must be in its tables, and what must not."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.types import LongType, StringType

from calve.sink_core.control.log import REQUIRED_CONFIG
from calve.sink_core.iceberg.maintenance.orphans import LOOKED_AT
from calve.sink_core.kafka import clients
from calve.sink_core.sink.dead_letters.topic import PREFIX
from tests import support

PARTITIONS = 4
EMPTY_PARTITION = 3
DAYS = 3
"""A table has a partition for each, so each task writes up to so many files."""

COLUMNS = {"id": "long", "amount": "double", "note": "string", "at": "timestamptz"}
BROKEN = (b"", b"not json", b'{"id": "seven"}', b'{"id": 1}{"id": 2}', b'{"id": 3, "amount": tr', b"\xff\xfe", b"[1]")
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Difference:
    """How the tables differ from what was produced; counts of events."""

    lost: int = 0
    twice: int = 0
    foreign: int = 0
    dead_letters_lost: int = 0
    dead_letters_twice: int = 0

    @property
    def none(self) -> bool:
        return self == Difference()


@dataclass
class World:
    """One pipeline, its topic and its catalog. `events` are committed ids, `broken` the number of broken records.

    `spoilt` counts those that were dead letters for a while.
    """

    bootstrap: str
    directory: Path
    spark: dict[str, Any]
    random: random.Random
    max_records: int = 150
    spark_from_records: int = support.SHORT_CUT["spark_from_records"]
    name: str = field(default_factory=lambda: support.unique("faults").replace("-", "_"))
    events: set[int] = field(default_factory=set[int])
    broken: int = 0
    spoilt: int = 0
    _next: int = 0
    _columns: int = 0
    _grows: bool = False
    _spellings: int = 0

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        support.create_topic(self.bootstrap, self.name, PARTITIONS)
        support.create_topic(self.bootstrap, self.dead_letter_topic)
        self._write("connections.yaml", self._connections())
        self._write("pipeline.yaml", self._pipeline())
        self._producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": support.unique("faults"), "linger.ms": 5},
            logger=clients.LOGGER,
        )
        self._producer.init_transactions(TIMEOUT_S)

    @property
    def file(self) -> str:
        return str(self.directory / "pipeline.yaml")

    @property
    def table(self) -> str:
        return f"faults.{self.name}"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}_letters"

    def produce(self, events: int) -> None:
        """Transactions of random size on random partitions; about one in five is aborted, one record in 40 broken."""
        while events > 0:
            size, aborted = self.random.randint(1, 60), self.random.random() < 0.2
            self._producer.begin_transaction()
            values = [self._record() for _ in range(size)]
            for _, value in values:
                self._producer.produce(self.name, value, partition=self.random.randrange(EMPTY_PARTITION))
            if aborted:
                self._producer.flush(TIMEOUT_S)
                self._producer.abort_transaction(TIMEOUT_S)
                continue
            self._producer.commit_transaction(TIMEOUT_S)
            self.events |= {event for event, _ in values if event is not None}
            self.broken += sum(event is None for event, _ in values)
            events -= size

    def move_positions_over_nothing(self) -> None:
        """Somebody moves the position of a partition forward, over the records of an aborted transaction."""
        self._producer.begin_transaction()
        self._producer.produce(self.name, b"{}", partition=0)
        self._producer.flush(TIMEOUT_S)
        self._producer.abort_transaction(TIMEOUT_S)
        admin, at = AdminClient({"bootstrap.servers": self.bootstrap}), TopicPartition(self.name, 0)
        group = f"calve.test.{self.name}"
        request = [ConsumerGroupTopicPartitions(group, [at])]
        (found,) = admin.list_consumer_group_offsets(request)[group].result(TIMEOUT_S).topic_partitions
        at.offset = found.offset + 1
        for done in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [at])]).values():
            done.result(TIMEOUT_S)

    def grow(self, records: int) -> None:
        """Records have one more field, which the table may be given from here on."""
        self._grows, self._columns = True, self._columns + 1
        self._write("pipeline.yaml", self._pipeline())
        self._add_events(records)

    def spoil(self, records: int) -> None:
        """Somebody adds a column as a number, of which the producer makes a text: these records can't be stored."""
        self._columns += 1
        self._add_column("long")
        self._add_events(records)
        self.spoilt += records

    def _add_events(self, records: int) -> None:
        """With words in the last added column."""
        self._producer.begin_transaction()
        for _ in range(records):
            self._next += 1
            event = {"id": self._next, "at": "2026-01-01T12:00:00Z", f"c{self._columns}": "words"}
            self._producer.produce(self.name, json.dumps(event), partition=self.random.randrange(EMPTY_PARTITION))
            self.events.add(self._next)
        self._producer.commit_transaction(TIMEOUT_S)

    def mend(self) -> None:
        """Somebody makes a text of the last such column: the records fit."""
        with closing(support.open_catalog(self.directory / "lake")) as catalog:
            update = catalog.load_table(self.table).update_schema(allow_incompatible_changes=True)
            update.delete_column(f"c{self._columns}").commit()
        self._add_column("string")

    def _add_column(self, kind: str) -> None:
        with closing(support.open_catalog(self.directory / "lake")) as catalog:
            update = catalog.load_table(self.table).update_schema()
            update.add_column(f"c{self._columns}", LongType() if kind == "long" else StringType()).commit()

    def roll_back(self) -> None:
        """Somebody rolls the table back by a snapshot."""
        with closing(support.open_catalog(self.directory / "lake")) as catalog:
            table = catalog.load_table(self.table)
            parent = table.metadata.snapshots[-2].snapshot_id
            table.manage_snapshots().rollback_to_snapshot(parent).commit()

    def spell_the_catalog_otherwise(self) -> None:
        """Somebody writes the catalog's address in another way, which may as well be another place."""
        connections = self._connections()
        lake = connections["catalog"]["lake"]
        self._spellings += 1
        lake["uri"] = lake["uri"].replace("/lake/", "/lake/" + "../lake/" * self._spellings)
        self._write("connections.yaml", connections)

    def recreate_the_control_topic(self) -> None:
        """Somebody deletes the control topic and creates one of its name."""
        admin, topic = AdminClient({"bootstrap.servers": self.bootstrap}), f"calve.test.{self.name}.control"
        for done in admin.delete_topics([topic]).values():
            done.result(TIMEOUT_S)
        support.create_topic(self.bootstrap, topic, 1, REQUIRED_CONFIG)

    def drop_table(self) -> None:
        """Somebody drops the table by mistake."""
        self._drop(self.table)

    def give_the_table_up(self) -> None:
        """Somebody drops the table; what it held is not expected any more."""
        self._drop(self.table)
        self.events.clear()

    def drop_the_ledger(self) -> None:
        """Somebody drops the ledger by mistake."""
        self._drop(f"calve.{self.name}_ledger")

    def _drop(self, table: str) -> None:
        with closing(support.open_catalog(self.directory / "lake")) as catalog:
            catalog.drop_table(table)

    def difference(self) -> Difference:
        """Compare the tables, read with pyiceberg, and the dead letters' topic with what was produced."""
        seen = Counter(self._column(self.table, "id"))
        letters = f"calve.{self.name}_dead_letters"
        dead = Counter(zip(self._column(letters, "partition"), self._column(letters, "offset"), strict=True))
        told = self._told()
        return Difference(
            lost=len(self.events - seen.keys()),
            twice=sum(n - 1 for n in seen.values()),
            foreign=len(seen.keys() - self.events),
            dead_letters_lost=self.broken - len(dead) + self.broken + self.spoilt - len(told),
            dead_letters_twice=sum(n - 1 for n in (*dead.values(), *told.values())),
        )

    def _told(self) -> Counter[tuple[object, object]]:
        """The places of the records that the dead letters' topic has."""
        found = [dict(message.headers() or ()) for message in support.messages(self.bootstrap, self.dead_letter_topic)]
        return Counter((each[f"{PREFIX}partition"], each[f"{PREFIX}offset"]) for each in found)

    def orphans_were_listed(self) -> bool:
        """Whether orphan removal has had its first look at every table, which only lists."""
        with closing(support.open_catalog(self.directory / "lake")) as catalog:
            names = [".".join(table) for space in catalog.list_namespaces() for table in catalog.list_tables(space)]
            return all(LOOKED_AT in catalog.load_table(name).properties for name in names)

    def age_files(self) -> Path:
        """Make every file of the warehouse ten days old; the path of one among them that is nobody's."""
        warehouse = self.directory / "lake" / "warehouse"
        orphan = warehouse / "faults" / self.name / "data" / f"calve-{support.unique('dead')}.parquet"
        orphan.write_bytes(b"nothing")
        old = time.time() - 10 * 86_400
        for path in warehouse.rglob("*"):
            if path.is_file():
                os.utime(path, (old, old))
        return orphan

    def _column(self, table: str, column: str) -> Sequence[Any]:
        catalog = support.open_catalog(self.directory / "lake")
        try:
            return catalog.load_table(table).scan(selected_fields=(column,)).to_arrow()[column].to_pylist()
        except NoSuchTableError:
            return []
        finally:
            catalog.close()

    def _record(self) -> tuple[int | None, bytes]:
        if self.random.random() < 1 / 40:
            return None, self.random.choice(BROKEN)
        self._next += 1
        event = {
            "id": self._next,
            "amount": round(self.random.uniform(0, 1000), 2),
            "note": "x" * self.random.randint(0, 200),
            "at": f"2026-01-{self.random.randint(1, DAYS):02}T12:00:00Z",
        }
        return self._next, json.dumps(event).encode()

    def _connections(self) -> dict[str, Any]:
        return {
            "deployment": "test",
            "kafka": {"main": {"bootstrap.servers": self.bootstrap}},
            "catalog": {"lake": {"type": "sql", **support.catalog_properties(self.directory / "lake")}},
            "spark": {"cold": {"master": "local[2]", "driver_memory": "512MiB"}, "warm": self.spark},
        }

    def _pipeline(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": "sink",
            "source": {"kafka": "main", "topics": [self.name]},
            "catalog": "lake",
            "spark": "warm",
            "dead_letters": {"topic": self.dead_letter_topic},
            "tables": [{"name": self.table, "auto_create": {"columns": COLUMNS, "partition_by": ["day(at)"]}}],
            # Many small batches of several tasks each, so that a moment drawn at random can fall into any step.
            "batch": {
                "max_records": self.max_records,
                "min_task_bytes": "4KiB",
                "spark_from_records": self.spark_from_records,
            },
            "run": {"max_batches": 1000},
            "maintenance": {"trim": {"older_than": 0}},
            **({"table_defaults": {"evolve": ["add_column"]}} if self._grows else {}),
        }

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self.directory / name).write_text(yaml.safe_dump(content, sort_keys=False))

    def use_cold_spark(self) -> str:
        """A second pipeline file, the same pipeline on a Spark of the run's own; its path."""
        self._write("cold.yaml", {**self._pipeline(), "spark": "cold"})
        return str(self.directory / "cold.yaml")
