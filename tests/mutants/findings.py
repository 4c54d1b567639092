"""Mutants of the look at a table before a commit: whether it still is what the log says."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FINDINGS = "tests/unit/tables/history/test_findings.py"
_HELD = "tests/unit/iceberg/commit/test_preconditions.py"
_TABLE = "tests/unit/iceberg/commit/test_table.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "held-any-file",
        "sink_core/iceberg/commit/preconditions.py",
        "bool(added) and added <= held",
        "added <= held",
        (f"{_HELD}::test_a_tagged_snapshot_that_added_nothing_proves_nothing",),
        "After an answer to a finding, which adds nothing, any head behind expired snapshots would count as whole: a "
        "roll back loses its rows unseen.",
    ),
    Mutant(
        "held-some-files",
        "sink_core/iceberg/commit/preconditions.py",
        "bool(added) and added <= held",
        "bool(added & held)",
        (f"{_HELD}::test_a_table_that_lost_one_of_them_does_not_hold_them",),
        "A table that has lost part of a commit would count as having it: the rest is never read again.",
    ),
    Mutant(
        "schema-spec-unchecked",
        "sink_core/iceberg/commit/preconditions.py",
        "if manifest.spec_id not in specs or event.schema_id not in schemas:",
        "if False:",
        (_HELD,),
        "Manifests of a partition spec that the table has no more would be committed, and no reader can open it.",
    ),
    Mutant(
        "schema-unchecked",
        "sink_core/iceberg/commit/preconditions.py",
        "manifest.spec_id not in specs or event.schema_id not in schemas",
        "manifest.spec_id not in specs",
        (f"{_HELD}::test_files_of_a_schema_that_was_removed_are_not_committed",),
        "Files of a schema that was removed would be committed: their columns may stand for others by then.",
    ),
    Mutant(
        "finding-passed-over",
        "sink_core/iceberg/commit/table.py",
        "            self._stop_on(plan.finding)\n",
        "",
        (f"{_TABLE}::test_files_for_a_table_that_was_created_again_do_not_go_into_the_new_one",),
        "A table that contradicts the log would be reported as having all that was published, and nobody would answer.",
    ),
    Mutant(
        "fed-twice-unasked",
        "sink_core/iceberg/commit/table.py",
        "finding or self._fed_twice(view, state)",
        "finding",
        (f"{_TABLE}::test_a_table_that_another_pipeline_feeds_with_who_knows_what_is_not_committed_to",),
        "Two pipelines that read the same topic into one table would double each record.",
    ),
    Mutant(
        "read-twice-by-start",
        "sink_core/iceberg/commit/other_pipelines.py",
        'if row["end_offset"] > begin:',
        'if row["start_offset"] >= begin:',
        ("tests/unit/iceberg/commit/test_other_pipelines.py",),
        "Records that another pipeline read in the batch before this one's beginning would be in the table twice.",
    ),
    Mutant(
        "tag-moved-back-counts",
        "sink_core/tables/history/view.py",
        "self.counted((self.tagged, self.nearest))",
        "self.counted((self.tagged,))",
        (f"{_FINDINGS}::test_a_tag_moved_back_to_an_older_snapshot_of_ours_does_not_double_the_later_ones",),
        "Batches above a tag that somebody moved back would be committed again.",
    ),
    Mutant(
        "rebuilt-topic-counts",
        "sink_core/tables/history/view.py",
        "if own is not None and own.control_topic_id == topic_id]",
        "if own is not None]",
        ("tests/unit/iceberg/commit/test_view.py",),
        "Offsets of a control topic that was rebuilt since would count: events below them are never committed.",
    ),
    Mutant(
        "removed-tag-unnoticed",
        "sink_core/tables/history/findings.py",
        "if view.newest is not None:",
        "if False:",
        (f"{_FINDINGS}::test_a_tag_that_was_removed_is_missed_though_the_branch_was_rolled_back_as_well",),
        "A table rolled back and without its tag would be given batches again that somebody took out, unasked.",
    ),
    Mutant(
        "restored-unnoticed",
        "sink_core/tables/history/findings.py",
        "if reported <= view.stored_offset:",
        "if True:",
        (
            f"{_TABLE}::test_a_table_that_was_put_back_to_what_it_was_before_its_last_report_is_not_committed_to",
            f"{_FINDINGS}::test_a_table_restored_to_before_its_last_report_is_seen",
        ),
        "Of a catalog restored from a backup nobody would say that it lacks batches, of which a trim took the events.",
    ),
    Mutant(
        "recreated-unnoticed-after-trim",
        "sink_core/tables/history/findings.py",
        "if reported and view.tag is None and",
        "if False and view.tag is None and",
        (f"{_FINDINGS}::test_a_recreated_table_is_seen_by_its_reports_once_the_events_were_trimmed",),
        "A table created again after a trim would go on empty, as if nothing had ever been in it.",
    ),
    Mutant(
        "copy-stands-for-all",
        "sink_core/tables/history/findings.py",
        ' of ours is not among its ancestors") if lost else None',
        ' of ours is not among its ancestors") if False else None',
        (f"{_FINDINGS}::test_a_cherry_picked_copy_does_not_bring_back_the_snapshots_below_it",),
        "A head with a cherry-picked copy of the tagged snapshot would hide that older batches are gone.",
    ),
    Mutant(
        "rewritten-log-unnoticed",
        "sink_core/tables/history/findings.py",
        "if own.last_event_id and not _is_known(own, view.table, state) and",
        "if False and",
        (f"{_FINDINGS}::test_a_log_that_has_other_events_at_the_same_offsets_is_seen_by_the_last_event_taken_in",),
        "Of a control topic restored from an older state, batches at offsets that the table counts as committed are "
        "never committed.",
    ),
    Mutant(
        "other-control-topic-unnoticed",
        "sink_core/tables/history/findings.py",
        "if own.control_topic_id != now.control_topic_id:",
        "if False:",
        (f"{_FINDINGS}::test_a_table_whose_offsets_speak_of_another_control_topic_is_not_committed_to",),
        "Batches of a new control topic below the offset that the old one left would be passed over.",
    ),
    Mutant(
        "other-cluster-unnoticed",
        "sink_core/tables/history/findings.py",
        "if own.cluster_id != now.cluster_id:",
        "if False:",
        (f"{_FINDINGS}::test_a_table_of_another_cluster_is_not_committed_to",),
        "A pipeline copied to another cluster would feed the table of the first: doubled, or passed over.",
    ),
)
