"""Pipelines of kind source as tests make them: of `tests.lines_source`, and what they have sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import SourceReport, run_source
from tests import support
from tests.launch import calve

A, B = '{"file":"a.txt"}', '{"file":"b.txt"}'
"""Source partitions of `lines_of`, as Calve writes them."""


@dataclass(frozen=True)
class Made:
    """A pipeline that reads `folder` and writes `topic`."""

    broker: Broker
    file: Path
    folder: Path
    topic: str
    partitions: int = 1

    @property
    def pipeline(self) -> SourcePipeline:
        return load_as(SourcePipeline, self.file)

    def write(self, name: str, *lines: str) -> None:
        with (self.folder / f"{name}.txt").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def run(self) -> SourceReport:
        with SourcePlane(self.pipeline) as plane:
            return run_source(plane)

    def values(self, topic: str = "") -> list[str]:
        return [
            (value or b"").decode()
            for partition in range(self.partitions if not topic else 1)
            for value in support.consume(self.broker.bootstrap, topic or self.topic, partition=partition)
        ]

    def key(self, name: str) -> str:
        """As Connect writes it."""
        return f'["{self.pipeline.name}",{{"file":"{name}.txt"}}]'

    def offsets(self) -> dict[str, Any]:
        """As a consumer of the offsets topic has them that knows Connect's form."""
        found = support.messages(self.broker.bootstrap, self.pipeline.offsets_topic)
        return {(m.key() or b"").decode(): json.loads(m.value() or b"null") for m in found}


def lines_of(
    broker: Broker, directory: Path, *, partitions: int = 1, dead: bool = False, of: str = "Lines", **more: Any
) -> Made:
    """A pipeline of the class `of` in `tests.lines_source` from a folder to a topic of its own, with dead letters or
    without; `more` are keys of its file.
    """
    topic = support.unique("lines")
    (folder := directory / "in").mkdir()
    options = {"folder": str(folder), "topic": topic, "partitions": partitions}
    config = {
        "name": topic.replace("-", "_"),
        "kind": "source",
        "source": {"type": f"tests.lines_source:{of}", "options": options},
        "target": {"kafka": "here"},
        **({"dead_letters": {"topic": f"{topic}.dead"}} if dead else {}),
    }
    return Made(broker, source_file(broker, directory, config | more), folder, topic, partitions)


def all_sent(broker: Broker, directory: Path) -> Made:
    """Five lines of one file and two of another, all sent."""
    made = lines_of(broker, directory)
    made.write("a", *(f"a{i}" for i in range(5)))
    made.write("b", "b0", "b1")
    made.run()
    return made


def source_file(broker: Broker, directory: Path, config: dict[str, Any]) -> Path:
    """The pipeline file, beside a `connections.yaml` that calls the broker `here`."""
    connections = {"deployment": "test", "kafka": {"here": {"bootstrap.servers": broker.bootstrap}}}
    (directory / "connections.yaml").write_text(yaml.safe_dump(connections))
    batch = {**support.SHORT_CUT, **config.get("batch", {})}
    (file := directory / "source.yaml").write_text(yaml.safe_dump({**config, "batch": batch}))
    return file


def document(*words: object) -> dict[str, Any]:
    """What a command says with `--json`."""
    done = calve(*words, "--json")
    assert done.returncode == EXIT_DONE, done.stdout + done.stderr
    return json.loads(done.stdout)


def shown(made: Made) -> dict[str, tuple[Any, Any]]:
    """By file the offset of the offsets topic, and that of the control log."""
    found = document("positions", "show", made.file)["positions"]
    return {each["partition"]["file"]: (each["offset"], each["logged"]) for each in found}


def at(line: int) -> tuple[Any, Any]:
    """Both, where they agree."""
    return ({"line": line}, {"line": line})


def paused(made: Made) -> Made:
    assert calve("pause", made.file, "--wait").returncode == EXIT_DONE
    return made


def write_offset(made: Made, topic: str, key: str, offset: Any) -> None:
    """Write to a topic of offsets as Java's producer partitions it; None is a tombstone."""
    producer = Producer({"bootstrap.servers": made.broker.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(topic, None if offset is None else json.dumps(offset).encode(), key.encode())
    assert producer.flush(support.TIMEOUT_S) == 0
