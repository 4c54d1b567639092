"""The protocol's rules switched off, bugs that other systems have had in the same places, and the promise each breaks.

A simulation that finds nothing with one of them off proves nothing with all of them on.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from calve.sink_core.rules import ALL, Rules
from tests.simulation.promises import Promise
from tests.simulation.storage import NO_BUGS, CatalogBug


@dataclass(frozen=True, slots=True)
class Rule:
    """Switches of `Rules` that are off, or a bug of the catalog's client, and the promise that this breaks.

    `mixture` is the one whose histories find it first; None: any. `seed` found it last: tried first, where the seeds
    from 0 on take long. A change of the histories moves it.
    """

    off: tuple[str, ...]
    breaks: Promise
    mixture: str | None = None
    seed: int = 0
    bugs: Set[CatalogBug] = NO_BUGS

    @property
    def rules(self) -> Rules:
        return replace(ALL, **dict.fromkeys(self.off, False))


def _off(switch: str, breaks: Promise, mixture: str | None = None, seed: int = 0) -> Rule:
    return Rule((switch,), breaks, mixture, seed)


ONCE, ROWS = Promise.PUBLISHED_ONCE, Promise.COMMITTED_ONCE
COPIES, SLOTS, SOURCES = Promise.COPIED_ONCE, "slots asleep", "slots of a source asleep"
FILES, FINDINGS, OTHERS = Promise.FILES_STAY, Promise.TRUE_FINDINGS, Promise.NOTHING_OVERWRITTEN

RULES: dict[str, Rule] = {
    "one transactional id for everything that moves an offset": _off("one_transactional_id", FINDINGS, "guardians", 25),
    "keep-alive fences before it reads": _off("keep_alive_fences_first", FINDINGS, "guardians", 274),
    "bootstrap looks again after its fence": _off("bootstrap_looks_again", ONCE, seed=6),
    "bootstrap writes an event": _off("bootstrap_writes_event", FINDINGS),
    "the log is asked for the own batch": _off("own_batch_is_looked_up", Promise.TRUE_VERDICTS),
    "a batch names its predecessor": _off("predecessor_is_compared", FILES, "guardians", 32),
    "positions are compared after the fence": _off("positions_are_compared", ONCE),
    "the log is read to the end seen after the fence": _off("log_is_read_to_its_end", FINDINGS, seed=10),
    "giving up leaves a mark": _off("giving_up_leaves_a_mark", FILES, "guardians", 32),
    "offsets are read once they are stable": _off("offsets_are_stable", FINDINGS, seed=740),
    "files of published batches are no orphans": _off("published_files_are_named", FILES, "guardians"),
    "files are listed before the fence": _off("files_are_listed_first", FILES, "guardians", 162),
    "a sleeping commit may still land": _off("sleeping_commit_may_land", FILES, "sleepers", 53),
    "a commit asserts the head": _off("commit_asserts_the_head", OTHERS, "ingestion", 90),
    "merge asserts the parent": _off("merge_asserts_the_parent", OTHERS, "merges"),
    "merge asserts the staging head": _off("merge_asserts_the_staging_head", OTHERS, "merges", 306),
    "trim writes a checkpoint": _off("trim_writes_a_checkpoint", FINDINGS),
    "trim waits for its checkpoint": _off("trim_waits_for_its_checkpoint", FINDINGS, seed=150),
    "trim asks the tables": _off("trim_asks_the_tables", ROWS, seed=22),
    "positions are read twice before a finding": _off("positions_are_read_twice", FINDINGS),
    "positions are held against the log": _off("positions_are_held_against_log", Promise.PROGRESS, seed=40),
    "source topics are known by their ids": _off("topic_ids_are_compared", ROWS, seed=90),
    "a cut ancestry needs proof": _off("cut_ancestry_needs_proof", ROWS, seed=242),
    "the tagged snapshot is an ancestor of the head": _off("tag_is_an_ancestor", ROWS, seed=43),
    "a missing tag is a finding": _off("missing_tag_is_a_finding", ROWS, "everything", 189),
    "an answer compares the token": _off("answer_compares_the_token", FILES, "refills", 45),
    "a range job compares the token": _off("range_job_compares_the_token", FILES, "refills", 110),
    "a resolving range job names tag and base": _off("resolving_job_names_tag_and_base", ROWS, "refills", 160),
    "a resolving range job counts for its finding only": _off(
        "resolving_job_is_for_its_finding", ROWS, "refills", 11997
    ),
    "a replay asserts the files that it takes out": _off("replay_asserts_its_files", ROWS, "replays", 79),
    "what a broken read left is not used": _off("broken_read_is_not_used", FINDINGS, "hosts of two versions", 2917),
    "accepting stores the highest known offset": _off("accepting_stores_the_highest_offset", ROWS, "answers"),
    "a history leaves out what was read again": _off(
        "history_leaves_out_what_was_read", Promise.VTTS, "a table added", 59
    ),
    "VTTS waits for the history": _off("vtts_waits_for_the_history", Promise.VTTS, "a table added"),
    "events count once their transaction is committed": _off("events_are_committed", ROWS),
    "a generation is recorded before its fence": _off("generation_is_recorded_first", COPIES, SLOTS, 3173),
    "the slots of former generations are fenced": _off("slots_are_fenced", COPIES, SLOTS, 33),
    "a driver reads positions after the fence": _off("positions_are_read_after_the_fence", FINDINGS, SLOTS, 385),
    "a slot compares the token": _off("slot_compares_the_token", COPIES, SLOTS, 33),
    "a slot fences before it reads": _off("slot_fences_first", COPIES, SLOTS, 19),
    "a task notices a former try of itself": _off("former_try_is_noticed", COPIES, SOURCES, 6),
    "source offsets are read to the end": _off("offsets_are_settled", FINDINGS, SOURCES, 6),
}

BUGS: dict[str, Rule] = {
    "retry without assertion": Rule((), OTHERS, "ingestion", bugs={CatalogBug.RETRIES_WITHOUT_ASSERTION}, seed=90),
    "deleting after a lost reply": Rule((), FILES, "ingestion", bugs={CatalogBug.DELETES_AFTER_A_LOST_REPLY}),
    "check not repeated on retry": _off("check_is_repeated", ROWS, "rare answers", 822),
    "latest instead of earliest": _off("log_is_read_from_its_start", FINDINGS),
    "commit to a recreated table": _off("recreated_table_is_a_finding", ROWS, seed=22),
    "orphans told by age": Rule(
        ("orphans_give_up_first", "published_files_are_named", "sleeping_commit_may_land"), FILES
    ),
}
CASES = RULES | BUGS
