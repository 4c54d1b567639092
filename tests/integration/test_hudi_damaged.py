"""A file of a Hudi table that can't be read: commands name table and file, and what they say to do brings it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.hudi.files.timeline import read_timeline
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_tables
from tests.codes import finding, raises, says
from tests.hudi_tables import NAMES
from tests.launch import calve
from tests.pipelines import Flow
from tests.support import TopicFactory

Damage = Callable[[Flow], Path]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1))
    for first in (0, 10):
        flow.produce(range(first, first + 10))
        flow.run()
    return flow


def commit_file(flow: Flow, at: int) -> Path:
    return read_timeline(hudi_tables.place(flow, NAMES[1])).commits[at].path


def emptied(at: int) -> Damage:
    def damage(flow: Flow) -> Path:
        path = commit_file(flow, at)
        path.write_bytes(b"")
        return path

    return damage


def cut(flow: Flow) -> Path:
    path = commit_file(flow, 0)
    path.write_bytes(path.read_bytes()[:100])
    return path


def overwritten(flow: Flow) -> Path:
    path = commit_file(flow, 1)
    path.write_bytes(b"{}" * 50)
    return path


def without_properties(flow: Flow) -> Path:
    path = hudi_tables.place(flow, NAMES[1]).properties
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    "damage",
    [emptied(0), emptied(-1), cut, overwritten, without_properties],
    ids=["first", "last", "cut", "other", "properties"],
)
def test_every_command_names_table_and_file_and_the_file_from_a_copy_mends_it(flow: Flow, damage: Damage) -> None:
    place = hudi_tables.place(flow, NAMES[1])
    copies = {path: path.read_bytes() for path in (*place.timeline.iterdir(), place.properties) if path.is_file()}
    path = damage(flow)
    flow.produce(range(20, 30))
    with raises(Code.DAMAGED_HUDI_TABLE, NAMES[1], path):
        flow.run()
    for command in (["status"], ["verify"], ["verify", "--deep"], ["check"]):
        done = calve(*command, str(flow.pipeline.path))
        # To `status` it is a blocker: all others are shown as they are.
        assert (done.returncode == EXIT_DONE) == (command == ["status"])
        says(done.stdout + done.stderr, Code.DAMAGED_HUDI_TABLE, NAMES[1], path.name)
    path.write_bytes(copies[path])
    flow.run()
    assert hudi_tables.ids(place.folder) == flow.ids() == list(range(30))


def test_without_a_copy_the_commit_is_removed_and_a_finding_gets_its_records_again(flow: Flow) -> None:
    place = hudi_tables.place(flow, NAMES[1])
    emptied(-1)(flow).unlink()
    restored = finding("table-restored")
    with raises(restored, NAMES[1]):
        flow.run()
    answered = ["resolve", str(flow.pipeline.path), restored.name, "--subject", NAMES[1], "--choose", "refill", "--yes"]
    assert calve(*answered).returncode == 0
    flow.produce(range(20, 30))
    flow.run()
    assert hudi_tables.ids(place.folder) == flow.ids() == list(range(30))
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()
