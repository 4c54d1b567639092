"""The table of findings, and what is derived from it."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from calve.sink_core import findings
from calve.sink_core.finding import FindingKind
from calve.sink_core.findings import FINDINGS
from calve.sink_core.mirror import answers
from calve.sink_core.sink.resolve.resolve import REFILL, RESOLVERS
from calve.sink_core.tables.history.resolving import REFILLED
from tests.documents import named
from tests.e2e.faults import ways
from tests.peers import calve as peer

KINDS = list(FINDINGS.values())


def test_every_choice_has_a_resolver_and_every_resolver_is_a_choice() -> None:
    choices = {(kind.name, choice.name) for kind in KINDS for choice in kind.choices}
    assert choices == RESOLVERS.keys() | answers.RESOLVERS.keys()


def test_what_a_range_job_resolves_has_the_choice() -> None:
    refilled = {kind.name for kind in KINDS if kind.has(REFILL)}
    assert refilled - REFILLED == {"table-dropped"}, "it is created first, and then a recreated one"


def test_the_answers_that_tests_give_are_choices() -> None:
    given = [*ways.CHOICES.items(), *ways.REFILLED.items(), *ways.REWRITTEN.items(), *peer.CHOICES.items()]
    assert [pair for pair in given if not FINDINGS[pair[0]].has(pair[1])] == []


def test_every_row_is_found_somewhere() -> None:
    elsewhere = (
        "sink_core/findings.py",
        "sink_core/mirror/answers.py",
        "sink_core/sink/resolve/",
        "sink_core/sink/range_jobs/",
        "sink_core/sink/loop/needed.py",
    )
    rows = {name for name, value in vars(findings).items() if isinstance(value, FindingKind)}
    assert rows - named(outside=elsewhere) == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_row_says_all_there_is_to_say(kind: FindingKind) -> None:
    assert kind.hint or kind.choices, "either calve resolve answers it, or the hint says what does"
    assert not (kind.hint and kind.choices)
    assert all((kind.title, kind.meaning, kind.remedy, kind.seen_by, *(choice.does for choice in kind.choices)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_message_has_both_values_the_code_and_the_answers(kind: FindingKind) -> None:
    error = kind.of("air.flights", stored="1", found="2").error("p.yaml")
    first, second = str(error).splitlines()
    assert first == f"{kind.name}: air.flights: stored 1, found 2 [{kind.code}]"
    answer = f"calve resolve p.yaml {kind.name} --subject air.flights --choose {'|'.join(error.choices)}"
    assert second == f"  → {answer if error.choices else kind.hint}"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - errors cross process borders
    assert (str(again), again.code, again.choices) == (str(error), kind.code, error.choices)


@pytest.mark.parametrize(
    ("name", "of_tables", "its_own"),
    [
        ("table-rolled-back", ("accept", "refill", "recommit"), ("recommit",)),
        ("table-recreated", ("refill", "accept"), ("rebuild",)),
        ("table-dropped", ("refill", "accept"), ("rebuild",)),
        ("control-topic-truncated", ("rebuild",), ("rebuild",)),
        ("other-cluster", (), ()),
    ],
)
def test_the_ledger_has_answers_of_its_own(name: str, of_tables: tuple[str, ...], its_own: tuple[str, ...]) -> None:
    found = FINDINGS[name].of("calve.p_ledger", stored="1", found="2")
    assert (found.choices, found.of_the_ledger().choices) == (of_tables, its_own)


def test_a_situation_may_leave_choices_out() -> None:
    assert findings.POSITIONS_CHANGED.of("t", stored="1", found="2", only=("restore",)).choices == ("restore",)


def test_names_are_there_once() -> None:
    declared = [value.name for value in vars(findings).values() if isinstance(value, FindingKind)]
    assert [name for name, number in Counter(declared).items() if number > 1] == []
