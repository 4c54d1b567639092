"""Mutants of maintenance: expiry, orphan removal, trim."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_EXPIRY = "tests/unit/iceberg/maintenance/test_expiry.py"
_ORPHANS = "tests/unit/iceberg/maintenance/test_orphans.py"
_OVERTAKEN = "tests/integration/test_overtaken_jobs.py"
_TRIM = "tests/unit/sink/loop/test_needed.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "expiry-above-the-tag",
        "sink_core/iceberg/maintenance/expiry.py",
        "min([wanted_ms, *(s.timestamp_ms for held in above.values() for s in held)])",
        "wanted_ms",
        (f"{_EXPIRY}::test_snapshots_between_tag_and_head_stay_whatever_their_age",),
        "Expiry would cut the ancestry below the head: a roll back can't be told from a table that went on.",
    ),
    Mutant(
        "expiry-above-one-tag",
        "sink_core/iceberg/maintenance/expiry.py",
        "for held in above.values() for s in held",
        "for held in [*above.values()][:1] for s in held",
        (f"{_EXPIRY}::test_of_two_pipelines_the_older_tag_counts",),
        "Of two pipelines that feed a table one would no longer know a roll back.",
    ),
    Mutant(
        "orphan-list-off-by-one",
        "sink_core/iceberg/maintenance/orphans.py",
        "sequence_number >= table.metadata.next_sequence_number()",
        "sequence_number > table.metadata.next_sequence_number()",
        (f"{_ORPHANS}::test_the_manifest_list_of_a_commit_that_sleeps_may_still_land_until_another_took_its_turn",),
        "The manifest list of a commit that sleeps would be deleted, and nobody can read the table once it lands.",
    ),
    Mutant(
        "orphan-metadata-off-by-one",
        "sink_core/iceberg/maintenance/orphans.py",
        "or ours > current",
        "or ours > current + 1",
        (f"{_ORPHANS}::test_a_metadata_file_that_is_about_to_become_the_table_s_may_still_land",),
        "The metadata file that a catalog is about to point to would be deleted: the table is gone.",
    ),
    Mutant(
        "orphan-metadata-unnumbered",
        "sink_core/iceberg/maintenance/orphans.py",
        "return ours is None or current is None or ours > current",
        "return ours is not None and current is not None and ours > current",
        (f"{_ORPHANS}::test_a_metadata_file_of_which_the_name_says_no_number_may_still_land",),
        "Metadata files of a catalog that names them in its own way would be deleted before it points to them.",
    ),
    Mutant(
        "orphan-rewritten-any",
        "sink_core/iceberg/maintenance/orphans.py",
        "return again is not None and again >= table.metadata.next_sequence_number()",
        "return False",
        (f"{_ORPHANS}::test_what_a_commit_writes_again_may_still_land_until_another_took_its_turn",),
        "Manifests and files that a sleeping commit has written again would be deleted, with the rows that stay.",
    ),
    Mutant(
        "orphan-kept-unnamed",
        "sink_core/iceberg/maintenance/orphans.py",
        "(*logged.event.added, *gone)",
        "(*logged.event.manifests, *gone)",
        (f"{_ORPHANS}::test_what_events_name_is_named_with_the_files_in_it",),
        "Rows that a published replay keeps would be deleted before its commit, which then is dropped.",
    ),
    Mutant(
        "orphan-gone-unnamed",
        "sink_core/iceberg/maintenance/orphans.py",
        "(*logged.event.added, *gone)",
        "logged.event.added",
        (f"{_ORPHANS}::test_what_events_name_is_named_with_the_files_in_it",),
        "Manifests that say what a published replay takes out would be deleted before its commit can look at them.",
    ),
    Mutant(
        "orphan-files-unnamed",
        "sink_core/iceberg/maintenance/orphans.py",
        "if io.new_input(ref.path).exists():",
        "if False:",
        (f"{_ORPHANS}::test_what_events_name_is_named_with_the_files_in_it",),
        "Data files of batches that are published and not committed yet would be deleted: their rows are lost.",
    ),
    Mutant(
        "orphan-no-fence",
        "sink_core/sink/maintenance/orphans.py",
        "giving_up = deleting and work.session.rules.orphans_give_up_first",
        "giving_up = False",
        ("tests/integration/test_orphans.py::test_a_batch_before_its_publish_is_given_up_and_redone",),
        "A batch that is in progress would be published after its files were deleted.",
    ),
    Mutant(
        "trim-no-second-look",
        "sink_core/control/trim.py",
        "return read and again is not None and again.kept.offset >= below",
        "return read",
        (f"{_OVERTAKEN}::test_a_trim_keeps_the_events_that_a_table_lacks_since_it_was_looked_at",),
        "Events that a table lacks since it was put back would be deleted, and nothing names their files any more.",
    ),
    Mutant(
        "trim-off-by-one",
        "sink_core/sink/loop/needed.py",
        "if logged.offset >= has:",
        "if logged.offset > has:",
        (f"{_TRIM}::test_a_table_that_is_behind_keeps_what_it_lacks_and_nothing_below",),
        "The first batch that a table lacks would be deleted from the log: its rows are never committed.",
    ),
    Mutant(
        "trim-unlooked-table",
        "sink_core/sink/loop/needed.py",
        "stored = taken.get(table, 0)",
        "stored = taken.get(table, state.next_offset)",
        (f"{_TRIM}::test_a_table_nobody_looked_at_keeps_all_its_events",),
        "Events of a table that came into the log while the tables were looked at would be deleted.",
    ),
    Mutant(
        "trim-of-a-table-that-is-gone",
        "sink_core/sink/loop/needed.py",
        "has = state.reported_offset(table, logged.event.table_uuid) if stored is None else stored",
        "has = state.next_offset if stored is None else stored",
        (f"{_TRIM}::test_a_table_that_is_gone_keeps_what_nobody_reported",),
        "A table that was dropped before anybody reported its commits would not be missed: no finding, no refill.",
    ),
    Mutant(
        "trim-incomplete-batch",
        "sink_core/sink/loop/needed.py",
        "if state.limit < state.next_offset:",
        "if False:",
        (f"{_TRIM}::test_an_incomplete_batch_stays",),
        "The files of a batch whose end is not visible yet would no longer be named when it is.",
    ),
)
