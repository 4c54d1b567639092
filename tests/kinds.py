"""The same pipeline of each kind: a few hundred records of two partitions, and what readers have of them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load
from tests import support
from tests.launch import printed, started
from tests.source_flow import lines_of
from tests.support import TopicFactory
from tests.two_clusters import mirror_file

KINDS = ("sink", "mirror", "source")
RECORDS = 400
ON_SPARK = {"spark_from_records": 0, "min_task_bytes": "1KiB"}


@dataclass(frozen=True)
class Moved:
    """A pipeline of one kind and the broker that it reads or writes."""

    file: Path
    broker: Broker
    topic: str
    kind: str

    def on(self, spark: dict[str, Any]) -> None:
        """Have it run there."""
        connections = self.file.with_name("connections.yaml")
        content = yaml.safe_load(connections.read_text())
        connections.write_text(yaml.safe_dump({**content, "spark": {"here": spark}}))
        document = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**document, "spark": "here", "batch": ON_SPARK}))

    def run(self) -> dict[str, Any]:
        """What `calve run` says, in a process of its own."""
        return json.loads(printed(started("run", self.file, "--json").done()))

    def values(self) -> list[str]:
        """The values that readers have, in order."""
        if self.kind == "sink":
            with closing(support.open_catalog(self.file.parent / "lake")) as catalog:
                rows = catalog.load_table("db.lines").scan().to_arrow()
            return sorted(rows["text"].to_pylist())
        partitions = range(2)
        values = (v for p in partitions for v in support.consume(self.broker.bootstrap, self.topic, partition=p))
        return sorted((value or b"").decode() for value in values)

    def prove(self) -> None:
        """No record is lost and none is there twice, by Calve's proof and by a reader."""
        printed(started("verify", self.file, "--deep", "--json").done())
        values = self.values()
        assert (len(values), len(set(values))) == (RECORDS, RECORDS)


def of_kind(kind: str, broker: Broker, other_broker: Broker, kafka_topic: TopicFactory, tmp_path: Path) -> Moved:
    """A `sink`, `mirror` or `source` of two partitions, or two files, of which each is a task's."""
    if kind == "source":
        made = lines_of(broker, tmp_path, partitions=2)
        for name in ("a", "b"):
            made.write(name, *(f"{name}{number:04}" for number in range(RECORDS // 2)))
        return Moved(made.file, broker, made.topic, kind)
    topic = kafka_topic(2)
    for partition in (0, 1):
        lines = (f"{partition}{number:04}" for number in range(RECORDS // 2))
        values = (line.encode() if kind == "mirror" else json.dumps({"text": line}).encode() for line in lines)
        support.produce(broker.bootstrap, topic, values, partition=partition)
    if kind == "mirror":
        file = mirror_file(tmp_path, broker, other_broker, [topic])
        pipeline = load(file)
        return Moved(file, other_broker, pipeline.remote_of(topic), kind)  # pyright: ignore[reportAttributeAccessIssue]
    connections = {
        "deployment": "test",
        "kafka": {"main": {"bootstrap.servers": broker.bootstrap}},
        "catalog": {"lake": {"type": "sql", **support.catalog_properties(tmp_path / "lake")}},
    }
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(connections))
    document = {
        "name": support.unique("lost").replace("-", "_"),
        "source": {"kafka": "main", "topics": [topic]},
        "catalog": "lake",
        "tables": [{"name": "db.lines", "auto_create": {"columns": {"text": "string"}}}],
    }
    (file := tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    return Moved(file, broker, topic, kind)
