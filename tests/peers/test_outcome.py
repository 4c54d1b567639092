"""How outcomes are counted and shown, and that every scenario names a test that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.__main__ import main
from tests.peers.outcome import Outcome, counted, document, table
from tests.peers.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
WHAT = {"rolled-back": "table rolled back"}
LOST = Outcome("rolled-back", "other", 4, lost=2, twice=1)
FOUND = Outcome("rolled-back", "Calve", 4, said=("`table-rolled-back`",), did=("`calve resolve`",), delays_s=(1.26,))


def test_an_id_is_lost_or_there_too_often() -> None:
    assert counted(4, [0, 2, 2, 2]) == (2, 2)
    assert counted(3, [2, 1, 0]) == (0, 0)


def test_each_outcome_is_a_row_that_says_what_was_wrong_and_what_was_said() -> None:
    lines = table([LOST, FOUND], WHAT).splitlines()[2:]
    assert lines == [
        "| table rolled back | other | 2 | 1 | nothing |  |",
        "| table rolled back | Calve | 0 | 0 | `table-rolled-back`; `calve resolve` | 1.3 |",
    ]


def test_a_table_that_cannot_be_read_is_wrong_whatever_was_said() -> None:
    unreadable = Outcome("rolled-back", "other", 4, unreadable=True, said=("an error",))
    assert not unreadable.right
    assert "| table unreadable |  | an error |" in table([unreadable], WHAT)


def test_what_could_not_be_played_is_neither_right_nor_silent() -> None:
    failed = Outcome("rolled-back", "other", 4, failed="no answer")
    assert (failed.right, failed.silent) == (False, False)
    assert "| not played to its end |  | no answer |" in table([failed], WHAT)


def test_wrong_and_without_a_word_is_silent() -> None:
    assert [(one["right"], one["silent"]) for one in document([LOST, FOUND])] == [(False, True), (True, False)]


def test_every_scenario_names_a_test_that_holds_calve_to_it() -> None:
    assert [scenario.test for scenario in SCENARIOS if not (ROOT / scenario.test).is_file()] == []
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "no-such"])
    assert "first-commit" in capsys.readouterr().err
