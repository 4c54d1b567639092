"""Which event a trim leaves first, and what it says for a reason."""

from __future__ import annotations

from calve.sink_core.control.checkpoint import Kept
from calve.sink_core.control.trim import first_kept
from calve.sink_core.sink.loop.needed import Taken, kept_for_tables
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState
from tests.codes import Naming
from tests.unit.tables.log.build import TABLE, bound, checkpoint, complete, log, reported, written

OTHER = "air.other"
THREE = log(bound(), *(e for i in (1, 2, 3) for e in (written(f"b{i}"), written(f"b{i}", OTHER), complete(f"b{i}"))))
"""Events for two tables at 1 and 2, 4 and 5, 7 and 8; publishes at 3, 6 and 9."""


def kept(state: CommitState, taken: Taken, *, young: int = 99) -> Kept:
    return first_kept(state, kept_for_tables(state, taken), first_young=young, older_than_s=3600)


def test_the_last_publish_stays_when_every_table_has_everything() -> None:
    assert kept(THREE, {TABLE: 10, OTHER: 10}) == Kept(9, Naming(9))


def test_what_is_young_stays() -> None:
    found = kept(THREE, {TABLE: 10, OTHER: 10}, young=2)
    assert found == Kept(2, Naming(2, "3,600 s"))


def test_a_table_that_is_behind_keeps_what_it_lacks_and_nothing_below() -> None:
    assert kept(THREE, {TABLE: 10, OTHER: 4}) == Kept(5, Naming(OTHER, 5))
    assert kept(THREE, {TABLE: 1, OTHER: 4}).offset == 1


def test_a_silent_table_keeps_nothing() -> None:
    silent = log(bound(), written("b1", OTHER), complete("b1"), written("b2"), complete("b2"))
    assert kept(silent, {TABLE: 5, OTHER: 2}).offset == 4


def test_a_table_nobody_looked_at_keeps_all_its_events() -> None:
    assert kept(THREE, {TABLE: 10}).offset == 2


def test_a_recreated_table_keeps_the_events_for_the_one_before() -> None:
    assert kept(THREE, {TABLE: 0, OTHER: 10}).offset == 1


def test_a_table_that_is_gone_keeps_what_nobody_reported() -> None:
    assert kept(THREE, {TABLE: None, OTHER: 10}).offset == 1
    state = log(*(e for i in (1, 2) for e in (written(f"b{i}"), complete(f"b{i}"))), reported(2))
    assert kept(state, {TABLE: None}).offset == 2
    SINK.apply(state, 5, reported(4))
    assert kept(state, {TABLE: None}).offset == 3


def test_an_incomplete_batch_stays() -> None:
    state = log(bound(), complete("b1"), written("b2"), written("b3"), complete("b3"))
    assert kept(state, {TABLE: 5}) == Kept(2, Naming(2))


def test_of_a_log_without_a_publish_the_checkpoint_says_enough() -> None:
    assert kept(log(checkpoint(5), start=5), {}) == Kept(6, Naming())
