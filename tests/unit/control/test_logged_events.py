from __future__ import annotations

from bisect import bisect_left

import pytest

from calve.sink_core import packed_values
from calve.sink_core.control.events import Logged
from calve.sink_core.control.logged_events import LoggedEvents
from calve.sink_core.tables.log.events import DataWritten
from tests.unit.tables.log.build import written

OFFSETS = [2, 3, 5, 8, 13, 21]


@pytest.mark.parametrize("since", range(23))
def test_events_since_an_offset_are_those_at_and_behind_it(since: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_values, "BLOCK", 2)
    given = [Logged(offset, written(f"b{offset}")) for offset in OFFSETS]
    events = LoggedEvents[DataWritten]()
    for each in given:
        events.append(each)
    assert list(events) == given
    assert list(events.since(since)) == given[bisect_left(OFFSETS, since) :]
