"""A source and a connector of a real Kafka Connect 4.3.1, each going on where the other ended: every line once."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import SourceReport, run_source
from tests import support
from tests.launch import calve
from tests.peers.distributed import Worker
from tests.source_flow import document, source_file


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[Worker]:
    """One for the file; each test has a connector of its own."""
    peer = Worker(broker.bootstrap, tmp_path_factory.mktemp("connect"), support.unique("cg"))
    try:
        peer.start()
        yield peer
    finally:
        peer.stop()


@dataclass
class Both:
    """A pipeline and a connector that read the same file, of which `lines` were written."""

    broker: Broker
    worker: Worker
    file: Path
    read: Path
    connector: str
    topic: str
    lines: list[str] = field(default_factory=list[str])

    def write(self, number: int) -> None:
        """Append as many lines, no two of which are alike."""
        new = [f"line {len(self.lines) + i:06}" for i in range(number)]
        with self.read.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self.lines += new

    def run(self) -> SourceReport:
        with SourcePlane(load_as(SourcePipeline, self.file)) as plane:
            return run_source(plane)

    def connect(self) -> None:
        """Start the connector."""
        self.worker.put(self.connector, self.configuration)

    @property
    def configuration(self) -> dict[str, str]:
        java = "org.apache.kafka.connect.file.FileStreamSourceConnector"
        return {"connector.class": java, "tasks.max": "1", "file": str(self.read), "topic": self.topic}

    @property
    def sent(self) -> list[str]:
        """What a reader with `read_committed` gets, in its order."""
        return [(value or b"").decode() for value in support.consume(self.broker.bootstrap, self.topic)]

    def until_all_are_sent(self) -> None:
        self.worker.until(lambda: len(self.sent) >= len(self.lines))

    @property
    def rest(self) -> list[dict[str, Any]]:
        """What its REST interface is to say, if everything was read."""
        return [self.at(len(self.lines))]

    def at(self, lines: int) -> dict[str, Any]:
        position = sum(len(line) + 1 for line in self.lines[:lines])
        return {"partition": {"filename": str(self.read)}, "offset": {"position": position}}

    def patch(self, lines: int) -> None:
        self.worker.patch(self.connector, [self.at(lines)])


@pytest.fixture
def both(broker: Broker, worker: Worker, tmp_path: Path) -> Generator[Both]:
    connector, topic = support.unique("shop"), support.create_topic(broker.bootstrap, support.unique("lines"))
    (read := tmp_path / "lines.txt").touch()
    config = {
        "name": connector.replace("-", "_"),
        "kind": "source",
        "source": {"type": "tests.connect_file_source:ConnectFile", "options": {"file": str(read), "topic": topic}},
        "target": {"kafka": "here"},
        "offsets": {"topic": worker.offsets},
        "connect": {"group": worker.group, "connector": connector},
    }
    yield Both(broker, worker, source_file(broker, tmp_path, config), read, connector, topic)
    if connector in worker.ask("GET", "/connectors"):
        worker.ask("DELETE", f"/connectors/{connector}")


def test_connect_goes_on_behind_what_was_sent_and_we_behind_what_it_sent(both: Both) -> None:
    both.write(400)
    assert both.run().records == 400
    both.write(600)
    both.connect()
    both.until_all_are_sent()
    assert both.sent == both.lines
    both.worker.until(lambda: both.worker.positions(both.connector) == both.rest)

    both.worker.halt(both.connector)
    both.write(500)
    report = both.run()
    assert (report.ended, report.records) == ("caught up", 500)
    assert both.worker.positions(both.connector) == both.rest
    both.write(100)
    both.worker.resume(both.connector)
    both.until_all_are_sent()
    assert both.sent == both.lines
    assert document("status", both.file)["findings"] == []


def test_a_task_that_is_at_work_is_fenced_and_ends(both: Both) -> None:
    both.write(100)
    both.connect()
    both.until_all_are_sent()
    # All that a run finds to do is to lead.
    assert both.run().records == 0
    both.write(50)
    both.worker.until(lambda: both.worker.states(both.connector) == ["FAILED"])
    assert both.sent == both.lines[:100]
    assert both.run().records == 50
    assert both.sent == both.lines
    [task] = both.worker.ask("GET", f"/connectors/{both.connector}/status")["tasks"]
    assert "old epoch" in task["trace"] or "Fenced" in task["trace"]
    # Restarted, it takes the slot back and goes on behind what we have sent.
    both.worker.ask("POST", f"/connectors/{both.connector}/tasks/0/restart")
    both.write(50)
    both.until_all_are_sent()
    assert both.sent == both.lines


@pytest.mark.faults
def test_what_its_rest_interface_moves_or_takes_away_is_gone_on_from(both: Both) -> None:
    both.write(100)
    both.connect()
    both.until_all_are_sent()
    both.worker.halt(both.connector)
    both.patch(90)
    both.write(10)
    assert both.run().records == 20
    assert both.sent == [*both.lines[:100], *both.lines[90:]]
    assert both.worker.positions(both.connector) == both.rest

    both.worker.ask("DELETE", f"/connectors/{both.connector}/offsets")
    # By its log everything was sent.
    assert both.run().records == 110
    assert both.sent[120:] == both.lines
    assert document("status", both.file)["findings"] == []


@pytest.mark.faults
def test_a_connector_moves_to_an_offsets_topic_of_its_own(both: Both) -> None:
    both.write(100)
    both.connect()
    both.until_all_are_sent()
    both.worker.halt(both.connector)
    own, config = f"{both.connector}-offsets", yaml.safe_load(both.file.read_text())
    config["offsets"] = {"topic": own, "migrate_from": both.worker.offsets}
    both.file.write_text(yaml.safe_dump(config))
    both.write(50)
    assert both.run().records == 50
    both.write(50)
    configuration = both.configuration | {"offsets.storage.topic": own}
    both.worker.ask("PUT", f"/connectors/{both.connector}/config", configuration)
    both.worker.resume(both.connector)
    both.until_all_are_sent()
    assert both.sent == both.lines
    both.worker.until(lambda: both.worker.positions(both.connector) == both.rest)


def test_positions_are_set_and_taken_away_for_both(both: Both, tmp_path: Path) -> None:
    both.write(100)
    both.connect()
    both.until_all_are_sent()
    both.worker.halt(both.connector)
    calve("pause", both.file, "--wait")
    assert document("positions", "show", both.file)["positions"] == [{**both.rest[0], "logged": None}]
    # What its REST interface said is put back by us.
    (kept := tmp_path / "kept.json").write_text(json.dumps({"offsets": both.worker.positions(both.connector)}))
    document("positions", "reset", both.file, "--yes")
    assert both.worker.positions(both.connector) == []
    document("positions", "set", both.file, "--from", kept, "--yes")
    assert both.worker.positions(both.connector) == both.rest
    both.patch(60)
    [shown] = document("positions", "show", both.file)["positions"]
    assert (shown["offset"], shown["logged"]) == (both.at(60)["offset"], both.rest[0]["offset"])
    partition, offset = json.dumps(both.at(80)["partition"]), json.dumps(both.at(80)["offset"])
    document("positions", "set", both.file, "--partition", partition, "--offset", offset, "--yes")
    assert both.worker.positions(both.connector) == [both.at(80)]
    both.worker.resume(both.connector)
    both.worker.until(lambda: len(both.sent) >= 120)
    assert both.sent == [*both.lines, *both.lines[80:]]
