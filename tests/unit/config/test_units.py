"""Quantities mean what is written, and are written back so that they mean the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from calve.sink_core.config.units import BatchOrDuration, Bytes, Duration, Percent
from tests.unit.config.files import invalid


class Quantities(BaseModel):
    size: Bytes = 0
    time: Duration = 0.0
    share: Percent = 0.0
    every: BatchOrDuration = "batch"


@given(size=st.integers(0, 2**62), milliseconds=st.integers(0, 10**12), per_mille=st.integers(0, 1000))
def test_what_is_dumped_reads_back_as_the_same(size: int, milliseconds: int, per_mille: int) -> None:
    value = Quantities.model_construct(size=size, time=milliseconds / 1000, share=per_mille / 1000)
    assert Quantities.model_validate(value.model_dump()) == value


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MiB", 268435456), ("4GiB", 4294967296), ("1.5 GB", 1500000000), ("10kb", 10000), ("7B", 7), ("0", 0), (0, 0)],
)
def test_sizes(text: object, size: int) -> None:
    assert Quantities.model_validate({"size": text}).size == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5.0), ("10m", 600.0), ("7d", 604800.0), ("500ms", 0.5), ("1.5h", 5400.0), (0, 0.0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert Quantities.model_validate({"time": text}).time == seconds


def test_percentages_are_fractions() -> None:
    assert Quantities.model_validate({"share": "5%"}).share == 0.05
    assert Quantities.model_validate({"share": "0.1 %"}).model_dump()["share"] == "0.1%"


def test_the_shortest_exact_text_is_shown() -> None:
    given = {"size": "1024MiB", "time": "3600s", "share": "7.0%", "every": "60s"}
    assert Quantities.model_validate(given).model_dump() == {"size": "1GiB", "time": "1h", "share": "7%", "every": "1m"}


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("size", 4096, ["4096 ", "256MiB"]),
        ("size", "4096", ["'4096'", "256MiB"]),
        ("size", "4g", ["'4g'", "'g'", "B, kB, KiB"]),
        ("size", "-1GiB", ["'-1GiB'", "256MiB"]),
        ("size", "0.3B", ["'0.3B'", "256MiB"]),
        ("size", False, ["False", "256MiB"]),
        ("size", None, ["None", "256MiB"]),
        ("time", 5, ["5 ", "500ms"]),
        ("time", "5M", ["'5M'", "'M'", "ms, s, m, h, d"]),
        ("time", "0.1ms", ["'0.1ms'", "500ms"]),
        ("share", "5", ["'5'", "0%", "100%"]),
        ("share", "101%", ["'101%'", "0%", "100%"]),
        ("every", "batches", ["'batches'", "500ms"]),
        ("every", "0s", ["'0s'", "500ms"]),
    ],
)
def test_a_refusal_shows_the_form(field: str, value: object, named: list[str]) -> None:
    with invalid(field, *named):
        Quantities.model_validate({field: value})
