"""Which commands a kind of pipeline has, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from calve.orchestration.cli.kinds import KINDS, OF_ALL
from calve.orchestration.cli.main import app
from calve.orchestration.cli.maintain import Task
from calve.sink_core.codes import Code
from calve.sink_core.config import kinds as registry
from calve.sink_core.errors import EXIT_BAD_INPUT
from tests import toy_kind
from tests.codes import says
from tests.documents import ROOT

CONNECTIONS = {"deployment": "dev", "kafka": {"main": {"bootstrap.servers": "b:9092"}}}
TOY = {"name": "letters", "kind": "toy", "kafka": "main", "reads": "in.txt", "writes": "out.txt"}
NEEDED = {
    "replay": ["--table", "a.b"],
    "resolve": ["a-finding"],
    "positions import": ["positions.json"],
    "positions set": ["t/0:1"],
}
"""What a command does not go without."""


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All there are, by the words that they are given with."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def of_pipelines() -> Iterator[str]:
    """The commands that take a pipeline file; of `maintain` one for each task."""
    for name, command in commands():
        if any(parameter.name == "file" for parameter in command.params):
            yield from (f"maintain {task}" for task in Task) if name == "maintain" else [name]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    toy_kind.register(monkeypatch)
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(TOY))
    return tmp_path / "toy.yaml"


def test_the_command_line_knows_the_kinds_that_there_are() -> None:
    assert KINDS.keys() == registry.KINDS.keys()


def test_each_module_with_commands_is_in_the_command_line() -> None:
    texts = {path.stem: path.read_text() for path in (ROOT / "orchestration/cli").glob("*.py")}
    there = {name for name, text in texts.items() if "@command(" in text or "\ndef register(" in text}
    assert there == {command.callback.__module__.rpartition(".")[2] for _, command in commands()}


def test_each_command_is_one_of_a_kind() -> None:
    named = {command.partition(" --")[0] for kind in KINDS.values() for command in kind.commands}
    assert sorted(named) == sorted(of_pipelines())


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_does_is_there(kind: str) -> None:
    assert all(callable(KINDS[kind].body(command)) for command in KINDS[kind].does)


@pytest.mark.parametrize("command", [*sorted({*of_pipelines()} - {*OF_ALL}), "maintain --table"])
def test_a_command_that_a_kind_does_not_have_is_refused_and_those_named_that_it_has(file: Path, command: str) -> None:
    verb, *rest = command.split()
    more = NEEDED.get(command, [])
    if verb == "maintain":
        words = [verb, str(file), *(["trim", "--table", "a.b"] if rest == ["--table"] else rest)]
    else:
        words = [verb, *rest, str(file), *more]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == EXIT_BAD_INPUT
    says(refused.stderr, Code.WRONG_KIND, file, "toy", f"`{command}`", ", ".join(sorted(OF_ALL)))


@pytest.mark.parametrize("words", [["import", "--from", "mm2"], ["export", "--to", "mm2"]])
def test_positions_of_mirror_maker_are_a_mirrors(file: Path, words: list[str]) -> None:
    verb, option, other = words
    refused = CliRunner().invoke(app, ["positions", verb, str(file), option, other])
    assert refused.exit_code == EXIT_BAD_INPUT
    says(refused.stderr, Code.WRONG_KIND, file, "toy", f"`positions {verb} {option}`")


@pytest.mark.parametrize("words", [[], ["positions.json", "--from", "mm2"]])
def test_positions_come_from_one_place(file: Path, words: list[str]) -> None:
    refused = CliRunner().invoke(app, ["positions", "import", str(file), *words])
    assert refused.exit_code == EXIT_BAD_INPUT
    says(refused.stderr, Code.OPTION, "--from")
