"""Which batches a proof of the last ones looks at."""

from __future__ import annotations

from pyroaring import BitMap64

from calve.sink_core.offset_sets import of_range
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.stored_offsets import Held
from calve.sink_core.sink.verify.history import Published
from calve.sink_core.sink.verify.since import SKEW_MS, created_again, shown, window_of
from calve.sink_core.tables.log.range_parts import RangeRead
from tests.unit.sink.verify.hand_made import AT, row

PUBLISHED = Published(offset=0, kind="batch", tables=(), totals={}, ends=0, new={}, rows={})
OTHER = TopicPartition("flights", 4)
ROWS = [
    row("a", 0, 10, planned_ms=100),
    row("a", 0, 5, at=OTHER, planned_ms=100),
    row("b", 10, 20, planned_ms=200),
    row("c", 20, 30, planned_ms=300),
    row("c", 5, 9, at=OTHER, planned_ms=300),
]


def test_batches_planned_then_or_later_are_in_the_window() -> None:
    window = window_of(ROWS, 200, {})
    assert window.batches == {"b", "c"}
    assert window.begins == {AT: 10, OTHER: 5}
    assert window_of(ROWS, 301, {}).batches == frozenset()


def test_a_batch_that_seems_older_than_the_one_it_follows_is_in_it_too() -> None:
    """Its broker's clock was behind: left out, it would be a gap."""
    skewed = [*ROWS, row("d", 30, 40, planned_ms=299), row("d", 9, 12, at=OTHER, planned_ms=299)]
    assert window_of(skewed, 300, {}).batches == {"c", "d"}


def test_a_batch_that_the_ledger_lacks_is_missed_if_the_log_says_that_it_was_planned_since() -> None:
    window = window_of(ROWS, 1000, {"old": 999 + SKEW_MS, "new": 1000 + SKEW_MS})
    assert window.announced == {"new"}
    published: dict[str, Published] = dict.fromkeys(("a", "old", "new", "later"), PUBLISHED)
    assert list(window.published(published)) == ["new", "later"]
    assert list(window_of(ROWS, 100, {}).published(published)) == ["a", "old", "new", "later"]


def test_what_lies_before_the_window_is_forgotten() -> None:
    window = window_of(ROWS, 300, {})
    held = Held(
        seen={AT: of_range(0, 30), TopicPartition("gone", 0): of_range(0, 3)}, twice={AT: BitMap64([3, 25])}, rows=33
    )
    window.cut(held)
    assert held.seen == {AT: of_range(20, 30)}
    assert held.twice == {AT: BitMap64([25])}
    parts = [RangeRead(*AT, start, 30, 1) for start in (19, 20)]
    assert window.within(parts) == parts[1:]


def test_topics_with_several_ids_were_created_again() -> None:
    assert created_again([("t", "1"), ("u", "1"), ("t", "2"), ("u", "1")]) == {"t"}


def test_moments_are_shown_in_utc() -> None:
    assert shown(1767225600999) == "2026-01-01T00:00:00Z"
