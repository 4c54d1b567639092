"""Codes of the files, their settings and the options of commands."""

from calve.sink_core.error_codes.code import ErrorCode

SETTINGS = ErrorCode(
    "CLV-1101",
    "The file says what Calve can't take",
    (
        "A key that doesn't exist, a setting of a later version (`not available yet`), a librdkafka key on which "
        "exactly-once rests (`not to be set`), a value of another form, `source` without `topics` and "
        "`topics_regex`, or `connections.yaml` without the name asked for. Each line of the message names file, line"
        " and key."
    ),
    (
        "Use the key named, leave out what is not to be set, name topics or a pattern for them, correct the rest; "
        "[reference.md](reference.md) has every key."
    ),
)
NO_SUCH_FILE = ErrorCode(
    "CLV-1102",
    "There is no such file",
    "The pipeline or connections file is missing.",
    "Check the path; `connections.yaml` is looked for beside the pipeline file.",
)
UNREADABLE_FILE = ErrorCode(
    "CLV-1103",
    "The file can't be read",
    (
        "It can't be opened, is not YAML (nested too deeply, a date that is none), holds no mapping of settings, or "
        "gives a key twice."
    ),
    "Correct the line named.",
)
WHICH_DOCUMENT = ErrorCode(
    "CLV-1104",
    "The file holds several pipelines, or none of that name",
    "A command with a `defs.yaml` that holds several, or `FILE#NAME` with a name that no document has.",
    "Name one of those that the message names: `defs.yaml#NAME`.",
)
CONNECTION = ErrorCode(
    "CLV-1105",
    "Which connection is meant can't be told",
    "`connections.yaml` lacks the name, or has several and none was chosen.",
    "Correct the name, add the connection, or say which.",
)
UNSET_VARIABLE = ErrorCode(
    "CLV-1106",
    "An environment variable is unset or empty",
    "A `${ENV:NAME}` is needed here, and the variable has no value in this process.",
    "Set it where the process starts; Spark's executors need it too.",
)
NO_VALUE = ErrorCode(
    "CLV-1107",
    "A key of a connection has no value",
    "Its value is null, or a `${…` that is no reference.",
    "Give it a value, write `${ENV:NAME}`, or remove the key.",
)
LEAST_ONE = ErrorCode(
    "CLV-1108",
    "A limit is below 1",
    "A limit of 0 or less.",
    "Set 1 or more.",
)
LITERAL_SECRET = ErrorCode(
    "CLV-1109",
    "A secret was given literally",
    "`calve init` with a password in the command.",
    "Give `KEY='${ENV:NAME}'`.",
)
WOULD_OVERWRITE = ErrorCode(
    "CLV-1110",
    "A file is there already",
    "`calve init` would write over it.",
    "Give another `--directory`, or `--force`.",
)
OPTION = ErrorCode(
    "CLV-1111",
    "Options of a command don't fit together",
    (
        "An option in another form than it takes (`KEY=VALUE`), one that is lacking, or two of which only one can "
        "be: `--dry-run` of a replay without a time or range, `--give-up` without `--wait` (nothing was paused), "
        "`--refill` with a time or range, a choice without a finding, `calve init` without an address of Kafka."
    ),
    (
        "The hint says what to give. With `--timeout 0`, `--wait --give-up` gives up at once; the resolve job lists "
        "findings without a choice."
    ),
)
NO_SUCH_NAME = ErrorCode(
    "CLV-1112",
    "The command names what is not there",
    (
        "A crash point of `calve drill --only`, a maintenance task, or a table of `--table` that the pipeline "
        "doesn't have."
    ),
    "Take one of those in the hint.",
)
NOT_A_TIME = ErrorCode(
    "CLV-1113",
    "A time, duration or range in another form",
    "`calve replay` or `calve verify` with a time without its zone, or a range that is none.",
    "Write it as the hint says.",
)
NOBODY_TO_ASK = ErrorCode(
    "CLV-1114",
    "Nobody to ask here; nothing was changed",
    "The command asks before it does something, and there is no terminal, or `--json`.",
    "Add `--yes` once you have read what it does.",
)
NOT_RUN_YET = ErrorCode(
    "CLV-1115",
    "The pipeline has not run yet",
    "A command that needs what an earlier run has made: a binding, positions, or tables.",
    "Run the pipeline.",
)
TAKES_OVER = ErrorCode(
    "CLV-1116",
    "`takes_over` names a pipeline that has never run here",
    "No pipeline of that name has run on this cluster and deployment.",
    "Correct the name, or leave it out.",
)
UNREAD_TOPICS = ErrorCode(
    "CLV-1117",
    "No topic of the last batch is read any more",
    (
        "The file now takes other topics than the last batch, and not one of that batch's. (Topics that were deleted"
        " may go all at once.)"
    ),
    (
        "Have `topics` or `topics_regex` take the topic that the hint names as well until a batch with the new ones "
        "is published, or give the new topics a pipeline of their own."
    ),
)
START_GROUP = ErrorCode(
    "CLV-1118",
    "`source.start` names a group without offsets",
    "The group is unknown, or has no offsets for a topic.",
    "Name another, or use `earliest` or `latest`.",
)
KEYS_DIFFER = ErrorCode(
    "CLV-1119",
    "Topics of one table have keys of different types",
    "A table with `key: kafka`, or with SQL that names `key`, takes topics whose keys are read as different types.",
    "List topics with keys of one type under the table's `topics`, or give the others the same `as`.",
)
FORMATS_DIFFER = ErrorCode(
    "CLV-1120",
    "Topics of one new table have different formats",
    "A table that is to be created takes topics of several formats.",
    "Name its columns under `auto_create.columns`, or make a table for each under `topics`.",
)
TWO_FORMATS = ErrorCode(
    "CLV-1121",
    "A topic has two formats",
    "A topic that was found matches two entries of `source.formats`.",
    "Narrow one entry's `topics_regex`.",
)
PROTOBUF_KEY = ErrorCode(
    "CLV-1122",
    "A key in Protobuf is no single value",
    "`as` names a single type for keys in Protobuf.",
    'Set `as: "struct<…>"` with its fields.',
)
COMMIT_EVERY = ErrorCode(
    "CLV-1123",
    "`commit.every` is no schedule",
    "A duration that cron can't express.",
    "Set minutes that divide an hour, hours that divide a day, or `batch`.",
)
ONE_TABLE_TWICE = ErrorCode(
    "CLV-1124",
    "Two topics give one table",
    "Two topics that match give one table by its name with placeholders.",
    "Use more of the topics' names in the table's name, or list one of them under `topics` of a table of its own.",
)
NO_TABLE_NAME = ErrorCode(
    "CLV-1125",
    "A topic gives no name for its table",
    "What a topic fills into a table's name leaves no `namespace.table`, or gives the ledger or the dead letters.",
    "Narrow `source.topics_regex`, or name a table for the topic.",
)
TOO_MANY_TABLES = ErrorCode(
    "CLV-1126",
    "A field names more tables than it may",
    "More than `name_from.max_tables`; none was created and nothing published.",
    "Narrow `name_from.allow`, or raise `name_from.max_tables`.",
)
HISTORY_UNSET = ErrorCode(
    "CLV-1127",
    "A new table does not say what it gets of what was published",
    (
        "A table was added to a pipeline that has published, or a name with placeholders stands for a table of a "
        "topic that was read before."
    ),
    (
        "Set `history: replay` or `history: none` for it; of a name with placeholders only `none` can be, and "
        "`replay` needs an entry of its own for the table."
    ),
)
DAGSTER_NAMES = ErrorCode(
    "CLV-1128",
    "Dagster can't tell two tables apart",
    "Two tables of a pipeline whose names differ only in `-` and `_`: Dagster's names have only `_`.",
    "Rename one.",
)
WRONG_KIND = ErrorCode(
    "CLV-1129",
    "Pipelines of this kind don't have the command",
    "The pipeline's `kind` does not have what the command does: a mirror has no tables to commit to, say.",
    "Take one of the commands that the hint names, or name a pipeline of another kind.",
)
START_MIRROR = ErrorCode(
    "CLV-1130",
    "`source.start` names a mirror that can't be followed",
    "There is no such mirror on the source cluster, or it is still at work.",
    "Name the mirror that writes into the topics, and pause it first.",
)
ENDS_BLANK = ErrorCode(
    "CLV-1131",
    "An environment variable ends in white space",
    "The value of a `${ENV:NAME}` ends in a line break or a blank, as what is read from a file does. No password does.",
    "Set it without. `$(cat FILE)` leaves the line break out, `printf %s` adds none.",
)
