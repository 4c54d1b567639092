"""Pipelines of kind source as tests make them beside `tests/integration/test_source_kind.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import EXIT_DONE
from tests import support
from tests.integration.test_source_kind import Made
from tests.launch import calve

A, B = '{"file":"a.txt"}', '{"file":"b.txt"}'
"""Source partitions of `lines_of`, as Calve writes them."""


def lines_of(broker: Broker, directory: Path, **more: Any) -> Made:
    """A pipeline of `tests.lines_source` from a folder to a topic of its own; `more` are keys of its file."""
    topic = support.unique("lines")
    (folder := directory / "in").mkdir()
    options = {"folder": str(folder), "topic": topic, "partitions": 1}
    config = {
        "name": topic.replace("-", "_"),
        "kind": "source",
        "source": {"type": "tests.lines_source:Lines", "options": options},
        "target": {"kafka": "here"},
    }
    return Made(broker, source_file(broker, directory, config | more), folder, topic)


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
    (file := directory / "source.yaml").write_text(yaml.safe_dump(config))
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


def lines_sent(made: Made) -> list[str]:
    """What a reader with `read_committed` gets, in its order."""
    return [(value or b"").decode() for value in support.consume(made.broker.bootstrap, made.topic)]


def write_offset(made: Made, topic: str, key: str, offset: Any) -> None:
    """Write to a topic of offsets as Java's producer partitions it; None is a tombstone."""
    producer = Producer({"bootstrap.servers": made.broker.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(topic, None if offset is None else json.dumps(offset).encode(), key.encode())
    assert producer.flush(support.TIMEOUT_S) == 0
