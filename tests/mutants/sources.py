"""Mutants of sources: of what a task and its driver do, and of reading PostgreSQL's log."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_POSTGRES = "tests/integration/test_source_postgres.py"
_REFUSED = "tests/integration/test_source_postgres_refused.py"
_KIND = "tests/integration/test_source_kind.py"
_VERIFY = "tests/integration/test_source_verify.py"
_VISIBILITY = "tests/unit/source/postgres/test_visibility.py"
_LOG = "sink_core/source/postgres/log.py"
_CHANGES = "sink_core/source/postgres/changes.py"
_RELATIONS = "tests/integration/test_source_postgres_relations.py"
_SEEN = f"{_POSTGRES}::test_what_a_snapshot_has_seen_is_left_out_of_the_log_and_nothing_else"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "log-tells-again-what-a-snapshot-has",
        _CHANGES,
        "wanted=wants(change)",
        "wanted=True",
        (_SEEN,),
        "What committed between the slot's beginning and a table's snapshot would be there twice.",
    ),
    Mutant(
        "snapshot-sees-who-still-works",
        "sink_core/source/postgres/visibility.py",
        "        return xmax + ahead - _EPOCH not in running",
        "        return True",
        (f"{_VISIBILITY}::test_what_was_over_by_then_is_seen",),
        "A transaction that commits behind a snapshot, and began before it, would be lost.",
    ),
    Mutant(
        "snapshot-of-a-table-waits-for-nobody",
        "sink_core/source/postgres/server.py",
        "        self._await_end_of(beyond, table.name)\n",
        "",
        (f"{_POSTGRES}::test_rows_of_a_table_wait_for_transactions_that_wrote_before_it_was_published",),
        "What an open transaction wrote to a table before it was published would be lost: it is in no log.",
    ),
    Mutant(
        "log-offset-forgets-where-it-was-in-a-transaction",
        _CHANGES,
        "elif (change.commit_lsn, change.seq) > (self.first, self.skipped):",
        "elif change.commit_lsn >= self.first:",
        (f"{_POSTGRES}::test_a_transaction_of_any_size_is_split_and_each_row_is_there_once",),
        "The changes of a large transaction that are in Kafka already would be there twice.",
    ),
    Mutant(
        "log-offset-stays-where-nothing-of-ours-changed",
        _CHANGES,
        "self._offset(done if number >= self.most else self.upto, 0)",
        "self._offset(done, 0)",
        (f"{_POSTGRES}::test_while_only_others_write_the_log_is_let_go_of_and_nothing_is_read_twice",),
        "PostgreSQL would keep its log for as long as only other tables change.",
    ),
    Mutant(
        "table-made-anew-is-read-before-the-old-one-ends",
        _LOG,
        """        return lsn_of(str(known["lsn"])) >= first.lsn and first.is_over(self._server)""",
        "        return first.is_over(self._server)",
        (f"{_RELATIONS}::test_a_table_dropped_and_made_anew_ends_with_the_rows_of_the_new_one",),
        "Rows of a table that was dropped would stand behind those of the one that has its name.",
    ),
    Mutant(
        "key-has-the-order-of-the-table",
        "sink_core/source/postgres/relations.py",
        "        return next((order for order in orders if {*order} == {*identity}), identity)",
        "        return identity",
        (f"{_RELATIONS}::test_a_row_has_one_key_from_its_snapshot_and_from_the_log",),
        "A row would have one key from its snapshot and another from the log.",
    ),
    Mutant(
        "slot-that-is-ahead-is-gone-on-with",
        _LOG,
        "        if slot.confirmed > lsn_of(lsn):\n",
        "        if False:\n",
        (f"{_REFUSED}::test_a_slot_that_somebody_else_advanced_stops_with_both_places",),
        "Changes that another reader took would be missing, without a word.",
    ),
    Mutant(
        "slot-that-is-gone-is-made-anew",
        _LOG,
        "            return SLOT_GONE.of(self._slot, stored=lsn, found=found)",
        "            return None",
        (f"{_REFUSED}::test_a_slot_that_was_dropped_stops_until_all_is_read_anew",),
        "Changes between the slot that was dropped and the new one would be missing, without a word.",
    ),
    Mutant(
        "offset-is-stored-behind-its-transaction",
        "sink_core/source/send.py",
        "            for partition, offset in moved.items():\n                key =",
        "            for partition, offset in ():\n                key =",
        (f"{_KIND}::test_each_line_is_there_once_and_the_offsets_in_connects_form",),
        "Records would be there without their source offsets, and again with the next run.",
    ),
    Mutant(
        "source-offsets-are-not-held-against-the-log",
        "sink_core/source/batches.py",
        "            if known != stored.get(partition)\n",
        "            if False\n",
        (f"{_KIND}::test_an_offset_that_somebody_else_wrote_stops_with_both",),
        "Rows would be read twice or passed over once somebody has written to the offsets topic.",
    ),
    Mutant(
        "proof-of-a-source-counts-nothing",
        "sink_core/source/verify.py",
        "        if count < run.records\n",
        "        if count < 0\n",
        (f"{_VERIFY}::test_records_that_are_missing_are_found_with_their_offsets",),
        "Records that a topic lacks would be proven.",
    ),
    Mutant(
        "proof-of-a-source-believes-the-offsets-topic",
        "sink_core/source/verify.py",
        "if each != stored.get(at)}",
        "if not each}",
        (f"{_VERIFY}::test_an_offset_that_somebody_moved_is_a_fault_with_both",),
        "An offset that somebody else has moved would be proven.",
    ),
)
