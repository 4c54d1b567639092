"""Mirrors between the two brokers of the tests: their files, runs, and what both clusters have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load_as
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.mirror.answers import answers_of
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import MirrorReport, run_mirror
from calve.sink_core.mirror.verify import MirrorProof, verify
from calve.sink_core.tasks import Tasks
from tests import support
from tests.two_clusters import mirror_file

Record = tuple[bytes | None, bytes | None, object, object]


@dataclass(frozen=True)
class Mirror:
    """A mirror of its own between two clusters. Its remote topics begin with its name."""

    source: Broker
    target: Broker
    file: Path
    name: str

    @property
    def pipeline(self) -> MirrorPipeline:
        return load_as(MirrorPipeline, self.file)

    def remote(self, topic: str) -> str:
        return self.pipeline.remote_of(topic)

    def plane(self, tasks: Tasks | None = None) -> MirrorPlane:
        return MirrorPlane(self.pipeline, tasks=tasks)

    def run(self, tasks: Tasks | None = None) -> MirrorReport:
        with self.plane(tasks) as plane:
            return run_mirror(plane)

    def proof(self, *, deep: bool = True) -> MirrorProof:
        with self.plane() as plane:
            assert plane.read_only()
            return verify(plane, deep=deep)

    def resolve(self, finding: str, choice: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the answer would do, and what it did."""
        with self.plane() as plane:
            answers = answers_of(plane)
            prepared = answers.prepare(finding, None, choice)
            return prepared.answer.would, answers.carry_out(prepared, "test")

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Of a source topic, as readers of committed records see them."""
        return _records(self.source, topic, partition)

    def copied(self, topic: str, partition: int = 0) -> list[Record]:
        """Of its remote topic."""
        return _records(self.target, self.remote(topic), partition)


def mirror(
    source: Broker, target: Broker, /, folder: Path, topics: Sequence[str] = (), **changes: dict[str, Any]
) -> Mirror:
    """The file of a mirror of `topics`; `changes` are merged into its sections."""
    name = support.unique("mirror").replace("-", "_")
    names = {"names": f"{name}.{{topic}}", **changes.pop("target", {})}
    file = mirror_file(folder, source, target, topics, name=name, target=names, **changes)
    return Mirror(source, target, file, name)


def _records(broker: Broker, topic: str, partition: int) -> list[Record]:
    read = support.messages(broker.bootstrap, topic, partition=partition)
    return [(m.key(), m.value(), m.timestamp()[1], Message.headers(m)) for m in read]
