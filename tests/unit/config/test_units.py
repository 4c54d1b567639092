"""Quantities mean what is written, and are written back so that they mean the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from calve.sink_core.config.units import BatchOrDuration, Bytes, Duration, Percent


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
    ("field", "value", "message"),
    [
        ("size", 4096, "4096 has no unit; write a size such as 256MiB, 4GiB or 1.5GB"),
        ("size", "4096", "'4096' has no unit; write a size such as"),
        ("size", "4g", "'4g' has the unknown unit 'g'; units are B, kB, KiB"),
        ("size", "-1GiB", "'-1GiB' is not a size"),
        ("size", "0.3B", "'0.3B' is not a whole number of bytes"),
        ("size", False, "False has no unit"),
        ("size", None, "None is not a size"),
        ("time", 5, "5 has no unit; write a duration such as 500ms, 5s, 10m, 2h or 7d"),
        ("time", "5M", "'5M' has the unknown unit 'M'; units are ms, s, m, h, d"),
        ("time", "0.1ms", "'0.1ms' is not a whole number of milliseconds"),
        ("share", "5", "'5' is not a percentage between 0% and 100%; write one such as 5%"),
        ("share", "101%", "'101%' is not a percentage"),
        ("every", "batches", "'batches' is not a duration"),
        ("every", "0s", "'0s' is no interval; write batch, or a duration"),
    ],
)
def test_a_refusal_shows_the_form(field: str, value: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Quantities.model_validate({field: value})
    assert message in caught.value.errors()[0]["msg"]
