"""From a real MirrorMaker 2 with exactly-once to a mirror and back, and its own client on our checkpoints."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control import pausing
from calve.sink_core.mirror import mm2
from calve.sink_core.mirror.mirror_maker import MirrorMaker as MirrorMakers
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import run_mirror
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.codes import raises
from tests.peers.mirror_maker import MirrorMaker
from tests.two_clusters import mirror_file, produce_transactions

PARTITIONS = 3
GIVE_UP_S = 300.0


@pytest.fixture
def topic(other_broker: Broker) -> str:
    return support.create_topic(other_broker.bootstrap, support.unique("orders"), PARTITIONS)


@pytest.fixture
def maker(broker: Broker, other_broker: Broker, topic: str, tmp_path: Path) -> Generator[MirrorMaker]:
    peer = MirrorMaker(
        other_broker.bootstrap, broker.bootstrap, tmp_path / "mm2", [topic], cluster=support.unique("eu")
    )
    yield peer
    peer.stop()


def values(broker: Broker, topic: str) -> Counter[bytes | None]:
    return Counter(v for p in range(PARTITIONS) for v in support.consume(broker.bootstrap, topic, partition=p))


def positions(verb: str, file: Path, *words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["positions", verb, str(file), *words, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["positions"]


def keys_of(broker: Broker, topic: str, partition: int) -> set[bytes]:
    return {bytes(m.key() or b"") for m in support.messages(broker.bootstrap, topic, partition=partition)}


def until(maker: MirrorMaker, broker: Broker, topic: str, written: list[bytes]) -> None:
    """Wait until the remote topic has so many records."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        there = topic in support.topics(broker.bootstrap)
        if there and values(broker, topic).total() >= len(written):
            return
        assert maker.running, maker.log.read_text(errors="replace")[-4000:]
        assert time.monotonic() < deadline, maker.log.read_text(errors="replace")[-4000:]
        time.sleep(0.5)


def test_a_mirror_goes_on_where_mirror_maker_ended_and_it_where_the_mirror_did(
    broker: Broker, other_broker: Broker, topic: str, maker: MirrorMaker, tmp_path: Path
) -> None:
    remote = f"{maker.cluster}.{topic}"
    file = mirror_file(tmp_path, other_broker, broker, [topic], source={"cluster": maker.cluster})
    pipeline = load(file)
    assert isinstance(pipeline, MirrorPipeline)
    written = produce_transactions(other_broker, topic, [20, 5, 7, 30], partitions=PARTITIONS)
    maker.start()
    until(maker, broker, remote, written)
    with MirrorPlane(pipeline) as plane, raises(Code.MIRROR_MAKER, f"{maker.cluster}-mm2"):
        mm2.take_over(plane)
    maker.stop()
    written += produce_transactions(other_broker, topic, [9, 4, 6], partitions=PARTITIONS)
    with MirrorPlane(pipeline) as plane:
        found = mm2.look(plane)
    assert (found.tasks, found.exactly_once, found.others) == (maker.tasks, True, ())
    assert len(found.copied) == PARTITIONS
    taken = positions("import", file, "--from", "mm2")
    assert {TopicPartition(p["topic"], p["partition"]): p["offset"] for p in taken} == found.starts
    with MirrorPlane(pipeline) as plane:
        report = run_mirror(plane)
        assert report.records == 13 * PARTITIONS
        with raises(Code.HAS_PUBLISHED, pipeline.name):
            mm2.take_over(plane)
    assert values(broker, remote) == Counter(written)
    with MirrorPlane(pipeline) as plane:
        with raises(Code.MIRROR_MAKER, "calve pause FILE"):
            mm2.give_back(plane)
        pausing.pause(plane, "me", "it is given back")
    given = positions("export", file, "--to", "mm2")
    with MirrorPlane(pipeline) as plane:
        read = MirrorMakers(plane).positions()
        assert [TopicPartition(p["topic"], p["partition"]) for p in given] == sorted(read)
        assert [p["offset"] for p in given] == [read[at] for at in sorted(read)]
    # Each key is where Connect writes it: in no partition but one.
    keys = Counter((key, p) for p in range(25) for key in keys_of(broker, f"mm2-offsets.{maker.cluster}.internal", p))
    assert len({key for key, _ in keys}) == len(keys) == PARTITIONS
    written += produce_transactions(other_broker, topic, [3, 8], partitions=PARTITIONS)
    maker.start()
    until(maker, broker, remote, written)
    maker.stop()
    assert values(broker, remote) == Counter(written)
