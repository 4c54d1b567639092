"""Codes of tables, of commits to them and of their maintenance."""

from calve.sink_core.error_codes.code import ErrorCode

NO_SUCH_TABLE = ErrorCode(
    "CLV-3201",
    "A table is missing",
    "The catalog does not have it, and it may not be created.",
    "Set `auto_create: {}`, or create it with the statement shown.",
)
DROPPED_MEANWHILE = ErrorCode(
    "CLV-3202",
    "A table was dropped during the run",
    "Somebody dropped it while a run or a commit was at work on it.",
    "Run again; it then shows as a finding or is created.",
)
OTHER_FORMAT_VERSION = ErrorCode(
    "CLV-3203",
    "The table has another format version",
    "A table of format version 1 or 3, or `auto_create.properties` that ask for one; Calve writes version 2.",
    (
        "Upgrade a version 1 table by its property `format-version=2`; for version 3 use another table. Leave the "
        "property out of `auto_create`."
    ),
)
TABLE_PROPERTY = ErrorCode(
    "CLV-3204",
    "A property of the table can't be read",
    "A number that is none, a metrics mode or a distribution mode that there isn't; the message names it.",
    "Set it to one of the values it says, or unset it.",
)
NOT_PARQUET = ErrorCode(
    "CLV-3205",
    "The table wants ORC or Avro",
    "`write.format.default` is another format; Calve writes Parquet.",
    "Set the property to `parquet`.",
)
ENCRYPTED = ErrorCode(
    "CLV-3206",
    "An encrypted table",
    "`encryption.key-id` is set.",
    "Use another table.",
)
NO_COLUMNS = ErrorCode(
    "CLV-3207",
    "A table without columns",
    "Nothing of a record could be stored.",
    "Add those the records have.",
)
FOREIGN_COLUMNS = ErrorCode(
    "CLV-3208",
    "A column that Calve does not write, or writes as another type",
    "A ledger or dead-letter table with a required column of somebody else, or a column `_kafka` of another type.",
    "Make the column optional, drop it, or rename it.",
)
CODEC = ErrorCode(
    "CLV-3209",
    "A compression that this build of Arrow can't write",
    "The table names it.",
    "Set the table property to `zstd`.",
)
NEW_TYPE = ErrorCode(
    "CLV-3210",
    "A column type of format version 3",
    "Version 2 lacks it.",
    "Use another type.",
)
FIXED_PARTITION = ErrorCode(
    "CLV-3211",
    "The table is partitioned by a column of type `fixed` itself",
    "pyiceberg writes such values in a way that Java can't read.",
    "Partition by a bucket of the column, or by another one.",
)
SPEC_GONE = ErrorCode(
    "CLV-3212",
    "A partition spec or schema was removed between publish and commit",
    "Files of a published batch were written with it.",
    "Bring it back.",
)
FOREIGN_FILES = ErrorCode(
    "CLV-3220",
    "An event names files that are not of its table",
    (
        "A manifest or a data file lies outside the table's location, `write.data.path` and `write.metadata.path`, or"
        " is not the one that was published. Nothing is committed to the table, and nothing deleted. Somebody else has"
        " written to the control topic, or has changed the table's location or a file since."
    ),
    (
        "Give a table that was moved its former location until the next commit. Else take the permission to write to"
        " the control topic away from whoever has it, delete the topic, and answer `control-topic-recreated` by"
        " `rebuild`."
    ),
)
SPEC_FOR_DELETES = ErrorCode(
    "CLV-3213",
    "The unpartitioned spec for deletes is not there",
    (
        "Deletes that are for all partitions lie under a partition spec without fields, which the table gets once "
        "beside its own. Somebody removed it while a batch was written, others changed the table at each attempt to "
        "add it, or the catalog refuses it."
    ),
    "Run again: it is added once more.",
)
EDITED_SNAPSHOT = ErrorCode(
    "CLV-3214",
    "A snapshot's properties are not what this pipeline writes",
    "Somebody edited them.",
    "Put the properties back, or roll the table forward to a snapshot that has them.",
)
TAKEN_FIELD = ErrorCode(
    "CLV-3215",
    "The records have a field of that name",
    "A field named `_kafka` or `_is_deleted` stands where a column of Calve would.",
    "Set `kafka_column: false`, or `deletes: hard`; or leave the field out of `auto_create.columns`.",
)
BAD_TERM = ErrorCode(
    "CLV-3216",
    "`auto_create` names a term, an order or a column that does not hold",
    "A partition term, a sort order or a comment for a column that isn't there, or whose type it doesn't apply to.",
    "Correct it.",
)
IDENTIFIER_FIELDS = ErrorCode(
    "CLV-3217",
    "A column can't tell rows apart",
    "`identifier_fields` names a column of a nested or floating-point type, or within a list or map.",
    "Name another, or leave it out.",
)
NO_TYPE = ErrorCode(
    "CLV-3218",
    "A column's type is none",
    "In `auto_create.columns`.",
    "Write an Iceberg type.",
)
UNREADABLE_NAMES = ErrorCode(
    "CLV-3219",
    "Not every reader could read the columns",
    (
        "`auto_create.columns` names two columns that differ in case only, one of Iceberg's metadata columns, or none; "
        "of a Hudi table one that begins with `_hoodie_`, or that Avro has not."
    ),
    "Give them other names.",
)
COMMITS_FAIL = ErrorCode(
    "CLV-3301",
    "Attempts to commit failed in a row",
    "The catalog answers and refuses each time (5xx), forgets the last call of a merge, or its database is locked.",
    (
        "See the catalog's log, and run again: the table catches up. Iceberg's REST server for tests, over SQLite, "
        "may stay locked after two commits at once: give it `CATALOG_CLIENTS=1`, or the pipeline "
        "`commit.parallel_tables: 1`."
    ),
)
ROW_LOCKED = ErrorCode(
    "CLV-3310",
    "Somebody holds the table's row in the catalog's database",
    (
        "Each attempt to commit waited for it as long as `lock_timeout` allows, ten seconds by default: a process "
        "sleeps in the middle of its commit, or a session has locked the row and not ended its transaction."
    ),
    "End that session: `pg_stat_activity` lists it. Then run again: the table catches up.",
)
RACES_LOST = ErrorCode(
    "CLV-3302",
    "Attempts in a row lost the race against other writers",
    "Another job commits to the table without pause.",
    "Run again; slow that job down.",
)
OUTCOME_UNSEEN = ErrorCode(
    "CLV-3303",
    "Whether a commit landed can't be seen",
    "The catalog went away in the middle.",
    "Run again: the next commit looks first.",
)
COMMIT_REFUSED = ErrorCode(
    "CLV-3304",
    "The catalog refused the commit",
    "It does not accept the change at all.",
    "Read its words: permissions, or a feature it lacks.",
)
MERGE_RACES_LOST = ErrorCode(
    "CLV-3305",
    "Others committed during each of several merges",
    "Compaction or another job commits to a table with `write_mode: merge` more often than a merge takes.",
    (
        "Run again when it pauses; merge seldom and much (`commit.every`), or set `write_mode: equality_deletes`: of"
        " what was published before, changes with `order_by` or `keep-old` still wait for their merge."
    ),
)
MERGE_BRANCH = ErrorCode(
    "CLV-3306",
    "A branch for a merge could not be made",
    "The catalog can't be reached, or refuses branches.",
    "Read its words; a catalog without branches needs `write_mode: equality_deletes`.",
)
MERGED_BY_SPARK = ErrorCode(
    "CLV-3307",
    "The table's changes are merged by Spark, and there is none here",
    (
        "A program of yours commits to a table with `write_mode: merge`, or to one for which batches wait that can "
        "be merged only, whatever the file says by now."
    ),
    "Have `calve commit` or `calve run` do it.",
)
MERGE_COLUMN_GONE = ErrorCode(
    "CLV-3308",
    "A column is gone by which batches are to be merged",
    "A key column, or that of `order_by`, was dropped while batches waited to be merged by it.",
    "Make a schema of the table that has the column the current one again, and run `calve commit`.",
)
MERGE_TYPE = ErrorCode(
    "CLV-3309",
    "A column of a type that Spark can't merge",
    "A column of type time or uuid, with `write_mode: merge`.",
    "Leave `write_mode` out, or give the table another column.",
)
PROCEDURE_RACE = ErrorCode(
    "CLV-3401",
    "Maintenance lost the race against other commits",
    "Iceberg's own retries were not enough while a pipeline committed.",
    "Nothing was changed; the next run tries again. Raise the table's `commit.retry.num-retries` if it stays.",
)
PROCEDURE = ErrorCode(
    "CLV-3402",
    "Maintenance failed on Spark",
    (
        "A procedure of Iceberg failed, or some groups of files could not be rewritten and stay as they are. Nothing"
        " was lost."
    ),
    "Read its words, and Spark's log; the next run tries again.",
)
BRANCH_RETENTION = ErrorCode(
    "CLV-3403",
    "A branch keeps snapshots by rules of its own",
    (
        "`expire` would take snapshots above the tag, because a branch of the table has a retention that wins over "
        "the pipeline's."
    ),
    "Take it off the branch, or expire the table by other means.",
)
