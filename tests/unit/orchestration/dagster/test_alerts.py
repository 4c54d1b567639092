from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.orchestration.dagster.alerts import IN_A_ROW, folded_if_due
from calve.orchestration.dagster.common.names import ERROR_TAG, TERMINAL_TAG
from calve.orchestration.dagster.common.runs import error_tags
from calve.sink_core.errors import BadRecord, FindingError, Unreachable

SUCCESS = None


@pytest.mark.parametrize(
    ("earlier", "posted"),
    [
        ([], True),
        ([SUCCESS], True),
        (["BadRecord"], False),
        (["BadRecord", "BadRecord"], False),
        (["ConfigError", "Unreachable"], True),
        (["ConfigError", "BadRecord"], False),
        (["Unreachable", SUCCESS, "BadRecord"], True),
    ],
)
def test_an_error_that_a_person_must_end_is_posted_once_until_a_success(
    earlier: list[str | None], posted: bool
) -> None:
    assert folded_if_due("BadRecord", terminal=True, earlier=earlier) == (0 if posted else None)


@pytest.mark.parametrize(
    ("earlier", "folded"),
    [
        ([], None),
        (["Unreachable"], None),
        (["Unreachable", "Unreachable"], 2),
        (["Unreachable", "Unreachable", "Unreachable"], None),
        (["Unreachable", SUCCESS, "Unreachable"], None),
        (["Unreachable", "unexplained"], None),
        (["Unreachable", "unexplained", "Unreachable"], 2),
        (["Unreachable", "Unreachable", SUCCESS, "Unreachable"], 2),
    ],
)
def test_an_error_that_may_pass_is_posted_at_its_third_run(earlier: list[str | None], folded: int | None) -> None:
    assert folded_if_due("Unreachable", terminal=False, earlier=earlier) == folded


@given(st.lists(st.sampled_from(["A", "B", SUCCESS])), st.booleans())
def test_between_two_successes_each_error_is_posted_once_at_most(runs: list[str | None], terminal: bool) -> None:
    """`runs` oldest first, as they come."""
    posted: list[str] = []
    for at, kind in enumerate(runs):
        if kind is SUCCESS:
            posted.clear()
        elif folded_if_due(kind, terminal=terminal, earlier=runs[:at][::-1]) is not None:
            assert kind not in posted
            posted.append(kind)
    since = runs[len(runs) - runs[::-1].index(SUCCESS) :] if SUCCESS in runs else runs
    needed = 1 if terminal else IN_A_ROW
    assert sorted(posted) == [kind for kind in ("A", "B") if since.count(kind) >= needed]


def test_the_key_is_the_same_whatever_the_message() -> None:
    finding = [FindingError("TOPIC_RECREATED", "flights", stored=at, found="x", hint="") for at in ("1", "2")]
    assert {error_tags(error)[ERROR_TAG] for error in finding} == {"TOPIC_RECREATED"}
    assert error_tags(BadRecord("first"))[ERROR_TAG] == error_tags(BadRecord("second"))[ERROR_TAG] == "BadRecord"
    assert error_tags(Unreachable("gone"))[TERMINAL_TAG] == "false"
