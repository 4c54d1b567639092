"""Codes of commands that operate a pipeline: pausing, answering, positions, reading again."""

from calve.sink_core.error_codes.code import ErrorCode

STILL_UNDER_WAY = ErrorCode(
    "CLV-5101",
    "Batches are still in progress",
    "`calve pause --wait` gave up; the pause is in effect.",
    "Wait again if a run is at work; `calve pause FILE --wait --give-up` ends what a killed one left.",
)
RESUMED = ErrorCode(
    "CLV-5102",
    "Somebody resumed while `calve pause --wait` waited",
    "The pause is over.",
    "Ask them; pause again.",
)
NOT_STANDING = ErrorCode(
    "CLV-5201",
    "The finding does not stand, or stands several times",
    "It is not there, not any more, or for several tables or topics.",
    "Nothing, or the command of the finding that the message names; say which by `--subject`.",
)
NO_SUCH_CHOICE = ErrorCode(
    "CLV-5202",
    "The finding has no such choice",
    "Its name is another one, or it can't answer this finding.",
    "Take one that the message names.",
)
NOT_POSSIBLE = ErrorCode(
    "CLV-5203",
    "The choice is not possible",
    "It can't answer the finding as things are; the message says why.",
    "Take another.",
)
OVERTAKEN = ErrorCode(
    "CLV-5204",
    "Overtaken, nothing was changed",
    "Somebody changed meanwhile what an answer to a finding rests on.",
    "Look at `calve status FILE`, and answer what is left.",
)
POSITIONS_FILE = ErrorCode(
    "CLV-5301",
    "The positions in the file can't be used",
    (
        "`calve positions export` did not write it, or it was changed; `source.topics` or the number of partitions "
        "is another one; or a position's records are gone, or not there yet."
    ),
    (
        "Correct the part named: a position for each partition, and no others, within what the topic has if that is "
        "meant."
    ),
)
OTHER_POSITIONS = ErrorCode(
    "CLV-5302",
    "The positions are of other topics",
    "Import on another cluster, or of a topic that was created again.",
    "Write these topics' offsets and ids into the file, if you know them.",
)
HAS_PUBLISHED = ErrorCode(
    "CLV-5303",
    "The pipeline has published already",
    "Its positions are its own.",
    "Import before its first run.",
)
POSITIONS_AT_WORK = ErrorCode(
    "CLV-5311",
    "Positions are set while a pipeline is paused only",
    "`calve positions set` on a pipeline that runs may start any moment.",
    "`calve pause FILE --wait`, set them, `calve resume FILE`.",
)
POSITION_OUTSIDE = ErrorCode(
    "CLV-5312",
    "The source does not have such an offset, or no such partition",
    "`calve positions set` with an offset below a partition's log start or beyond its end, or of a topic that the "
    "pipeline has no position for.",
    "Take one within what the message names; `calve positions show FILE` lists them.",
)
MIRROR_MAKER = ErrorCode(
    "CLV-5310",
    "MirrorMaker 2 can't be taken over, or given back to",
    "It is still at work, it has no offsets there, or they do not fit to the topics; or the mirror is not paused.",
    "Do what the message says, and try again.",
)
OTHER_TOPIC = ErrorCode(
    "CLV-5401",
    "Records were read from a topic that was created again",
    "A refill or history of batches whose topic is another one now.",
    "For a table that was added set `history: none`; for a finding `recommit`, or `accept` and go on without them.",
)
GONE_FROM_KAFKA = ErrorCode(
    "CLV-5402",
    "Retention has deleted these records",
    "A refill or history of records that are not in Kafka any more.",
    "For a table that was added set `history: none`; for a finding go on without them.",
)
UNKNOWN_LOSS = ErrorCode(
    "CLV-5403",
    "What the table lost can't be known",
    "A refill after snapshots were expired, or the control topic was trimmed, further than the roll back.",
    "Put the table back as its finding says.",
)
NO_KAFKA_COLUMN = ErrorCode(
    "CLV-5404",
    "Which rows are of which offsets can't be told",
    "A replay of a table without `_kafka`.",
    "Drop the table and choose `refill`, or change its rows by hand.",
)
FED_BY_OTHERS = ErrorCode(
    "CLV-5405",
    "Which rows are of which pipeline can't be told",
    "A replay of a table that has another pipeline's tag.",
    "Change its rows by hand.",
)
DELETE_FILES = ErrorCode(
    "CLV-5406",
    "The table has delete files",
    (
        "They are for data files as they are: a replay can't replace rows, or take dead letters out, beside row "
        "deletes by others. If they came just before the commit of a replay of dead letters, the table stays behind,"
        " and nothing is lost."
    ),
    (
        "Have Spark's `rewrite_data_files` merge them, with `delete-file-threshold` 1; then start the replay again, "
        "or, for a table that stays behind, `calve commit FILE`."
    ),
)
COMPACTED = ErrorCode(
    "CLV-5407",
    "A compacted topic can't be replayed",
    "Rows whose records Kafka has dropped would be lost.",
    "None.",
)
COLUMN_OF_SPEC = ErrorCode(
    "CLV-5408",
    "Files lie under a partition spec of which a column was dropped",
    "A replay has to write them again, and can't.",
    "Have Spark's `rewrite_data_files` write them under the current one.",
)
NOT_HELD = ErrorCode(
    "CLV-5409",
    "A replay of what the table does not have",
    "A batch was given up by an answer to a finding, or is published and not committed yet.",
    "Leave these ranges out; run `calve commit FILE` for the second.",
)
TWO_TOPICS = ErrorCode(
    "CLV-5410",
    "Offsets stand for records of two topics",
    "A replay of offsets that a topic of the same name had before: which rows are whose can't be told.",
    "Replay other ranges.",
)
NOT_PUBLISHED = ErrorCode(
    "CLV-5411",
    "Offsets were not published for the table, or passed over unread",
    "`--range` beyond what was published for it.",
    "The ledger has the ranges.",
)
OTHER_ROWS = ErrorCode(
    "CLV-5412",
    "A batch gives another number of rows now",
    "Records are gone from Kafka, or dead letters were deleted; nothing was published.",
    "Replay other ranges.",
)
LEDGER_ROW = ErrorCode(
    "CLV-5413",
    "The ledger has no row of a batch",
    "A refill, and the ledger lost rows.",
    "`calve verify FILE`.",
)
NO_FIELD_IDS = ErrorCode(
    "CLV-5414",
    "A file has no field ids",
    (
        "A replay of a file that somebody added without them (`add_files`), with a column that holds structs: "
        "whether one is null or empty can't be told."
    ),
    "Have `rewrite_data_files` write it again.",
)
LETTER_TWICE = ErrorCode(
    "CLV-5415",
    "A dead letter is there more than once",
    "Somebody added dead letters again by hand.",
    "Delete one of them.",
)
LETTERS_ROLLED_BACK = ErrorCode(
    "CLV-5416",
    "Whether dead letters were moved before can't be told",
    "Dead letters were rolled back after a replay, and a table has no `_kafka`.",
    "Leave the ranges out.",
)
OTHER_RANGE_JOB = ErrorCode(
    "CLV-5417",
    "Another range job was published meanwhile",
    "Two range jobs at once; or a replay by Dagster's jobs beside others, again and again.",
    "Run again when those are over.",
)
PROOF_TOO_LONG = ErrorCode(
    "CLV-5423",
    "A proof was given up",
    "The checks in Dagster prove for twenty minutes at most; log and ledger have become too long for that.",
    "Set `dagster.prove_since`, and prove the whole now and then by `calve verify FILE`.",
)
REWRITTEN = ErrorCode(
    "CLV-5418",
    "Others rewrote the files that a replay was to replace",
    "A replay beside compaction or other rewrites of the same files; nothing was changed.",
    "Start it again when they are over.",
)
FILES_GONE = ErrorCode(
    "CLV-5419",
    "A table can't be read as a whole",
    "Files of the ledger or the dead letters are gone.",
    "`calve verify FILE` names them.",
)
NOT_FROM_KAFKA = ErrorCode(
    "CLV-5420",
    "The table's rows are not in Kafka",
    "A refill of the ledger or the dead letters.",
    "See the finding.",
)
TOO_MANY_FILES = ErrorCode(
    "CLV-5422",
    "A table's files can't be listed in time",
    (
        "Orphan removal lists all files below a table's location, and deletes nothing of one whose listing takes more "
        "than half of `maintenance.max_duration`. The other tables are cleaned."
    ),
    "Raise `maintenance.max_duration`.",
)
NOT_REPLACED = ErrorCode(
    "CLV-5421",
    "Rows of a table of this format can't be replaced",
    "A replay of a table that is not in Iceberg's format: it would put other files in place of some.",
    (
        "Replay tables in Iceberg's format, as a backfill by hours does by itself. To read all of this one again drop "
        "it, and choose `refill`."
    ),
)
