"""Source offsets of another topic, copied once before the first generation reads (`offsets.migrate_from`)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.failpoints import VARIABLE
from tests import support
from tests.codes import raises
from tests.launch import calve, forked
from tests.source_flow import Made, document, lines_of, paused, write_offset


@pytest.fixture
def old(broker: Broker) -> str:
    """The topic that the offsets are copied from."""
    return support.create_topic(broker.bootstrap, support.unique("old-offsets"), 3, {"cleanup.policy": "compact"})


@pytest.fixture
def made(broker: Broker, tmp_path: Path, old: str) -> Made:
    """Two files of five lines. By the old topic three lines of the first and all of the second were read."""
    made = lines_of(broker, tmp_path, offsets={"migrate_from": old})
    for name in "ab":
        made.write(name, *(f"{name}{i}" for i in range(5)))
    write_offset(made, old, spaced(made, "a"), {"line": 3})
    write_offset(made, old, made.key("b"), {"line": 5})
    write_offset(made, old, '["another",{"file":"a.txt"}]', {"line": 1})
    write_offset(made, old, made.key("c"), {"line": 9})
    write_offset(made, old, made.key("c"), None)
    return made


def spaced(made: Made, name: str) -> str:
    """A key as somebody else writes it, whose bytes are to stay."""
    return f'["{made.pipeline.name}", {{"file": "{name}.txt"}}]'


def sentinel(made: Made) -> str:
    return f'["{made.pipeline.name}"]'


def test_offsets_are_copied_once_with_a_sentinel(made: Made, old: str) -> None:
    assert made.run().records == 2
    assert made.values() == ["a3", "a4"]
    assert made.offsets() == {
        sentinel(made): {"migrated": True},
        spaced(made, "a"): {"line": 5},
        made.key("b"): {"line": 5},
    }
    # Never again, whatever becomes of the old topic or of our offsets.
    write_offset(made, old, made.key("b"), {"line": 1})
    paused(made)
    document("positions", "reset", made.file, "--yes")
    calve("resume", made.file)
    assert made.run().records == 10
    assert document("status", made.file)["findings"] == []


def test_a_pipeline_with_offsets_of_its_own_copies_none(made: Made) -> None:
    support.create_topic(made.broker.bootstrap, made.pipeline.offsets_topic, 1, {"cleanup.policy": "compact"})
    write_offset(made, made.pipeline.offsets_topic, made.key("a"), {"line": 1})
    assert made.run().records == 4 + 5
    assert made.offsets() == {made.key("a"): {"line": 5}, made.key("b"): {"line": 5}}


def test_setting_one_before_the_first_run_keeps_the_others(made: Made) -> None:
    paused(made)
    shown = document("positions", "show", made.file)["positions"]
    assert [each["offset"] for each in shown] == [{"line": 3}, {"line": 5}]
    partition = '{"file":"a.txt"}'
    document("positions", "set", made.file, "--partition", partition, "--offset", '{"line":4}', "--yes")
    assert made.offsets() == {
        sentinel(made): {"migrated": True},
        spaced(made, "a"): {"line": 4},
        made.key("b"): {"line": 5},
    }
    calve("resume", made.file)
    assert made.run().records == 1


def test_a_topic_that_is_not_there_is_named(broker: Broker, tmp_path: Path) -> None:
    made = lines_of(broker, tmp_path, offsets={"migrate_from": "nowhere"})
    made.write("a", "a0")
    with raises(Code.NO_SUCH_TOPIC, "nowhere"):
        made.run()
    assert made.offsets() == {}


@pytest.mark.parametrize(
    "point", ["slot.after-check", "source.after-offsets", "transaction.after-offsets", "transaction.after-commit"]
)
def test_a_migration_that_is_killed_is_there_as_a_whole_or_not_at_all(made: Made, point: str) -> None:
    assert forked("run", made.file, cwd=None, **{VARIABLE: f"{point}=kill"}).returncode == -signal.SIGKILL
    assert len(made.offsets()) == (3 if point == "transaction.after-commit" else 0)
    assert calve("run", made.file).returncode == EXIT_DONE
    assert made.values() == ["a3", "a4"]
    assert made.offsets().keys() == {sentinel(made), spaced(made, "a"), made.key("b")}
