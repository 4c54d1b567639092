"""The rules of the protocol that look like fuss until one is left out, as switches that only the simulation turns off.

Each is on wherever data is moved. The simulation turns them off one by one and expects its oracle to find the promise
that breaks (tests/simulation/rules.py): with all of them on it could not be told from one that finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rules are kept. A comment says what is done where one is off; docs/design.md says what that would lose.

    Given to `Session.open`; whoever has a session or the state of a control log finds them there.
    """

    # The publisher (sink_core/control).
    one_transactional_id: bool = True  # keep-alive has an id of its own
    keep_alive_fences_first: bool = True  # keep-alive reads the positions before its fence
    bootstrap_looks_again: bool = True  # bootstrap publishes whatever it reads after its fence
    bootstrap_writes_event: bool = True  # bootstrap puts positions in place and nothing into the log
    own_batch_is_looked_up: bool = True  # the log is not asked whether it has the plan's own batch
    predecessor_is_compared: bool = True  # positions may be at the plan's start by whoever put them there
    positions_are_compared: bool = True  # what the positions are after the fence does not matter
    log_is_read_to_its_end: bool = True  # after a fence the log is read up to its LSO of the moment
    giving_up_leaves_a_mark: bool = True  # positions are committed again as they are
    offsets_are_stable: bool = True  # positions are read beside a pending transaction
    events_are_committed: bool = True  # events count before their transaction is decided, or when it is aborted
    broken_read_is_not_used: bool = True  # what a broken read left is taken for the log
    log_is_read_from_its_start: bool = True  # a reader of the log begins at its end

    # Slots (sink_core/control/slots).
    generation_is_recorded_first: bool = True  # slot ids are fenced before the new generation is in the log
    slots_are_fenced: bool = True  # nobody fences the slot ids of former generations
    positions_are_read_after_the_fence: bool = True  # a driver reads positions before it has fenced the slots
    slot_compares_the_token: bool = True  # a task does not look whether its generation still leads
    slot_fences_first: bool = True  # a task looks before it has fenced those who had its id

    # Sources (sink_core/source).
    former_try_is_noticed: bool = True  # a task begins where the plan does, whatever a former try of it has sent
    offsets_are_settled: bool = True  # source offsets are read up to the LSO of the moment

    # Looking at the source (sink_core/sink/loop/planning.py, sink_core/control/checks.py).
    positions_are_read_twice: bool = True  # a difference from the log is a finding at first sight
    positions_are_held_against_log: bool = True  # positions are taken as they are
    topic_ids_are_compared: bool = True  # a topic is known by its name

    # Commits (sink_core/commit).
    commit_asserts_the_head: bool = True  # neither head nor tag is asserted
    check_is_repeated: bool = True  # only the first attempt of a commit may stop on a finding
    cut_ancestry_needs_proof: bool = True  # an ancestry that ends before the tag is let pass
    tag_is_an_ancestor: bool = True  # nobody looks whether the head descends from the tagged snapshot
    missing_tag_is_a_finding: bool = True  # a table without its tag, or with less than was reported, is committed to
    recreated_table_is_a_finding: bool = True  # events for another incarnation of a table are committed
    merge_asserts_the_parent: bool = True  # a merge moves main wherever it is by then
    merge_asserts_the_staging_head: bool = True  # a merge does not assert that its branch is still there
    replay_asserts_its_files: bool = True  # a replay takes out files whether the head still names them or not
    completion_compares_the_head: bool = True  # whoever lost the lock meanwhile completes its instant all the same
    staged_files_wait_for_the_report: bool = True  # staged files go once their instant is completed
    changes_come_after_all_instants: bool = True  # row changes are brought in under an instant lower than others
    vtts_waits_for_the_history: bool = True  # VTTS of a table that was added does not wait for what it lacks

    # Answers and range jobs (sink_core/resolve, sink_core/range_jobs).
    answer_compares_the_token: bool = True  # an answer compares only the positions that it moves
    accepting_stores_the_highest_offset: bool = True  # accepting stores the control offset that the head has
    range_job_compares_the_token: bool = True  # a range job is published whatever was published since its plan
    resolving_job_names_tag_and_base: bool = True  # a resolving job is committed to any state of its table
    resolving_job_is_for_its_finding: bool = True  # a resolving job is committed like any batch
    history_leaves_out_what_was_read: bool = True  # the history of a table is read from its start by each job

    # Maintenance (iceberg/maintenance, sink/maintenance).
    orphans_give_up_first: bool = True  # orphan removal fences nobody
    files_are_listed_first: bool = True  # files are listed after the log was read
    published_files_are_named: bool = True  # files that only events name are orphans
    sleeping_commit_may_land: bool = True  # files of a commit that sleeps are orphans
    trim_writes_a_checkpoint: bool = True  # events are deleted without a checkpoint for them
    trim_waits_for_its_checkpoint: bool = True  # events are deleted as soon as a checkpoint was sent
    trim_asks_the_tables: bool = True  # events are deleted that a table lacks


ALL = Rules()
