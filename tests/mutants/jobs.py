"""Mutants of answers to findings, of range jobs and of replays of dead letters."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHOICE = "tests/unit/sink/dead_letters/test_choice.py"
_JOB = "tests/unit/sink/range_jobs/test_job.py"
_JUMP = "tests/unit/sink/resolve/test_jump.py"
_LOSS = "tests/unit/sink/resolve/test_loss.py"
_MISSING = "tests/unit/sink/range_jobs/test_missing.py"
_OVERTAKEN = "tests/integration/test_overtaken_jobs.py"
_RESOLVE_POSITIONS = "tests/integration/test_resolve_positions.py"
_RESOLVE_TABLES = "tests/integration/test_resolve_tables.py"
_RESOLVING = "tests/unit/tables/history/test_resolving.py"
_SELECTED = "tests/unit/sink/range_jobs/test_selected.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "restore-keeps-token",
        "sink_core/sink/resolve/positions.py",
        '    positions[token] = Position(before.offset, f"restored-{mark}")\n',
        "",
        (f"{_OVERTAKEN}::test_a_range_job_that_slept_while_the_group_was_lost_and_put_back_publishes_nothing",),
        "A range job that slept would publish ranges that another has read since: each row twice.",
    ),
    Mutant(
        "accept-beyond-the-end",
        "sink_core/sink/resolve/positions.py",
        "if now[at].offset > end]",
        "if False]",
        (f"{_RESOLVE_POSITIONS}::test_positions_that_were_moved_beyond_the_end_are_not_accepted",),
        "Records that come below a position beyond the log's end would never be read.",
    ),
    Mutant(
        "skip-in-every-topic",
        "sink_core/sink/resolve/positions.py",
        "max(offset, log_starts[at]) if at.topic == topic else offset)",
        "max(offset, log_starts[at]))",
        (f"{_JUMP}::test_only_what_lies_below_the_log_start_of_that_topic_is_skipped",),
        "An answer for one topic would give up records of another, which nobody was asked about.",
    ),
    Mutant(
        "jump-over-the-token",
        "sink_core/sink/resolve/jump.py",
        "self.seen.keys() | found.keys() if state.rules.answer_compares_the_token else set[TopicPartition]()",
        "set[TopicPartition]()",
        (f"{_JUMP}::test_a_position_that_changed_makes_a_jump_stale",),
        "An answer whose ledger file orphan removal took meanwhile would be published: the ledger can't be read.",
    ),
    Mutant(
        "jump-over-a-publish",
        "sink_core/sink/resolve/jump.py",
        "if state.last_batch_id != self.predecessor:",
        "if False:",
        (f"{_JUMP}::test_a_publish_in_between_makes_a_jump_stale",),
        "An answer would continue a batch that another has continued: the order of batches has a fork.",
    ),
    Mutant(
        "recommit-what-is-there",
        "sink_core/sink/resolve/tables.py",
        " or _held_already(table, loss.events)",
        "",
        (f"{_RESOLVE_TABLES}::test_recommit_is_refused_when_somebody_put_the_files_back_himself",),
        "Files that an operator put back by hand would be appended again: their rows are doubled.",
    ),
    Mutant(
        "recommit-what-is-gone",
        "sink_core/sink/resolve/tables.py",
        "not_there(table, loss.events) or ",
        "",
        (f"{_RESOLVE_TABLES}::test_recommit_is_refused_when_a_data_file_is_gone",),
        "Files that were deleted meanwhile would be named by the head: no reader gets through the table.",
    ),
    Mutant(
        "recommit-what-a-copy-holds",
        "sink_core/sink/resolve/loss.py",
        "        and logged.event.batch_id not in kept\n",
        "",
        (f"{_LOSS}::test_a_cherry_picked_copy_holds_what_its_source_says",),
        "Batches that the head has by a cherry-picked copy would be appended again.",
    ),
    Mutant(
        "recommit-what-was-given-up",
        "sink_core/sink/resolve/loss.py",
        "        and not any(start <= logged.offset < end for start, end in given_up)\n",
        "",
        (f"{_LOSS}::test_what_was_given_up_before_is_not_lost_again",),
        "Rows that an earlier answer gave up would come back with the next one.",
    ),
    Mutant(
        "recommit-behind-a-trim",
        "sink_core/sink/resolve/loss.py",
        "elif since < state.log_start:",
        "elif False:",
        (f"{_LOSS}::test_behind_a_trim_nobody_knows_what_was_published",),
        "A recommit would call a table whole though batches are missing of which the trim took the events.",
    ),
    Mutant(
        "recreated-table-stores-too-little",
        "sink_core/sink/resolve/loss.py",
        "stored = max([view.stored_offset, *others, *reported])",
        "stored = max([view.stored_offset, *reported])",
        (f"{_LOSS}::test_a_recreated_table_begins_behind_the_last_batch_for_the_old_one",),
        "A recreated table that begins anew would meet the old one's batches again: the finding never ends.",
    ),
    Mutant(
        "missing-partial-range",
        "sink_core/sink/range_jobs/missing.py",
        ".range_cardinality(row.start, row.end) == row.end - row.start",
        ".range_cardinality(row.start, row.end) > 0",
        (f"{_MISSING}::test_a_batch_of_which_a_part_was_read_is_still_missing",),
        "A batch of which a job has read a part would count as read: an added table never gets the rest.",
    ),
    Mutant(
        "missing-what-was-dropped",
        "sink_core/sink/range_jobs/missing.py",
        "for job in state.range_jobs_of(table) if not job.conditional)",
        "for job in state.range_jobs_of(table))",
        (f"{_MISSING}::test_a_job_that_may_have_been_dropped_gives_nothing",),
        "Ranges of a replay that was dropped would count as history that was read: an added table never gets them.",
    ),
    Mutant(
        "missing-what-fed",
        "sink_core/sink/range_jobs/missing.py",
        "if table not in row.written and not read:",
        "if not read:",
        (f"{_JOB}::test_history_is_what_neither_a_batch_nor_a_job_gave_the_table_in_whole_batches",),
        "Batches that fed an added table would be read for it once more.",
    ),
    Mutant(
        "range-token-unchecked",
        "sink_core/sink/range_jobs/job.py",
        "if found.metadata == planned.metadata or not state.rules.range_job_compares_the_token:",
        "if True:",
        (f"{_JOB}::test_a_job_is_published_under_the_token_it_was_planned_with",),
        "Two range jobs that were planned on the same state would both publish the same ranges.",
    ),
    Mutant(
        "range-log-unasked",
        "sink_core/sink/range_jobs/job.py",
        "if batch_id in state.batches or found.batch_id == batch_id:",
        "if found.batch_id == batch_id:",
        (f"{_JOB}::test_a_job_in_the_log_was_published_whatever_the_token_says",),
        "A range job that landed, and whose reply was lost, would be told as stale and started again.",
    ),
    Mutant(
        "range-partly-deleted",
        "sink_core/sink/range_jobs/job.py",
        "for r in ranges if r.start < log_starts[r.at]",
        "for r in ranges if r.end <= log_starts[r.at]",
        (f"{_JOB}::test_what_retention_took_is_named_to_the_offset",),
        "A refill would resolve a finding without the records that retention has taken of its ranges.",
    ),
    Mutant(
        "refill-what-a-copy-holds",
        "sink_core/sink/range_jobs/lost.py",
        "lost=frozenset(x.event.batch_id for x in written if base.stored_offset <= x.offset < covers) - held,",
        "lost=frozenset(x.event.batch_id for x in written if base.stored_offset <= x.offset < covers),",
        (f"{_RESOLVING}::test_what_the_head_holds_by_a_copy_is_not_lost",),
        "Batches that the head has by a cherry-picked copy would be read again, and their rows be doubled.",
    ),
    Mutant(
        "refill-for-another-state",
        "sink_core/tables/history/resolving.py",
        "        == (named.tagged_snapshot_id, named.base_snapshot_id)\n",
        "        == (named.tagged_snapshot_id, event.resolves.base_snapshot_id)\n",
        (f"{_RESOLVING}::test_a_job_for_another_state_of_the_table_is_dropped",),
        "A refill would be committed after a second roll back: what that took out is never read again.",
    ),
    Mutant(
        "refill-for-another-incarnation",
        "sink_core/tables/history/resolving.py",
        "if e.event.table_uuid == view.uuid and e.event.resolves is not None]",
        "if e.event.resolves is not None]",
        (f"{_RESOLVING}::test_a_job_for_another_incarnation_is_dropped",),
        "A refill for a table that was created again since would put its files into the new one.",
    ),
    Mutant(
        "refill-past-another-incarnation",
        "sink_core/tables/history/resolving.py",
        "if any(offset > covers for uuid, offset in",
        "if any(False for uuid, offset in",
        (
            f"{_RESOLVING}::test_a_job_is_dropped_if_another_incarnation_took_in_more_than_it_covers_though_its_events"
            "_were_trimmed",
        ),
        "A refill that slept while the table was dropped, fed and put back would resolve it without the rows between.",
    ),
    Mutant(
        "refill-taken-in-again",
        "sink_core/tables/history/resolving.py",
        "if covers < state.log_start and _had(view, state) > covers:",
        "if False:",
        (f"{_RESOLVING}::test_a_job_that_was_taken_in_once_is_dropped_if_what_came_with_it_may_be_trimmed",),
        "A refill would resolve the same roll back once more, without the batches that came with it and are trimmed.",
    ),
    Mutant(
        "refill-with-what-is-above",
        "sink_core/tables/history/resolving.py",
        "Share([*pending, job], after(job.offset), ",
        "Share([*pending, job], state.limit, ",
        (f"{_RESOLVING}::test_the_job_comes_with_what_is_pending_up_to_it_and_nothing_later",),
        "Batches that were published after a refill would be passed over by its commit.",
    ),
    Mutant(
        "replay-of-lost-offsets",
        "sink_core/sink/range_jobs/selected.py",
        " and not row.lost and _has_fed(",
        " and _has_fed(",
        (f"{_SELECTED}::test_ranges_that_the_table_never_got_are_refused",),
        "A replay would read offsets that an answer counts as lost: log, ledger and table contradict each other.",
    ),
    Mutant(
        "replay-of-two-topics",
        "sink_core/sink/range_jobs/selected.py",
        "if both := offsets & former.get(at, NONE):",
        "if both := offsets & NONE:",
        (f"{_SELECTED}::test_offsets_that_two_topics_had_are_refused",),
        "Rows of a topic that was deleted would be replaced by those of the one created in its place.",
    ),
    Mutant(
        "replay-of-fewer-rows",
        "sink_core/sink/range_jobs/selected.py",
        "if expected.get(place, part.rows) != part.rows:",
        "if False:",
        (f"{_SELECTED}::test_ranges_of_whole_rows_must_give_as_many_rows_as_before",),
        "A replay would take out rows whose records Kafka has no more.",
    ),
    Mutant(
        "letters-go-where-they-are",
        "sink_core/sink/dead_letters/choice.py",
        "(holds(table, {at: back}).get(at, NONE) if back else NONE)",
        "NONE",
        (f"{_CHOICE}::test_what_was_moved_before_goes_only_where_it_is_not",),
        "Dead letters that came back by a roll back would go again into tables that have them.",
    ),
)
