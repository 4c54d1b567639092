"""Moments and ranges as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from calve.orchestration.times import duration_s, moment_ms, moment_or_age_ms, offset_range
from calve.sink_core.codes import Code
from calve.sink_core.offsets import OffsetRange
from tests.codes import raises

NOW = datetime(2026, 1, 8, tzinfo=UTC)
MS = 1767225600000


def test_a_moment_has_a_zone() -> None:
    assert moment_ms("2026-01-01T01:00:00+01:00", "--from") == moment_ms("2026-01-01T00:00:00Z", "--from") == MS
    for text in ("2026-01-01T00:00:00", "yesterday", ""):
        with raises(Code.NOT_A_TIME, "--from"):
            moment_ms(text, "--from")


def test_an_age_counts_back_from_now() -> None:
    assert moment_or_age_ms("7d", "--since", NOW) == moment_or_age_ms("2026-01-01T00:00:00Z", "--since", NOW) == MS
    with raises(Code.NOT_A_TIME, "--since", 7):
        moment_or_age_ms("7", "--since", NOW)


def test_a_range_names_topic_partition_and_offsets() -> None:
    assert offset_range("a.b-c_d/12:0-200") == OffsetRange("a.b-c_d", 12, 0, 200)


@pytest.mark.parametrize("text", ["t:0-1", "t/0:5-5", "t/0:9-5", "t/0:1-", "t/x:0-1", "/0:0-1"])
def test_other_ranges_are_refused(text: str) -> None:
    with raises(Code.NOT_A_TIME):
        offset_range(text)


def test_a_duration_is_written_as_in_the_files_or_in_seconds() -> None:
    assert [duration_s(text, "--linger") for text in ("5s", "5", "0", "0.5", "600.0", "2m")] == [5, 5, 0, 0.5, 600, 120]
    for text in ("", "-1", "5 bananas", "s", "1..2"):
        with raises(Code.NOT_A_TIME, "--linger"):
            duration_s(text, "--linger")
