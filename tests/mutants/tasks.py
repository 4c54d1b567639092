"""Mutants of a batch's tasks: what they read, which attempts count, and what the ledger says of each offset."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_INGEST = "tests/unit/sink/loop/test_writing.py"
_READER = "tests/integration/test_reader.py"
_RUNNER = "tests/unit/spark_jobs/test_engine.py"
_TASK = "tests/integration/test_task.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "runner-no-dedupe",
        "spark_jobs/tasks.py",
        "if len(outcomes) != n or len(results) != n:",
        "if False:",
        (f"{_RUNNER}::test_a_task_without_a_result_or_with_two_stops_the_batch",),
        "A batch would go on with one of two results of a task, whichever came last, as if there had been one.",
    ),
    Mutant(
        "counts-max-timestamp-last",
        "sink_core/sink/loop/writing.py",
        "total.max_timestamp_ms = max(total.max_timestamp_ms, piece.max_timestamp_ms)",
        "total.max_timestamp_ms = piece.max_timestamp_ms",
        (f"{_INGEST}::test_the_latest_timestamp_of_any_slice_is_the_partition_s",),
        "VTTS would stay behind by as much as the slices of a partition are apart, or for ever.",
    ),
    Mutant(
        "counts-of-the-last-slice",
        "sink_core/sink/loop/writing.py",
        "setattr(total, name, getattr(total, name) + getattr(piece, name))",
        "setattr(total, name, getattr(piece, name))",
        (f"{_INGEST}::test_each_partition_that_moves_has_one_row_for_all_of_its_offsets",),
        "The ledger would lack the records of all slices but one: the proof says that they are lost.",
    ),
    Mutant(
        "counts-rows-of-the-last-slice",
        "sink_core/sink/loop/writing.py",
        "mine.update({name: mine.get(name, 0) + number for name, number in its.items()})",
        "mine.update(its)",
        (f"{_INGEST}::test_rows_by_table_are_added_up_and_tables_that_are_named_have_their_number",),
        "A replay would be refused, as its ranges give more rows than the ledger says.",
    ),
    Mutant(
        "skip-share-all",
        "sink_core/sink/write/task.py",
        "self._counts[i].dead_lettered += int((~keep[places]).sum())",
        "pass",
        (f"{_TASK}::test_records_that_are_dead_letters_already_stay_there_and_are_counted_as_that",),
        "The event of a range job would have records that became neither rows nor dead letters.",
    ),
    Mutant(
        "skip-forgotten",
        "sink_core/sink/write/task.py",
        "        if self._spec.skip:\n",
        "        if False:\n",
        (f"{_TASK}::test_records_that_are_dead_letters_already_stay_there_and_are_counted_as_that",),
        "A range job would stop on every record that was set aside when it was published.",
    ),
    Mutant(
        "attempts-share-names",
        "sink_core/iceberg/write/writer.py",
        'f"{file_prefix}-{uuid.uuid4()}.parquet"',
        'f"{file_prefix}-0.parquet"',
        (f"{_TASK}::test_attempts_of_one_task_share_no_file",),
        "A task that Spark tries again would find the files of its first attempt in its way, and the batch fail.",
    ),
    Mutant(
        "reader-beyond-its-range",
        "sink_core/kafka/reader.py",
        "only(delivered, delivered.offsets < self._ends[delivered.slices])",
        "only(delivered, delivered.offsets <= self._ends[delivered.slices])",
        (f"{_TASK}::test_records_beyond_the_range_are_left_for_the_next_batch",),
        "The record at a batch's end would be in this batch and in the next.",
    ),
    Mutant(
        "reader-done-one-early",
        "sink_core/kafka/reader.py",
        "delivered.offsets >= self._ends[delivered.slices] - 1])",
        "delivered.offsets >= self._ends[delivered.slices] - 2])",
        (f"{_READER}::test_a_range_is_read_to_its_last_record_however_few_come_at_once",),
        "The last record of a range that comes by itself would be counted as a gap, and be nowhere.",
    ),
    Mutant(
        "reader-out-of-range-is-the-end",
        "sink_core/kafka/reader.py",
        "                raise self._out_of_range(self.slices[i], int(self._next[i]))\n",
        "                self._finish([i])\n                continue\n",
        (f"{_READER}::test_offsets_lost_to_retention_are_a_finding",),
        "Records that retention deletes while a task reads would be counted as gaps, and nobody told.",
    ),
    Mutant(
        "shuffle-rows-not-compared",
        "spark_jobs/shuffle.py",
        "if len(read) != tasks or sent != taken:",
        "if len(read) != tasks:",
        ("tests/unit/spark_jobs/test_shuffle.py::test_what_was_sent_is_what_came",),
        "Rows that Spark's shuffle lost with an executor would be missing, or be there twice, and nobody told.",
    ),
    Mutant(
        "shuffle-results-not-counted",
        "spark_jobs/shuffle.py",
        "if len(read) != tasks or sent != taken:",
        "if sent != taken:",
        ("tests/unit/spark_jobs/test_shuffle.py::test_what_was_sent_is_what_came",),
        "A task that never said what it read would be taken for one that read nothing.",
    ),
)
