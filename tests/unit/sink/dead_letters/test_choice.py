"""Which dead letters are tried for which tables."""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.dead_letters.choice import CREATED_AGAIN, NO_ROW, NO_TABLE, Chosen, Offsets, choose
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead
from tests.unit.sink.verify.hand_made import AT, DATA, DEAD, row

OTHER = "air.other"


def chosen(
    letters: Mapping[str, list[int]],
    *jobs: RangeJob,
    tables: tuple[str, ...] = (DATA, OTHER),
    has: Mapping[str, list[int]] | None = None,
    former: bool = False,
) -> Chosen:
    rows = [row("b1", 0, 10)._replace(written={DATA: 5, OTHER: 5}), row("b2", 10, 20)._replace(written={DATA: 5})]
    if former:
        rows = [row("b0", 0, 5)._replace(former=True, topic_id="gone"), *rows]

    def holds(table: str, offsets: Offsets) -> Offsets:
        return {at: wanted & BitMap64((has or {}).get(table, [])) for at, wanted in offsets.items()}

    places = {(batch_id, AT): BitMap64(offsets) for batch_id, offsets in letters.items()}
    return choose(places, rows, tables, DEAD, jobs, holds)


def offsets(found: Chosen) -> dict[TopicPartition, list[int]]:
    return {at: list(numbers) for at, numbers in found.offsets.items()}


def job(table: str, *ranges: tuple[int, int], letters: bool = False) -> RangeJob:
    return RangeJob("j", table, False, 1, tuple(RangeRead(*AT, a, b, b - a) for a, b in ranges), letters=letters)


def test_records_go_to_the_tables_that_their_batch_fed_the_largest_group_first() -> None:
    assert chosen({"b1": [1, 2], "b2": [11]}).tables == (DATA, OTHER)
    found = chosen({"b1": [1], "b2": [11, 12]})
    assert (found.tables, offsets(found)) == ((DATA,), {AT: [11, 12]})


def test_history_that_was_read_counts_as_fed() -> None:
    found = chosen({"b1": [1], "b2": [11, 12]}, job(OTHER, (10, 20)))
    assert (found.tables, offsets(found)) == ((DATA, OTHER), {AT: [1, 11, 12]})


def test_what_was_moved_before_goes_only_where_it_is_not() -> None:
    moved = job(DEAD, (1, 3), letters=True)
    found = chosen({"b1": [1, 2]}, moved, has={DATA: [1, 2], OTHER: [1, 2]})
    assert (found.tables, offsets(found)) == ((), {AT: [1, 2]})
    found = chosen({"b1": [1, 2]}, moved, has={DATA: [1, 2]})
    assert (found.tables, offsets(found)) == ((OTHER,), {AT: [1, 2]})
    assert chosen({"b1": [1, 2]}, moved).tables == (DATA, OTHER)


def test_what_can_t_be_tried_is_counted() -> None:
    assert chosen({"b9": [1]}).left == {NO_ROW: 1}
    assert chosen({"b1": [1, 7]}, former=True).left == {CREATED_AGAIN: 1}
    assert chosen({"b2": [11]}, tables=(OTHER,)).left == {NO_TABLE: 1}
    assert chosen({"b2": [11]}, tables=(OTHER,)).total == 0
