"""What the sensors keep from tick to tick."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calve.orchestration.dagster.common import arrivals
from calve.orchestration.dagster.common.dead import Silence, Silences
from calve.orchestration.dagster.common.trigger import Memory, Unreached
from calve.orchestration.dagster.sensor import Cursor

TIMES = st.floats(0, 4e9)
GONE = st.builds(Unreached, since_s=TIMES, times=st.integers(1, 10**6), next_s=TIMES, why=st.text())
MEMORIES = st.builds(
    Memory,
    published_s=TIMES,
    seen_s=TIMES,
    observed_end=st.integers(-1, 2**62),
    observed_lag=st.integers(-1, 2**62),
    observed_s=TIMES,
    unreachable=st.none() | GONE,
)


SILENCES = st.builds(
    Silences, at_s=TIMES, of=st.dictionaries(st.text(), st.builds(Silence, mark=st.text(), seconds=TIMES))
)
SEEN = st.builds(arrivals.Memory, first_s=TIMES, seen_s=TIMES, through_s=st.dictionaries(st.text(), TIMES))


@given(st.builds(Cursor, silences=SILENCES, memory=MEMORIES, objectives=SEEN))
def test_what_is_kept_survives_the_cursor(before: Cursor) -> None:
    assert Cursor.loads(before.dumps()) == before


@given(
    st.none() | st.text() | st.sampled_from(["null", "[]", "7", '{"memory": {"seen_s": "soon"}}', '{"silences": 7}'])
)
def test_garbage_in_the_cursor_is_forgotten(cursor: str | None) -> None:
    assert Cursor.loads(cursor) == Cursor()


def test_a_cursor_of_another_version_gives_what_it_has() -> None:
    for more in ("", ', "of a later version": [1]'):
        assert Cursor.loads(f'{{"memory": {{"seen_s": 5.0{more}}}{more}}}') == Cursor(memory=Memory(seen_s=5.0))
