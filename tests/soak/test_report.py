"""What a soak's figures are called, and a soak of three minutes."""

from __future__ import annotations

import json

import pytest

from tests.soak.__main__ import main
from tests.soak.report import Count, Healed, document, fault_table, trend, trend_table

RIGHT = Count(sent=100, lost=0, twice=0, foreign_sent=10, foreign_lost=0, foreign_twice=0, proven=True)
WRONG = Count(sent=100, lost=2, twice=1, foreign_sent=10, foreign_lost=0, foreign_twice=0, proven=True)


def test_faults_are_counted_by_kind_with_the_time_they_took_to_heal() -> None:
    healed = [Healed("run killed", 3.0), Healed("broker killed", 9.0), Healed("run killed", 5.0)]
    assert fault_table(healed, RIGHT).splitlines()[2:] == [
        "| broker killed | 1 | 0 | 0 | 0 | 9.0 | 9.0 |",
        "| run killed | 2 | 0 | 0 | 0 | 4.0 | 5.0 |",
        "| all | 3 | 0 | 0 | 0 | 5.0 | 9.0 |",
    ]


def test_a_wrong_record_is_nobody_s_in_particular_and_silent_if_the_proof_holds() -> None:
    assert fault_table([Healed("run killed", 3.0)], WRONG).splitlines()[2:] == [
        "| run killed | 1 | ? | ? | ? | 3.0 | 3.0 |",
        "| all | 1 | 2 | 1 | 3 | 3.0 | 3.0 |",
    ]
    assert not WRONG.right


def test_what_has_not_healed_is_said() -> None:
    healed = [Healed("run killed", 3.0), Healed("run killed", None)]
    assert "| 3.0 | 1 not yet |" in fault_table(healed, RIGHT)
    assert "|  | 1 not yet |" in fault_table(healed[1:], RIGHT)


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([100.0] * 12, True),
        ([100.0 + 10 * i for i in range(12)], False),
        ([1.0, 50.0, 100.0, *[100.0] * 9], True),
        ([8.0] * 8 + [14.0] * 4, True),
    ],
)
def test_growth_after_a_start_is_flagged(values: list[float], flat: bool) -> None:
    found = trend("server", "memory", [(5.0 * i, value) for i, value in enumerate(values)])
    assert found.flat == flat
    assert ("GROWS" in trend_table([found])) != flat


def test_the_slope_is_that_of_an_hour() -> None:
    assert trend("server", "handles", [(0.0, 1.0), (1800.0, 2.0)]).per_hour == pytest.approx(2.0)


def test_a_document_has_everything() -> None:
    found = document([Healed("run killed", 3.0)], [trend("server", "memory", [(0.0, 1.0)])], WRONG)
    assert found["count"]["silent"] == 3
    assert found["processes"][0]["last"] == 1.0


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_three_minutes_of_soak_lose_and_double_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "3", "--rate", "1000", "--kill-every", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"]["right"]
