"""Dead letters that leave their table: those that were replayed, and no others, whatever was made of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.commit.plan import CommitPlan
from calve.sink_core.iceberg.commit.removal import RemoveDeadLetters
from calve.sink_core.iceberg.commit.replace import live_files
from calve.sink_core.iceberg.files.manifests import write_manifest
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.tables.internal import DEAD_LETTER_SCHEMA, DeadLetter, dead_letter_rows
from calve.sink_core.tables.log.range_parts import RangeRead
from tests.codes import raises
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import attempt_of, land, metadata_path, plan_of, row_deletes
from tests.unit.tables.log.build import TOPIC, complete, log, written

DEAD = "calve.flights_dead_letters"


@pytest.fixture
def dead(catalog: Catalog) -> Table:
    """Two files of dead letters: offsets 1 to 3, and 8."""
    catalog.create_namespace("calve")
    table = catalog.create_table(DEAD, DEAD_LETTER_SCHEMA)
    for offsets in ((1, 2, 3), (8,)):
        letters = [DeadLetter("BadRecord", "fit", TOPIC, 0, offset, -1, None, b"x", None) for offset in offsets]
        writer = TableWriter(table.io, table.metadata, "calve-b")
        writer.write(dead_letter_rows("b1", letters))
        ref = write_manifest(table.io, table.metadata, 0, writer.close(), metadata_path(table, "m"))
        land(table, attempt_of(table, own(2), ref))
    return table


def job(table: Table, batch_id: str, *offsets: int) -> CommitPlan:
    """A commit of the range job that has moved the records at these offsets."""
    event = replace(written(batch_id, DEAD, str(table.metadata.table_uuid)), manifests=(), removes=True)
    ranges = tuple(RangeRead(TOPIC, 0, offset, offset + 1, 1) for offset in offsets)
    done = replace(complete(batch_id, {}, kind="range", tables=(DEAD,)), ranges=ranges)
    state = log(event, done)
    return plan_of(table, state.written[DEAD], state)


def commit(table: Table, out: CommitPlan) -> None:
    land(table, attempt_of(table, own(4), *out.kept, gone=out.gone))


def left(table: Table) -> Sequence[int]:
    return sorted(table.scan().to_arrow()["offset"].to_pylist())


def test_what_was_moved_leaves_and_what_shares_its_file_stays(dead: Table) -> None:
    out = RemoveDeadLetters().build(job(dead, "r1", 2))
    commit(dead, out)
    assert out.removed == {"r1": 1}
    assert left(dead) == [1, 3, 8]


def test_a_file_of_which_all_was_moved_leaves_without_one_in_its_place(dead: Table) -> None:
    out = RemoveDeadLetters().build(job(dead, "r1", 8))
    commit(dead, out)
    assert out.kept == ()
    assert left(dead) == [1, 2, 3]


def test_dead_letters_that_somebody_deleted_do_not_come_back_with_the_file_they_were_in(dead: Table) -> None:
    """Their delete file is for the file as it is: the rows of the one written in its place would be there again."""
    (file,) = (file for file in live_files(dead) if file.record_count == 3)
    land(dead, attempt_of(dead, own(2), row_deletes(dead, file, 2)))
    assert left(dead) == [1, 2, 8]
    plan = job(dead, "r1", 2)
    with raises(Code.DELETE_FILES):
        RemoveDeadLetters().build(plan)


def test_without_a_job_nothing_is_read_or_written(dead: Table) -> None:
    plan = plan_of(dead, [Logged(0, replace(written("b1", DEAD), manifests=()))])
    assert RemoveDeadLetters().build(plan) is plan
