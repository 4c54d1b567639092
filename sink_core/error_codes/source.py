"""Codes of sources: what their classes are, and what they give."""

from calve.sink_core.error_codes.code import ErrorCode

NO_SOURCE_CLASS = ErrorCode(
    "CLV-7101",
    "The class of a source can't be used",
    "`source.type` names a module or class that isn't there, or that does not take these options.",
    "Install its package where Calve runs, correct the name, or the options that the message names.",
)
NOT_FLAT = ErrorCode(
    "CLV-7102",
    "A source partition or offset is not flat",
    "Their fields are texts, numbers, true, false or null: as JSON, and as Kafka Connect has them.",
    "Correct the source: what has several parts takes several fields.",
)
SOURCE_BROKE_RULES = ErrorCode(
    "CLV-7103",
    "A source gave what it must not",
    (
        "It returned something of another type, planned a partition twice or from where it isn't, or sent to a topic "
        "that it has not named or that Calve owns. Nothing of it was stored."
    ),
    "Correct the source as the message says; docs/sources.md has the rules.",
)
SOURCE_FAILED = ErrorCode(
    "CLV-7104",
    "A source failed",
    "Its class raised an error that Calve knows nothing of. Nothing of the transaction was stored.",
    "Correct its class, or what its `options` name, then `calve resume FILE`.",
)
NOT_EXACTLY_ONCE = ErrorCode(
    "CLV-7105",
    "A source does not give every record exactly once",
    "`exactly_once: required` is set, and the source says why it can't promise that as it is set up.",
    "Set it up as the message says, or `exactly_once: requested`.",
)
BAD_ROW = ErrorCode(
    "CLV-7106",
    "A row can't be made a record",
    "It is bad, and there is no topic for dead letters. Nothing of its transaction was stored.",
    "Set `dead_letters: {topic: …}`, or correct the row.",
)
WHOLE_TOO_LONG = ErrorCode(
    "CLV-7107",
    "A transaction takes longer than a broker allows",
    "What a source reads at once, such as the snapshot of a table, is one transaction. Nothing of it was stored.",
    "Read what is there in parts: by another pipeline with `tables`, `by: timestamp` or `incrementing`.",
)
TOO_LARGE_FOR_TOPIC = ErrorCode(
    "CLV-7108",
    "A record is larger than its topic takes",
    (
        "Compressed it has more bytes than the topic's `max.message.bytes`. It becomes a dead letter that names table "
        "or file, size and setting; without a topic for dead letters it stops the pipeline. Nothing of its transaction "
        "was stored then."
    ),
    "Raise `max.message.bytes` of the topic (`target.config` sets it where Calve makes the topic), or set "
    "`dead_letters: {topic: …}`.",
)
NO_KEY_FOR_TOPIC = ErrorCode(
    "CLV-7131",
    "A record without a key, and a topic that is compacted",
    (
        "A compacted topic takes records with a key only: not the rows of a table without one, nor a `TRUNCATE`. Each "
        "becomes a dead letter that names table and topic; without a topic for dead letters it stops the pipeline."
    ),
    "Take `compact` out of `cleanup.policy` of the topic (`target.config` sets it where Calve makes the topic), give "
    "the table a key, or set `dead_letters: {topic: …}`.",
)
SOURCE_AWAY = ErrorCode(
    "CLV-7109",
    "A source's system does not answer",
    (
        "Its class raised an error of the operating system: a connection that was refused or lost, a time-out, a file "
        "that can't be opened. Nothing of the transaction was stored; Dagster tries again, later each time."
    ),
    "See the error it raised. A class says by `calve.RetriableError` and `calve.TerminalError` what may go through "
    "later and what needs a person.",
)
SOURCE_SILENT = ErrorCode(
    "CLV-7133",
    "A source's system has not answered yet",
    (
        "The sensor asked what is pending, and the answer is still to come: a system that hangs, a table that somebody "
        "has locked, or one that takes long to count. Nobody waits for it but one thread; other pipelines go on."
    ),
    "See what the system is busy with. Where rows take long to count, an index on the column of `by` helps, or another "
    "`by`.",
)
NO_TABLE_TO_ASK = ErrorCode(
    "CLV-7116",
    "A table or a column is not in the database",
    "`source.tables` names one that isn't there, or that the user may not see.",
    "Correct the name, or grant the user what it needs.",
)
WAY_DOES_NOT_FIT = ErrorCode(
    "CLV-7117",
    "A table can't be read this way",
    (
        "`by: transaction` is for tables of PostgreSQL, `timestamp` needs a time and a key that is never null, "
        "`incrementing` whole numbers."
    ),
    "Set another `by`, or another `column` or `key`, as the message says.",
)
OTHER_WAY = ErrorCode(
    "CLV-7118",
    "A table was read another way before",
    "Its source offset is of another `by`, `column` or `key`, and says nothing of where this one would go on.",
    "Set them as they were, or read the table by a pipeline of another name.",
)
NO_ADDRESS = ErrorCode(
    "CLV-7134",
    "`database.url` is no address of a database",
    "It has another form than SQLAlchemy, or PostgreSQL's own tools, take.",
    "Write postgresql://user:${ENV:PASSWORD}@host:5432/shop, or another database's.",
)
NO_DATABASE = ErrorCode(
    "CLV-7120",
    "A database does not answer",
    "It can't be reached, or does not let the user in.",
    "See what it says: correct the address, the user or the password, or start it; then run again.",
)
DATABASE_REFUSED = ErrorCode(
    "CLV-7121",
    "A database refuses a statement",
    "The user lacks a permission, or the database is not set up for what the pipeline reads.",
    "See what it says; docs/sources.md has what PostgreSQL needs.",
)
TABLE_NOT_TAKEN = ErrorCode(
    "CLV-7130",
    "A published table can't be taken",
    "No topic can have its name, two tables would share one, or its key is not published; with `snapshot: never` its "
    "changes would go nowhere.",
    "Set `target.topic_by_table` for it, name it in `source.log.exclude`, or publish its key, as the message says.",
)
DATABASE_RIGHTS = ErrorCode(
    "CLV-7128",
    "The user of a database lacks a right",
    (
        "Reading a log needs REPLICATION, reading rows SELECT on the table and USAGE on its schema. Where row-level "
        "security holds for the user, rows that its policies hide would be missing without a word: it needs BYPASSRLS."
    ),
    "Grant what the message names. Some clouds have a role for REPLICATION, such as `rds_replication`.",
)
DATABASE_LACKS = ErrorCode(
    "CLV-7129",
    "A database lacks what a statement names",
    "A slot or publication is not there, or was not there when what is read now was written.",
    "Make what the message names; `calve check` says which of them is missing.",
)
DATABASE_NOT_NOW = ErrorCode(
    "CLV-7132",
    "A database can't do now what it is asked",
    "It is read-only for the moment, as while a standby takes over, or met an error of its own.",
    "Run again; see the server's log if it stays.",
)
SLOT_IN_USE = ErrorCode(
    "CLV-7122",
    "A replication slot is in use, or waits",
    (
        "Another session reads it: of another pipeline, of another tool, or one whose client is gone and that still "
        "works. A slot that is made waits for all transactions that write at the moment."
    ),
    "A slot belongs to one pipeline: give each its own. End open transactions. Then run again.",
)
STILL_WRITING = ErrorCode(
    "CLV-7126",
    "A transaction is open that wrote before a table was published",
    (
        "What it wrote to the table before that is not in the log, and is not to be seen until it commits. Going on, "
        "these rows would be lost."
    ),
    "Let it end, and run again.",
)
NO_PUBLICATION = ErrorCode(
    "CLV-7123",
    "A publication is missing, or lacks a table",
    "`source.log.publication` says which tables are read, and `source.log.tables` which of them must be there.",
    "CREATE PUBLICATION, before the first run: its slot can't read what was written before there was one.",
)
NO_DRIVER = ErrorCode(
    "CLV-7124",
    "A database's driver is not installed",
    "Drivers come with an extra of their own.",
    "Install what the message names where Calve runs.",
)
NOT_OUR_SLOT = ErrorCode(
    "CLV-7125",
    "A replication slot is another's",
    "It decodes by another plugin, or is of another database.",
    "Name another slot in `source.log.slot`: Calve makes it.",
)
NO_FILES_ADDRESS = ErrorCode(
    "CLV-7110",
    "The address of a source of files can't be used",
    "There is no such folder, fsspec's package for its scheme isn't installed here, or it doesn't say what is needed.",
    "Correct `source.files.path`, or do what the message says.",
)
FILE_COMPRESSED = ErrorCode(
    "CLV-7111",
    "A file is compressed",
    "Lines are read from the byte where the last run ended, which a compressed file doesn't have. Parquet may be.",
    "Have files that are not compressed, or leave these out by the pattern in `source.files.path`.",
)
FILE_NAME = ErrorCode(
    "CLV-7115",
    "A file's name is no UTF-8",
    "Source partitions and offsets are JSON, as Kafka Connect has them, which has no such text. All others are read.",
    "Give the file another name.",
)
FILE_FORBIDDEN = ErrorCode(
    "CLV-7119",
    "A file may not be read",
    "Its file system doesn't let the user who runs Calve open it. All others are read.",
    "Grant the user reading, or leave the file out by the pattern in `source.files.path`.",
)
FILE_RECORD_TOO_LONG = ErrorCode(
    "CLV-7112",
    "A file has a record without an end",
    "No line ends within 16 MiB, or no quote is closed: it is a file of another kind, or damaged.",
    "Correct the file, or leave it out by the pattern in `source.files.path`.",
)
FILE_OTHER_FORMAT = ErrorCode(
    "CLV-7113",
    "A file is not what `source.files` says",
    "It is no Parquet, or not whole yet; or its columns have no name, one name twice, or not those of the key.",
    "Correct the file, `format` or `key`; have files moved into place once they are whole, or set `settle`.",
)
NO_FILE_OFFSET = ErrorCode(
    "CLV-7114",
    "A source offset is none of a file",
    "Somebody else wrote it to the offsets topic: it has no position, or something else than a number for one.",
    'Set it to `{"position": BYTES}` (of Parquet: rows) by `calve positions set`, or have the file read all again by '
    "`calve positions reset`.",
)
NO_AVRO_NAME = ErrorCode(
    "CLV-7127",
    "A column can't be a field of Avro",
    "Its name has more than letters, digits and underscores, and `target.value.type` is `avro`.",
    "Leave the column out of the publication, or write JSON.",
)
