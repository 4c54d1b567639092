"""Codes of records, their schemas, transforms and row changes."""

from calve.sink_core.error_codes.code import ErrorCode

TOO_MANY_BAD = ErrorCode(
    "CLV-4101",
    "Too many records of the batch can't be stored",
    (
        "A larger share of bad records than `dead_letters.stop_above`; the first of them is named. Nothing was "
        "published and no position moved: the next run reads the same records."
    ),
    "Look at the records, correct the producer or the table, or raise the share.",
)
UNUSABLE_SQL = ErrorCode(
    "CLV-4102",
    "A table's SQL can't be used",
    (
        "It is none, doesn't fit the columns, gives others than the table's, could make several rows of a record, or"
        " the table was changed since it was checked; or a batch takes more than DuckDB's 256 MB. What the columns "
        "of a new table are can't be seen from the records."
    ),
    (
        "The message is DuckDB's, or names the column: correct `select` and `where`, name the value's columns under "
        "`transform.columns`, cast, or correct the table. `calve check` shows what doesn't fit."
    ),
)
TRANSFORM_ROWS = ErrorCode(
    "CLV-4103",
    "A transform gave several rows of a record",
    "A `select` that makes several rows of a record.",
    "Use expressions of the record's own columns.",
)
SCHEMA_FILE = ErrorCode(
    "CLV-4201",
    "A schema file can't be used",
    (
        "The file of `source.value.schema`, or of the `schema` of keys or of an entry of `source.formats`, isn't "
        "there, isn't UTF-8 or isn't a schema."
    ),
    "Correct the path, which begins at the pipeline file's folder, or the file.",
)
NO_SAMPLE = ErrorCode(
    "CLV-4202",
    "The sample shows no columns",
    (
        "A table is to be created, and the topic is empty, or its records are of another format: not JSON objects, "
        "not in Confluent's wire format with a schema of the kind named, no envelopes with a schema "
        "(`schemas.enable=false`), or no change events with rows under `mode: cdc`."
    ),
    (
        "Name the columns under `auto_create.columns`, begin when the topic has records, or correct "
        "`source.value.type`, `envelope` or the topic; `json` is for records without an envelope."
    ),
)
NO_RECORD = ErrorCode(
    "CLV-4203",
    "Columns can't be made of the schema",
    "A schema that is no record or object, or an empty one.",
    "Name the columns.",
)
NO_COLUMN_TYPE = ErrorCode(
    "CLV-4204",
    "A field of a schema that no Iceberg type holds",
    (
        "In Avro and Protobuf a union of several kinds, a decimal of too many digits, or one thing within another; "
        "in a JSON Schema what may hold anything, or a `$ref` that leads nowhere; in Connect a decimal of another "
        "scale or a map with other keys."
    ),
    "Name the columns with the type the field is to have, or without it; correct the reference.",
)
TWO_KINDS = ErrorCode(
    "CLV-4205",
    "A field holds values of two kinds",
    "In the sample of a table that is to be created.",
    "Name the columns with the type it is to have.",
)
REGISTRY_DOWN = ErrorCode(
    "CLV-4206",
    "The schema registry is out of reach",
    (
        "It is down, hangs, can't be reached, or is in trouble or overloaded (status 408, 429 or from 500 on); "
        "nothing is set aside for that."
    ),
    "Start it, or see its log, and run again; check `url`, `timeout` and `ssl.ca.location` under `registry`.",
)
REGISTRY_REFUSES = ErrorCode(
    "CLV-4207",
    "The schema registry refuses, or something else answers",
    "A wrong address of the registry, or one that refuses the log-in: a status from 400 on.",
    (
        "Correct `url` and credentials under `registry`; the address ends before `/subjects`, such as "
        "`http://host:8081` or `http://host:8080/apis/ccompat/v7`."
    ),
)
REGISTRY_SETTING = ErrorCode(
    "CLV-4208",
    "A setting of the registry is wrong",
    "A key that confluent-kafka's client doesn't know, or a certificate that isn't there.",
    "Correct it under `registry`.",
)
WHICH_REGISTRY = ErrorCode(
    "CLV-4209",
    "The registry that has the values' schemas is not known",
    (
        "`calve init` has met values that begin with a schema's id, and was given no registry, or another one than "
        "the producer's."
    ),
    "Give that one with `--registry`.",
)
PROTOC = ErrorCode(
    "CLV-4210",
    "The compiler of Protobuf schemas was killed",
    "By a lack of memory perhaps.",
    "Run again, with more memory.",
)
SCHEMA_TOO_LARGE = ErrorCode(
    "CLV-4216",
    "A schema costs more than one may",
    (
        "Its text, the schemas that it refers to, its levels, or its fields, of which a type has all of its own at each"
        " place that names it, are more than any table has use for. Records of such a schema are dead letters."
    ),
    "Have producers use a smaller one, and replay their dead letters; or name the columns under `auto_create.columns`.",
)
DEADLY = ErrorCode(
    "CLV-4217",
    "A record ends the process that decodes it",
    (
        "A fault in a library: a run or a task of Spark's died without a word, so that the next had the records decoded"
        " in another process first, which this one ended twice, alone. It is a dead letter; its neighbours are rows."
    ),
    "Report it with the record's bytes, to us or to the library. Replay its dead letter once a version mends it.",
)
KEY_IN_TWO_PARTITIONS = ErrorCode(
    "CLV-4301",
    "A key has changes in two partitions",
    (
        "A table that takes row changes got some of one key from two partitions of one batch, between which there is"
        " no order; nothing was published."
    ),
    (
        "Have producers send all changes of a key to one partition, or set `order_by`; for `key` name what tells "
        "rows apart."
    ),
)
KEY_MOVED = ErrorCode(
    "CLV-4302",
    "A key came in one partition and comes in another now",
    "Nobody can tell which change is newer; nothing was published.",
    (
        "Have producers send all changes of a key to one partition, or set `order_by`. If what comes now is newer, "
        "as after partitions were added to a topic that had been read to its end, set `on_moved_key: ignore` until "
        "it was read."
    ),
)
NO_KEY = ErrorCode(
    "CLV-4303",
    "Which columns are the key is not said",
    "`mode: upsert` without a key, of a table without identifier fields.",
    "Set `key`.",
)
KAFKA_KEY = ErrorCode(
    "CLV-4304",
    "The Kafka key has another type than the column",
    (
        "`key: kafka`, and the table's key columns, or those of `auto_create.columns`, are of other types than "
        "`source.key` says."
    ),
    (
        "Set `source.key.as` to what the columns are; for one column of text or binary `source.key.type` to `string`"
        " or `bytes`. Leave the column out of `auto_create.columns`."
    ),
)
NO_SUCH_COLUMN = ErrorCode(
    "CLV-4305",
    "`key` or `order_by` names no column of the table",
    "A typing error; in `key` also a field within a struct.",
    "Name columns of the table.",
)
ORDER_BY = ErrorCode(
    "CLV-4306",
    "Changes have no order by that column",
    "`order_by` names text, a float or something that holds others.",
    "Name a whole number, a decimal, a date or a timestamp.",
)
TIME_KEY = ErrorCode(
    "CLV-4307",
    "Rows can't be looked up by the key",
    "A key of type time, which Spark can't read, with `order_by` or `on_moved_key: stop`.",
    "Leave `order_by` out, set `on_moved_key: ignore`, or take another key.",
)
NO_ORIGIN = ErrorCode(
    "CLV-4308",
    "Where rows come from can't be told",
    "`on_moved_key` is `stop`, and the table lacks the column `_kafka`.",
    "Set `on_moved_key: ignore`, or add the column.",
)
KEY_TYPE = ErrorCode(
    "CLV-4309",
    "Rows can't be told apart by that column",
    "A key of float, double, or of a list, map or struct.",
    "Name another column.",
)
OPTIONAL_KEY = ErrorCode(
    "CLV-4310",
    "A key column may be null",
    "A row without it could never be changed.",
    "Make the column required, or create the table with `identifier_fields`.",
)
SOFT_DELETES = ErrorCode(
    "CLV-4311",
    "The table can't take soft deletes",
    (
        "It lacks the boolean column `_is_deleted`, or has a required column that is no key: of a tombstone only the"
        " key is known."
    ),
    "Add the column or make it optional, or set `deletes: hard`.",
)
TRUNCATED = ErrorCode(
    "CLV-4312",
    "The source table was truncated",
    (
        "A truncate among the change events of `mode: cdc`, under `on_truncate: stop`: the source table is empty, "
        "this one is not. Nothing was published."
    ),
    "Delete the rows by hand, and set `on_truncate: ignore` to leave truncates out.",
)
OP_FIELD = ErrorCode(
    "CLV-4313",
    "The column of `op_field` is no string",
    "The table has a column of the name of `op_field`, of another type.",
    "Correct `op_field`, or the column.",
)
CHANGES_READ_AGAIN = ErrorCode(
    "CLV-4314",
    "Row changes can't be read again",
    (
        "Records read again would be put over newer ones: a replay, refill, history or backfill by hours of a table "
        "that is fed by `upsert` or `cdc`."
    ),
    (
        "Of a table that was rolled back put `main` back to the tagged snapshot, or `accept`; in place of a backfill"
        " begin a new pipeline from `earliest`."
    ),
)
