"""History for a table that was added: what no range job has read for it as a whole is still to be read."""

from __future__ import annotations

from dataclasses import replace

from calve.sink_core.offset_sets import of_range
from calve.sink_core.sink.range_jobs.missing import missing
from calve.sink_core.tables.log.events import DataComplete
from calve.sink_core.tables.log.range_parts import RangeRead, Replaces
from calve.sink_core.tables.log.state import CommitState
from tests.unit.sink.range_jobs.test_job import row
from tests.unit.tables.log.build import TABLE, TOPIC, at, complete, log, written

ROWS = [row("b1", 0, 10), row("b2", 10, 20)]


def read(batch_id: str, start: int, end: int) -> DataComplete:
    """A range job that has read these offsets for the table."""
    done = complete(batch_id, {}, kind="range")
    return replace(done, ranges=(RangeRead(TOPIC, 0, start, end, end - start),), totals={"batches": 1})


def lacking(state: CommitState) -> list[int]:
    return [*missing(TABLE, ROWS, state, max_offsets=100).offsets.get(at(0), ())]


def test_a_batch_of_which_a_part_was_read_is_still_missing() -> None:
    """Nobody else would ever read the rest of it."""
    assert lacking(log(read("r1", 0, 9))) == [*of_range(0, 20)]
    assert lacking(log(read("r1", 0, 9), read("r2", 9, 10))) == [*of_range(10, 20)]


def test_a_job_that_may_have_been_dropped_gives_nothing() -> None:
    """One that replaces rows counts only if a table's head holds it."""
    event = written("r1")
    replacing = replace(event, replaces=Replaces(base_snapshot_id=1, gone=(), kept=()))
    assert lacking(log(replacing, read("r1", 0, 20))) == [*of_range(0, 20)]


def test_a_job_for_another_table_gives_nothing() -> None:
    done = replace(read("r1", 0, 20), tables=("air.other",))
    assert lacking(log(done)) == [*of_range(0, 20)]
