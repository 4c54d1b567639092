"""Mutants of Hudi tables: of what a commit holds, waits for and looks at, and of how changes are brought in."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMMIT = "sink_core/hudi/commit/table.py"
_SPARK = "sink_core/hudi/java/spark.py"
_HISTORIES = "tests/simulation/hudi/test_hudi_histories.py::test_no_history_breaks_a_promise"
_CHANGES = "tests/integration/test_hudi_changes.py"
_ALL_SHAPES = f"{_CHANGES}::test_tables_have_the_last_change_of_each_key"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "hudi-commits-without-its-lock",
        _COMMIT,
        "            with self.locked(seen.table):\n                while",
        "            if True:\n                while",
        (_HISTORIES,),
        "Two that have both looked complete one instant twice: incremental queries read its rows twice.",
    ),
    Mutant(
        "hudi-changes-do-not-look-again",
        _COMMIT,
        "table.properties, changes, lambda: self._check_unmoved(table))",
        "table.properties, changes, lambda: None)",
        (_HISTORIES,),
        "Whoever lost the lock meanwhile brings older changes in over newer ones.",
    ),
    Mutant(
        "hudi-appends-do-not-look-again",
        _COMMIT,
        "        complete(table.place.folder, table.properties, done, lambda: self._check_unmoved(table))",
        "        complete(table.place.folder, table.properties, done, lambda: None)",
        (_HISTORIES,),
        "Whoever lost the lock meanwhile completes an instant that another has completed.",
    ),
    Mutant(
        "hudi-changes-do-not-wait",
        _COMMIT,
        "                wait_past(table)\n",
        "                pass\n",
        (_HISTORIES, f"{_CHANGES}::test_changes_wait_until_the_instants_of_the_table_are_past"),
        "Hudi leaves out changes of rows that have a later instant, and says nothing.",
    ),
    Mutant(
        "hudi-forgets-staged-files-early",
        _COMMIT,
        "if e.offset < reported})",
        "if e.offset < state.limit})",
        (_HISTORIES,),
        "A table that was put back before it had reported a batch never gets that again.",
    ),
    Mutant(
        "hudi-looks-a-key-up-in-its-partition-only",
        _SPARK,
        'else "GLOBAL_SIMPLE"',
        'else "SIMPLE"',
        (_ALL_SHAPES,),
        "A row whose partition changes would be there twice, and one whose key alone is known would stay.",
    ),
    Mutant(
        "hudi-writes-old-lists",
        _SPARK,
        '    "spark.hadoop.parquet.avro.write-old-list-structure": "false",\n',
        "",
        (_ALL_SHAPES,),
        "Changes with a null in a list could never be brought in.",
    ),
    Mutant(
        "hudi-meets-its-schema-in-a-file",
        "sink_core/hudi/java/jvm.py",
        '        cast(Any, gateway.jvm).java.lang.Class.forName("org.apache.hudi.metadata.HoodieMetadataPayload")\n',
        "",
        (f"{_CHANGES}::test_a_spark_that_has_just_started_commits_at_the_first_try",),
        "With each tenth commit row changes stop until another run comes.",
    ),
    Mutant(
        "hudi-takes-another-key",
        "sink_core/hudi/changes/settings.py",
        "    if settings.key and set(settings.key) != set(key):\n",
        "    if False:\n",
        (f"{_CHANGES}::test_a_table_of_another_key_or_order_is_refused_and_nothing_is_written",),
        "Changes would be folded by one key and brought in by another.",
    ),
)
