"""A pipeline of a test's own: real files, topics and catalog, and short ways to run it and to read what came of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from calve.sink_core import failpoints
from calve.sink_core.config.load import CONNECTIONS_FILE, load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.events import Event
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.sink.loop.coordinator import CommitReport
from calve.sink_core.sink.loop.engine import Engine, InProcess
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import RunReport, run_pipeline
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.history.record import SnapshotRecord, SummaryKeys, from_summary
from calve.sink_core.tables.log.fold import SINK
from tests import support
from tests.support import TIMEOUT_S

E = TypeVar("E", bound=Event)
COLUMNS = {"id": "long", "text": "string"}


@dataclass(frozen=True)
class Flow:
    """One pipeline: its two files in `files`, its catalog and warehouse in `lake`; Spark sees them as `catalog`.

    `extra` goes into the pipeline file, `kafka`, `registry` and `lake_properties` into the connections. Every record is
    `{"id": …, "text": …}`.
    """

    files: Path
    lake: Path
    bootstrap: str
    topics: tuple[str, ...]
    name: str
    tables: tuple[str, ...] = ("db.events",)
    auto_create: Mapping[str, Any] = field(default_factory=lambda: {"columns": COLUMNS})
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kafka: Mapping[str, Any] = field(default_factory=dict[str, Any])
    registry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lake_properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    spark: Mapping[str, Any] = field(default_factory=lambda: {"master": "local[2]"})
    catalog_name: str = ""
    deployment: str = "test"

    @classmethod
    def create(cls, directory: Path, bootstrap: str, *topics: str, **options: Any) -> Flow:
        """A pipeline with a name, and thus a catalog, nobody else uses."""
        name = support.unique("p").replace("-", "_")
        return cls(directory / name, directory / name / "lake", bootstrap, topics, name, **options)

    def but(self, **changes: Any) -> Flow:
        """The same pipeline from other files: another host's, or a later version's."""
        return replace(self, files=self.files / support.unique("other"), **changes)

    @property
    def topic(self) -> str:
        return self.topics[0]

    @property
    def table(self) -> str:
        return self.tables[0]

    @property
    def catalog(self) -> str:
        """Its own, unless it shares another pipeline's."""
        return self.catalog_name or f"lake_{self.name}"

    @cached_property
    def pipeline(self) -> SinkPipeline:
        """Written to `files` and loaded as a user's would be."""
        self.files.mkdir(parents=True, exist_ok=True)
        connections = {
            "deployment": self.deployment,
            "kafka": {"main": {"bootstrap.servers": self.bootstrap, **self.kafka}},
            "registry": dict(self.registry),
            "catalog": {self.catalog: {"type": "sql", **support.catalog_properties(self.lake), **self.lake_properties}},
            "spark": {"here": dict(self.spark)},
        }
        pipeline = {
            "name": self.name,
            "source": {"kafka": "main", "topics": list(self.topics)},
            "catalog": self.catalog,
            "tables": [{"name": table, "auto_create": dict(self.auto_create)} for table in self.tables],
            "spark": "here",
            "batch": support.SHORT_CUT,
        }
        # JSON is YAML, and nothing in it needs quoting.
        (self.files / CONNECTIONS_FILE).write_text(json.dumps(connections))
        path = self.files / "pipeline.yaml"
        path.write_text(json.dumps(_merged(pipeline, self.extra), ensure_ascii=False))
        return load(path)

    @contextmanager
    def session(self, engine: Engine | None = None) -> Generator[Session]:
        with Session.open(self.pipeline, engine=engine or InProcess(2)) as session:
            yield session

    def run(self, engine: Engine | None = None, bounds: Bounds | None = None) -> RunReport:
        """Plan, write, publish and commit until caught up; in this process unless an engine is given."""
        with self.session(engine) as session:
            report = run_pipeline(session, bounds=bounds)
        report.raise_failures()
        return report

    def loaded(self) -> dict[str, LoadedTable]:
        """The pipeline's tables, created where they are missing, as a batch has them."""
        with self.session() as session:
            session.bind()
            session.create_missing()
            return {name: table for name, table in session.load(self.pipeline.table_names).items() if table}

    def publish(self) -> None:
        """A run that dies before its commit: what is published waits."""

        def die() -> None:
            raise Died

        # Publishes of a new pipeline begin with the bootstrap's.
        skip = 0 if self.positions() else 1
        with self.session() as session:
            with pytest.raises(Died), reached("publish.after-commit", die, skip=skip):
                run_pipeline(session)
            # A transaction's end reaches the control topic a moment after who committed it hears of it.
            session.log.refresh_to_end()

    def commit(self) -> CommitReport:
        """The coordinator alone."""
        with self.session() as session:
            session.bind()
            return session.coordinator().commit(tables=self.pipeline.table_names)

    def produce(self, ids: range, partition: int = 0, topic: str = "") -> None:
        """Append a record for each id to one partition."""
        support.produce(self.bootstrap, topic or self.topic, map(record, ids), partition=partition)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def positions(self) -> dict[TopicPartition, Position]:
        """The source group's offsets and metadata for the partitions there are now."""
        found = self.admin.list_topics(timeout=TIMEOUT_S).topics
        partitions = [TopicPartition(t, p) for t in self.topics if t in found for p in found[t].partitions]
        with closing(SourceGroup(self.pipeline.kafka.properties, self.pipeline.group)) as group:
            return group.positions(partitions)

    def move_positions(self, offsets: Mapping[TopicPartition, int]) -> None:
        """What an operator does with `kafka-consumer-groups --reset-offsets`."""
        moved = [KafkaPartition(*at, offset) for at, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(self.pipeline.group, moved)]
        for done in self.admin.alter_consumer_group_offsets(request).values():
            done.result(TIMEOUT_S)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """What retention does."""
        support.delete_records(self.admin, topic, before, partition)

    def recreate_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Delete a topic and create one of its name, which the broker knows of when this returns."""
        for done in self.admin.delete_topics([topic]).values():
            done.result(TIMEOUT_S)
        new = NewTopic(topic, num_partitions=partitions, config=dict(config or {}))
        self.admin.create_topics([new])[topic].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while not _leads(self.admin, topic, partitions):
            assert time.monotonic() < deadline, f"{topic} has no leaders"

    def events(self, kind: type[E]) -> list[E]:
        """The events of a kind on the control topic, as a reader sees them."""
        values = support.consume(self.bootstrap, self.pipeline.control_topic)
        return [event for event in map(SINK.decode, filter(None, values)) if isinstance(event, kind)]

    @contextmanager
    def iceberg(self) -> Generator[Catalog]:
        """The catalog as any other writer would open it."""
        with closing(support.open_catalog(self.lake, self.catalog)) as catalog:
            yield catalog

    def load_table(self, name: str = "") -> Table:
        with self.iceberg() as catalog:
            return catalog.load_table(name or self.table)

    def rows(self, name: str = "") -> list[dict[str, Any]]:
        return self.load_table(name).scan().to_arrow().to_pylist()

    def ids(self, name: str = "") -> list[int]:
        """The ids in a table, sorted: doubles and losses show."""
        return sorted(row["id"] for row in self.rows(name))

    def append_foreign(self, *ids: int, table: str = "") -> None:
        """An append by somebody who knows nothing of Calve."""
        loaded = self.load_table(table)
        fields = loaded.schema().as_arrow()
        loaded.append(pa.Table.from_pylist([{"id": i, "text": "foreign"} for i in ids], schema=fields))

    def recreate_table(self, name: str = "") -> None:
        """Drop a table (by default the first) and create one like it."""
        schema, name = self.load_table(name).schema(), name or self.table
        with self.iceberg() as catalog:
            catalog.drop_table(name)
            catalog.create_table(name, schema)

    @property
    def summary_keys(self) -> SummaryKeys:
        return SummaryKeys(self.name, self.pipeline.control_topic, self.pipeline.group)

    def own_snapshots(self, name: str = "") -> list[tuple[int, SnapshotRecord]]:
        """Snapshots of ours, oldest first, and what their summaries say."""
        keys = self.summary_keys
        found = (
            (s.snapshot_id, from_summary(keys, s.summary.additional_properties if s.summary else {}))
            for s in self.load_table(name).metadata.snapshots
        )
        return [(snapshot_id, own) for snapshot_id, own in found if own is not None]

    def attached(self, spark: SparkSession) -> str:
        """Make the catalog known to Spark; returns its name there."""
        support.attach(spark, self.lake, self.catalog)
        return self.catalog

    def spark_ids(self, spark: SparkSession, name: str = "") -> list[int]:
        """As `ids`, read by Spark and Iceberg's Java library."""
        rows = spark.sql(f"SELECT id FROM {self.attached(spark)}.{name or self.table} ORDER BY id").collect()
        return [row["id"] for row in rows]


class Died(BaseException):
    """Ends a run where a test wants it to end."""


def record(number: int) -> bytes:
    return json.dumps({"id": number, "text": f"n{number}"}).encode()


def tagged(flow: Flow, table: Table) -> int | None:
    """The snapshot under the pipeline's tag."""
    ref = table.metadata.refs.get(flow.pipeline.tag)
    return ref.snapshot_id if ref else None


@contextmanager
def reached(name: str, action: Callable[[], object], *, skip: int = 0) -> Generator[None]:
    """Do `action` when the code under test reaches the failpoint `name`, once, after `skip` earlier visits.

    Deterministic interleavings: between two effects of one writer, all of another writer happens.
    """
    left = [skip]

    def reach(place: str) -> None:
        if place != name or left[0] < 0:
            return
        left[0] -= 1
        if left[0] < 0:
            action()

    ours = [m for key, m in sys.modules.items() if key.startswith(("calve.sink_core.", "calve.spark_jobs."))]
    with pytest.MonkeyPatch.context() as patch:
        for module in ours:
            if hasattr(module, "reach") and module is not failpoints:
                patch.setattr(module, "reach", reach)
        yield
    assert left[0] < 0, f"failpoint {name} was not reached"


def _leads(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether each partition has a leader by the broker's metadata."""
    found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    leaders = [p.leader for p in found.partitions.values() if p.error is None]
    return found.error is None and len(leaders) == partitions and min(leaders, default=-1) >= 0


def _merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in extra.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
