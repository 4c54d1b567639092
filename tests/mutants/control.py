"""Mutants of the control side: planning, decision, publisher, log, state, group, checks, tasks and their counts."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DECISION = "tests/unit/control/test_decision.py"
_FINDINGS = "tests/integration/test_findings.py"
_PLANNING = "tests/integration/test_planning.py"
_PUBLISH = "tests/integration/test_publish.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "decision-log-not-asked",
        "sink_core/control/decision.py",
        "plan.batch_id in state.batches or any(",
        "any(",
        (f"{_DECISION}::test_our_batch_in_the_log_counts_even_if_others_have_published_since",),
        "A run whose batch landed before others published would call it stale, and report its records as not stored.",
    ),
    Mutant(
        "keepalive-no-fence",
        "sink_core/control/publisher.py",
        "self._transaction(producer, [], positions)",
        "self._group._opened().commit(offsets=to_kafka(positions), asynchronous=False)",
        (f"{_PUBLISH}::test_keeping_alive_puts_nothing_back_that_was_published_since_it_looked",),
        "A keep-alive would put back positions that a run moved meanwhile: the pipeline stops on positions-changed.",
    ),
    Mutant(
        "keepalive-drops-token",
        "sink_core/control/publisher.py",
        "            positions, _state = read\n",
        "            positions = {at: position for at, position in read[0].items() if at != self.token}\n",
        (f"{_PUBLISH}::test_keeping_alive_is_for_the_token_of_range_jobs_as_well",),
        "The broker would forget the token of range jobs: of two jobs planned at once both are published, rows are "
        "there twice.",
    ),
    Mutant(
        "publish-error-swallowed",
        "sink_core/control/publisher.py",
        " or cause.txn_requires_abort():",
        ":",
        (f"{_PUBLISH}::test_an_error_that_ends_no_more_than_the_transaction_costs_a_publish_only_a_try",),
        "A batch that is written would be thrown away, and its run end, over an error that the next try does not meet.",
    ),
    Mutant(
        "no-topic-recheck-after-fence",
        "spark_jobs/batches.py",
        "if decision.verdict is not Verdict.ALREADY_PUBLISHED:",
        "if False:",
        (f"{_FINDINGS}::test_a_topic_that_is_new_and_recreated_before_its_first_publish_is_read_from_its_beginning",),
        "Records that are gone would be published over a topic created again: the pipeline stops and waits for an "
        "answer, where it could have read the topic from its beginning.",
    ),
    Mutant(
        "bootstrap-no-truncated-check",
        "sink_core/planning.py",
        "self._stop_on(checks.truncated(state, session.log.topic))",
        "pass",
        (f"{_PLANNING}::test_a_log_that_was_cut_since_the_pipeline_was_bound_is_not_taken_for_that_of_a_new_one",),
        "A pipeline whose log was cut would begin at its start positions again: every record is there twice.",
    ),
    Mutant(
        "missing-positions-no-fence",
        "sink_core/planning.py",
        'if last is not None and last.name == "positions-missing":',
        "if False:",
        (f"{_PLANNING}::test_a_topic_taken_out_while_it_gets_a_partition_has_lost_no_position",),
        "A run would stop on positions-missing although every position is there, and wait for somebody to answer.",
    ),
    Mutant(
        "broker-time-after-watermark",
        "sink_core/planning.py",
        "predecessor, started.broker_time_ms)",
        "predecessor, session.log.append(session.new_binding()).broker_time_ms)",
        (f"{_PLANNING}::test_what_is_appended_after_the_high_watermarks_is_no_older_than_the_plan_s_time",),
        "VTTS would promise readers records that were appended after the batch's end, and that the table lacks.",
    ),
    Mutant(
        "group-unstable-offsets",
        "sink_core/control/group.py",
        "clients.reader(self._settings, group=self.name)",
        'clients.reader(self._settings, group=self.name, **{"isolation.level": "read_uncommitted"})',
        (f"{_PUBLISH}::test_positions_that_a_publish_is_about_to_move_are_waited_for",),
        "A run would hold positions from before a publish against a log that has it, and stop on positions-changed.",
    ),
)
