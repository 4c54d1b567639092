"""Codes: each is there once and raised somewhere, and whoever asks gets its row."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.sink_core import errors, explain
from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError
from calve.sink_core.findings import FINDINGS
from tests.codes import says
from tests.documents import named

ROWS = [code.explanation for code in Code]
PAGE = (Path(__file__).parents[3] / "docs/errors.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_code_in_their_order() -> None:
    assert re.findall(r"^\| (CLV-\d+) \|", PAGE, re.MULTILINE) == [*Code]
    assert list(explain.CODES) == [*Code, *(kind.code for kind in FINDINGS.values())]


def test_no_code_is_unused() -> None:
    assert {code.name for code in Code} - named(outside=("sink_core/codes.py",)) == set()


def test_a_code_has_its_form_and_its_area() -> None:
    assert [code for code in explain.CODES if not re.fullmatch(r"CLV-[0-79]\d{3}", code)] == []
    assert {row.code[4] for row in FINDINGS.values()} == {"9"}


def test_a_row_says_what_and_what_to_do() -> None:
    assert [row.code for row in ROWS if not (row.title and row.meaning and row.remedy) or row.title.endswith(".")] == []


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)], ids=str)
def test_no_class_of_errors_is_without_a_code(kind: type) -> None:
    if issubclass(kind, CalveError):
        assert kind.code in [*Code]


def shown(*args: str) -> str:
    done = CliRunner().invoke(app, ["explain", *args])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("word", ["CLV-2101", "clv-2101", "2101"])
def test_a_code_is_explained(word: str) -> None:
    lines = shown(word).splitlines()
    assert lines[0] == f"{Code.NO_BROKER} {Code.NO_BROKER.explanation.title}"
    assert lines[1].endswith(f": {Code.NO_BROKER.explanation.meaning}")
    assert lines[2].endswith(f": {Code.NO_BROKER.explanation.remedy}")


@pytest.mark.parametrize("word", ["table-dropped", "CLV-9505"])
def test_a_finding_is_explained_with_its_choices(word: str) -> None:
    said = shown(word)
    assert said.startswith(f"CLV-9505 table-dropped: {FINDINGS['table-dropped'].title}")
    assert re.findall(r"--choose (\w+)", said) == ["refill", "accept", "rebuild"]


def test_links_are_said_in_words() -> None:
    assert "Renaming (docs/operations.md)" in shown("renamed-pipeline")
    linked = [row.code for row in explain.CODES.values() if "](" in str(row)]
    assert len(linked) > 1
    assert "](" not in "".join(map(shown, linked))


def test_without_a_word_all_are_listed() -> None:
    assert [line.split("\t")[0] for line in shown().splitlines()[1:]] == list(explain.CODES)
    assert [row["code"] for row in json.loads(shown("--json"))] == list(explain.CODES)


def test_machines_get_a_row_as_json() -> None:
    row = json.loads(shown("tag-removed", "--json"))
    assert (row["code"], row["name"], row["part"]) == ("CLV-9503", "tag-removed", "tables")
    assert [choice["name"] for choice in row["choices"]] == ["recommit", "refill", "accept"]
    assert set(json.loads(shown("CLV-1101", "--json"))) == {"code", "title", "meaning", "remedy"}


@pytest.mark.parametrize(("word", "near"), [("tag-remove", "tag-removed"), ("CLV-21011", "CLV-2101"), ("x", "CLV-")])
def test_an_unknown_word_is_answered_with_the_nearest(word: str, near: str) -> None:
    done = CliRunner().invoke(app, ["explain", word])
    assert (done.exit_code, done.stdout) == (2, "")
    says(done.stderr, Code.NO_SUCH_NAME, f"{word}: ", near)


def test_an_error_shows_the_closest_code_it_has() -> None:
    error = errors.Unreachable("no answer", hint="run again", code=Code.NO_BROKER)
    assert str(error) == "no answer [CLV-2101]\n  → run again"
    assert str(errors.Unreachable("no answer")) == "no answer [CLV-0009]"
    assert errors.CalveError("m").code == "CLV-0001"
