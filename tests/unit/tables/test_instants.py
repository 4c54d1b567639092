"""Instants of batches, range jobs and changed columns never meet, and rise along their chain."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.tables.instants import Chain, next_instant

MILLIS = st.integers(0, 2**45)
CHAINS: tuple[Chain, ...] = get_args(Chain)


@given(MILLIS, MILLIS, st.sampled_from(CHAINS))
def test_an_instant_is_later_than_the_last_and_not_before_now(last: int, now: int, chain: Chain) -> None:
    assert max(last + 1, now) <= next_instant(last, now, chain) <= max(last + 1, now) + 3


@given(MILLIS, MILLIS, MILLIS, MILLIS)
def test_two_chains_never_have_the_same(last: int, now: int, other_last: int, other_now: int) -> None:
    first = {chain: next_instant(last, now, chain) for chain in CHAINS}
    second = {chain: next_instant(other_last, other_now, chain) for chain in CHAINS}
    assert not any(first[one] == second[other] for one in CHAINS for other in CHAINS if one != other)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_clock_that_goes_back_makes_no_instant_a_second_time(chain: Chain) -> None:
    given_now = next_instant(0, 1_000, chain)
    assert next_instant(given_now, 500, chain) > given_now
