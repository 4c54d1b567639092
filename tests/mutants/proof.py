"""Mutants of the proof: each has it pass what is wrong."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DEEP = "tests/unit/sink/ledger/test_stored_offsets.py"
_HISTORY = "tests/unit/sink/verify/test_history.py"
_JOBS = "tests/unit/sink/verify/test_jobs.py"
_LEDGER = "tests/unit/sink/ledger/test_rows.py"
_SNAPSHOTS = "tests/unit/iceberg/verify/test_snapshots.py"
_VERIFY = "tests/integration/test_verify.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "verify-file-twice",
        "sink_core/iceberg/verify/packed_files.py",
        "if often > 1}",
        "if often > 2}",
        (f"{_VERIFY}::test_a_batch_committed_twice_by_force_is_named",),
        "A proof that does not read rows would pass a table whose head names a file twice.",
    ),
    Mutant(
        "verify-total",
        "sink_core/iceberg/verify/snapshots.py",
        "if total is not None and total != rows:",
        "if total is not None and total < rows:",
        (f"{_SNAPSHOTS}::test_a_rewrite_that_lost_or_doubled_rows_is_named",),
        "A proof would pass a table in which a compaction has doubled rows.",
    ),
    Mutant(
        "verify-batch-twice",
        "sink_core/tables/history/contents.py",
        "if len(held.snapshots[batch_id]) > 1:",
        "if len(held.snapshots[batch_id]) > 2:",
        (f"{_VERIFY}::test_a_batch_that_two_snapshots_claim_is_named_with_both",),
        "A proof would pass a table that has a batch twice.",
    ),
    Mutant(
        "verify-fewer-than-published",
        "sink_core/tables/history/contents.py",
        "elif held.rows[batch_id] != rows:",
        "elif held.rows[batch_id] > rows:",
        (f"{_SNAPSHOTS}::test_fewer_rows_than_published_are_no_match",),
        "A proof would pass a batch of which the table has a part.",
    ),
    Mutant(
        "verify-expiry-excuses-all",
        "sink_core/tables/history/contents.py",
        "elif not whole and published_at.get(batch_id, 0) < held.oldest_stored:",
        "elif not whole:",
        (f"{_SNAPSHOTS}::test_expiry_does_not_excuse_a_batch_above_the_oldest_snapshot_left",),
        "A proof would excuse every batch that a table lacks once any snapshot of it has been expired.",
    ),
    Mutant(
        "verify-recount",
        "sink_core/sink/ledger/stored_offsets.py",
        "if found != row.records:",
        "if found < row.records:",
        (f"{_DEEP}::test_records_that_the_ledger_calls_gaps_are_noticed_while_kafka_holds_them",),
        "A proof would pass records that were never read, as long as the ledger calls them gaps.",
    ),
    Mutant(
        "verify-twice-within-a-file",
        "sink_core/sink/ledger/stored_offsets.py",
        "again |= BitMap64(values[counts > 1])",
        "again |= BitMap64(values[counts > 2])",
        (f"{_DEEP}::test_a_row_twice_is_named_within_a_file_and_across_files",),
        "A proof would pass rows that are there twice in one file.",
    ),
    Mutant(
        "verify-outside-of-the-ledger",
        "sink_core/sink/ledger/stored_offsets.py",
        "        outside = offsets - covered.get(at, NONE)\n",
        "        outside = offsets - offsets\n",
        (f"{_VERIFY}::test_an_extra_row_is_named_whether_it_doubles_an_offset_or_invents_one",),
        "A proof would pass rows of offsets that were never published.",
    ),
    Mutant(
        "verify-in-both",
        "sink_core/sink/ledger/stored_offsets.py",
        "both = offsets & held.seen.get(at, NONE)",
        "both = offsets & NONE",
        (f"{_DEEP}::test_a_record_in_the_table_and_among_the_dead_letters_is_named",),
        "A proof would pass a record that is in a table and among the dead letters.",
    ),
    Mutant(
        "verify-ledger-overlap",
        "sink_core/sink/ledger/rows.py",
        "if span and covered.range_cardinality(row.start, row.end):",
        "if False:",
        (f"{_LEDGER}::test_any_row_left_out_or_put_in_twice_is_named",),
        "A proof would pass offsets that two batches have read.",
    ),
    Mutant(
        "verify-ledger-gap",
        "sink_core/sink/ledger/rows.py",
        "holes[at], beyond[at] = expected - covered, covered - expected",
        "holes[at], beyond[at] = BitMap64(), covered - expected",
        (f"{_LEDGER}::test_any_row_left_out_or_put_in_twice_is_named",),
        "A proof would pass offsets that no batch has read.",
    ),
    Mutant(
        "verify-chain",
        "sink_core/sink/verify/history.py",
        "if batch_id_of(event.predecessor) != self._last:",
        "if False:",
        (f"{_HISTORY}::test_a_batch_planned_after_a_giving_up_continues_the_publish_before_it",),
        "A proof would pass two batches that continue the same one.",
    ),
    Mutant(
        "verify-refill-one-short",
        "sink_core/sink/verify/jobs.py",
        "return covered.get(at, NONE).range_cardinality(start, end) == end - start",
        "return covered.get(at, NONE).range_cardinality(start, end) > 0",
        (f"{_JOBS}::test_what_needs_no_snapshot",),
        "A proof would pass a batch that is lost and of which a refill has read a part.",
    ),
    Mutant(
        "verify-history-short",
        "sink_core/sink/verify/jobs.py",
        "if found != part.rows:",
        "if found > part.rows:",
        (f"{_JOBS}::test_history_has_as_many_rows_as_its_job_wrote",),
        "A proof would pass an added table whose history has lost rows.",
    ),
    Mutant(
        "verify-positions-once",
        "sink_core/sink/verify/world.py",
        "    _find(session, checks.against_log(found, starts, ends), evidence)\n",
        "",
        (f"{_VERIFY}::test_positions_moved_by_others_and_lost_records_are_findings",),
        "A proof would pass a pipeline whose next records retention has deleted.",
    ),
)
