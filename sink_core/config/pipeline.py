"""The pipeline file: one file, one pipeline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import (
    AwareDatetime,
    BaseModel,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from sink_core.config.connections import CatalogConnection, KafkaConnection, Name, SparkSettings
from sink_core.config.fields import Cron, FieldPath, KeyPart, Owner, Regex, TableName, TableNames, TopicName
from sink_core.config.maintenance import Maintenance
from sink_core.config.model import Location, Model, comes_with, refusal, refuse_at
from sink_core.config.units import (
    GIB,
    MIB,
    MINUTE,
    BatchOrDuration,
    Bytes,
    Duration,
    Percent,
)
from sink_core.routing import TOPIC, VALUE, placeholders

# Parts of an error's location that start with "<" name a branch of a union, not a key, and are not shown.
_NAME, _INLINE = Tag("<name>"), Tag("<inline>")


def _name_or_inline(given: object) -> str:
    return "<inline>" if isinstance(given, Mapping | BaseModel) else "<name>"


def _start_kind(given: object) -> str:
    if isinstance(given, StartAtGroup) or (isinstance(given, Mapping) and "group" in cast(Mapping[str, object], given)):
        return "<group>"
    return "<timestamp>" if isinstance(given, Mapping | StartAtTimestamp) else "<word>"


KafkaChoice = Annotated[Annotated[Name, _NAME] | Annotated[KafkaConnection, _INLINE], Discriminator(_name_or_inline)]
CatalogChoice = Annotated[
    Annotated[Name, _NAME] | Annotated[CatalogConnection, _INLINE], Discriminator(_name_or_inline)
]
SparkChoice = Annotated[Annotated[Name, _NAME] | Annotated[SparkSettings, _INLINE], Discriminator(_name_or_inline)]


class StartAtTimestamp(Model):
    """Begin at the first record at or after a time."""

    timestamp: AwareDatetime
    """ISO 8601 with a zone, such as `2026-01-31T00:00:00Z`."""


class StartAtGroup(Model):
    """Begin where another consumer group stands."""

    group: str = Field(min_length=1)
    """The consumer group whose committed offsets are taken over once."""


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("<word>")]
    | Annotated[StartAtTimestamp, Tag("<timestamp>")]
    | Annotated[StartAtGroup, Tag("<group>")],
    Discriminator(_start_kind),
]


class KeyFormat(Model):
    """How a record's key is read."""

    type: Annotated[Literal["string", "bytes", "none"], comes_with("formats", "json", "avro", "protobuf")] = "string"
    """`none` leaves the key out."""


_REGISTERED = ("json_schema", "protobuf")


def _or_registered(key: str) -> str:
    return f", {' or '.join(_REGISTERED)}" if key == "registry" else ""


class ValueFormat(Model):
    """How a record's value is read."""

    type: Literal["json", "connect_json", "json_schema", "avro", "protobuf", "string", "bytes"] = "json"
    """`json`: one JSON object per record. `connect_json`: one within the envelope of Kafka Connect's JsonConverter,
    `{"schema": …, "payload": …}`. `json_schema`, `protobuf`: an object, a message, with its schema in `registry`.
    `avro`: one Avro record, with the schema of `registry` or of `schema`. `string` (UTF-8) and `bytes`: all of the
    value, in a column `value`."""

    registry: Name | None = None
    """For `avro`, `json_schema` and `protobuf`: a name from `connections.yaml`. Each record begins with the id of its
    schema there (Confluent's wire format)."""

    schema_file: str | None = Field(default=None, alias="schema", min_length=1)
    """For `avro`: an `.avsc` file, its path relative to the pipeline file's folder. Records are plain Avro of this
    schema, without a header."""

    @model_validator(mode="after")
    def _one_schema(self) -> Self:
        given = [key for key, value in (("registry", self.registry), ("schema", self.schema_file)) if value is not None]
        if self.type == "avro" and len(given) != 1:
            raise refusal(f"avro needs exactly one of registry and schema, {'both' if given else 'neither'} given")
        if self.type in _REGISTERED and given != ["registry"]:
            raise refusal(f"{self.type} needs registry{', without schema' if self.schema_file else ''}")
        if self.type not in ("avro", *_REGISTERED) and given:
            raise refusal(f"{given[0]} goes with type: avro{_or_registered(given[0])}; leave it out for {self.type}")
        return self


class Source(Model):
    """What is read."""

    kafka: KafkaChoice
    """A name from `connections.yaml`, or a mapping of librdkafka's keys."""

    topics: tuple[TopicName, ...] = ()
    """The topics to read, each once."""

    topics_regex: Regex | None = None
    """Read all topics whose whole name matches, beside those of `topics`. Looked for again before each batch: a new one
    is read from its beginning; one that is gone keeps its position. Named groups, such as `shop\\.(?P<entity>\\w+)`,
    can stand in names of `tables`. Topics of Kafka and of Calve (`__…`, `calve.….control`) never match."""

    start: Start = "earliest"
    """Where a new pipeline begins: `earliest`, `latest`, `{timestamp: …}` or `{group: …}`. Read once, at first use; a
    partition that appears later starts at its beginning."""

    key: KeyFormat = KeyFormat()
    """How a record's key is read."""

    value: ValueFormat = ValueFormat()
    """How a record's value is read."""

    @model_validator(mode="after")
    def _some_topics(self) -> Self:
        if not self.topics and self.topics_regex is None:
            raise refusal("needs topics, or topics_regex; neither given")
        return self


class AutoCreate(Model):
    """Create the table if it is missing."""

    partition_by: tuple[str, ...] = ()
    """Iceberg partition terms: `column`, `year(ts)`, `month(ts)`, `day(ts)`, `hour(ts)`, `bucket(16, id)`,
    `truncate(4, name)`."""

    sort_order: tuple[str, ...] = ()
    """How rows are ordered: terms as for `partition_by`, each with `asc` or `desc` and `nulls first` or `nulls last` if
    it is to differ from Iceberg's ascending order with nulls first."""

    identifier_fields: tuple[str, ...] = ()
    """Columns that tell rows apart, nested ones with dots. They become required."""

    columns: dict[str, str] = Field(default={})
    """Iceberg types by column: `long`, `decimal(10,2)`, `timestamptz`, `list<string>`, `struct<a: int, b: string>`.
    The table gets exactly these; if none is named, those of the records' schema, or for JSON those that a sample of
    the topic shows."""

    properties: dict[str, str | int | float | bool] = Field(default={})
    """Iceberg table properties of the new table."""

    location: str | None = None
    """Where the new table is put. Default: the catalog decides."""


class Transform(Model):
    """SQL that makes a table's row of a record, in DuckDB: expressions, one row per record at most."""

    columns: dict[str, str] = Field(default={})
    """Iceberg types of the columns that are read from the value. Default: the table's own, none of them required."""

    select: str = Field(default="*", min_length=1)
    """What stands between SELECT and FROM; the names it gives are the table's columns. Beside the value's columns there
    is `_kafka` with `topic`, `partition`, `offset`, `timestamp`, `key` (bytes) and `headers` (a list of `key` and
    `value`)."""

    where: str | None = Field(default=None, min_length=1)
    """What stands behind WHERE. Records that it leaves out are counted as filtered."""


EvolveStep = Literal["add_column", "widen", "make_optional"]


class TableDefaults(Model):
    """What holds for each table that doesn't say otherwise."""

    evolve: tuple[EvolveStep, ...] = ()
    """Schema changes made, once for a batch, when its records need them: `add_column` for fields that a table lacks,
    `widen` (int to long, float to double, decimals to more digits), `make_optional` for required columns that are
    missing or null."""

    case_insensitive: bool = False
    """Match fields of records with columns whatever the case of their names. A record with two fields for one column is
    a dead letter."""

    target_file_size: Bytes = Field(default=256 * MIB, gt=0)
    """Data files are closed at about this size."""

    kafka_column: bool = True
    """Give auto-created tables the struct column `_kafka {topic, partition, offset, timestamp}`, which replay, refill
    and `verify --deep` need."""


HistoryChoice = Literal["none", "replay"]


class Where(Model):
    """Records by the value of a field."""

    field: FieldPath
    """A field of the value, `outer.inner` for a nested one. Text, whole numbers and booleans have a value; what is
    missing, null or anything else has none and never matches."""

    matches: Regex
    """A regular expression for the field's whole value."""


class NameFrom(Model):
    """Tables named by the value of a field."""

    field: FieldPath
    """As in `where`."""

    allow: Regex
    """A regular expression for the field's whole value: others name no table."""

    max_tables: int = Field(default=1000, ge=1)
    """The pipeline stops rather than create more tables than this."""


class Table(Model):
    """A table that is fed, or all tables that a name with placeholders stands for."""

    name: TableNames
    """`namespace.table`, in the pipeline's catalog. A placeholder makes it one table for each value: `{topic}`, a named
    group of `source.topics_regex`, or `{value}` of `name_from`. In what comes from a topic's name a dot becomes `_`,
    unless the placeholder is the whole name. An entry that spells out such a name stands in for it: it gets the same
    records, unless it says `topics` or `where` itself."""

    topics: tuple[TopicName, ...] | None = Field(default=None, min_length=1)
    """Only records of these topics. Default: of all."""

    where: Where | None = None
    """Only records whose field matches. Default: all."""

    name_from: NameFrom | None = None
    """A field whose value stands for `{value}` in `name`, as it is: letters, digits, _ and -; dots too if `{value}` is
    the whole name. A record whose value is not allowed, or is no name, goes to none of these tables."""

    mode: Annotated[Literal["append"], comes_with("row changes", "upsert", "cdc", "merge")] = "append"
    """`append`: each record becomes a row."""

    auto_create: AutoCreate | None = None
    """Create the table if it is missing; `{}` takes every default. Left out, the table must exist."""

    kafka_column: bool | None = None
    """As in `table_defaults`."""

    target_file_size: Annotated[Bytes, Field(gt=0)] | None = None
    """As in `table_defaults`."""

    evolve: tuple[EvolveStep, ...] | None = None
    """As in `table_defaults`."""

    case_insensitive: bool | None = None
    """As in `table_defaults`."""

    owned: bool | None = None
    """Whether maintenance may expire the table's snapshots and delete its orphan files. Default: only if Calve has
    created it. `true` promises that no other pipeline feeds it and that others' writes take less than
    `maintenance.orphans.older_than`."""

    transform: Transform | None = None
    """SQL that makes the row of a record. Default: the value's fields become the columns of their names."""

    history: HistoryChoice | None = None
    """What a table gets of the records that were published before it was added to the pipeline: `none`, or all, read
    from Kafka again: `replay`. Must be set when a table is added to a pipeline that has published before."""


class DeadLetters(Model):
    """Where records go that can't be stored."""

    table: TableName | None = None
    """The dead-letter table, created if missing. Default: `calve.<pipeline>_dead_letters`."""

    stop_above: Percent | None = None
    """Stop, and publish nothing of the batch, when a larger share of its records than this is bad. Default: never."""


class Trigger(Model):
    """When the sensor starts a run."""

    every: Duration = Field(default=5.0, gt=0)
    """Start a run when the oldest waiting record may be this old. The sensor looks every 5 s."""

    or_records: int = Field(default=1_000_000, ge=1)
    """Start a run when this many records wait."""


class Batch(Model):
    """The most one batch takes in."""

    max_records: int = Field(default=10_000_000, ge=1)
    """Offsets in a batch."""

    max_bytes: Bytes = Field(default=4 * GIB, gt=0)
    """Estimated size of a batch's records, as stored in Kafka."""

    min_task_bytes: Bytes = Field(default=16 * MIB, gt=0)
    """A partition is split over several Spark tasks only into pieces of at least this size."""


class Run(Model):
    """How long one run goes on."""

    max_batches: int = Field(default=30, ge=1)
    """Batches in a run."""

    max_duration: Duration = Field(default=10 * MINUTE, gt=0)
    """No new batch is begun after this."""

    linger: Duration = 0.0
    """Wait this long for more before ending; short freshness without a new Spark start for each batch."""


class Commit(Model):
    """When what is published is committed to the tables."""

    every: BatchOrDuration = "batch"
    """`batch`: after each batch. A duration commits on a schedule: minutes that divide an hour (`1m`, `5m`, `30m`) or
    hours that divide a day. `calve run`, which has no schedule, then commits each time so long has passed, and at its
    end."""


class Objectives(Model):
    """What the pipeline is measured against."""

    freshness: Duration | None = None
    """Greatest age of a record that is not in its table yet; a check fails above it."""

    lag: Annotated[int, Field(ge=0)] | None = None
    """Greatest number of records that wait; a check fails above it."""

    dead_letters: Percent = 0.01
    """Greatest share of dead letters in the last 100 batches; a check warns above it."""


class Dagster(Model):
    """How the pipeline appears in Dagster."""

    group: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_]+$")
    """Asset group. Default: the pipeline's name."""

    owners: tuple[Owner, ...] = ()
    """`team:name` or an e-mail address."""

    key_prefix: tuple[KeyPart, ...] = ()
    """Put before the tables' asset keys, which are their names otherwise."""

    automatic: bool = True
    """Sensor and schedules run from the first load on. `false`: they are switched on in the UI."""

    checks: Cron | None = None
    """When the checks run beside those after each run, the proof of the ledger among them. Default: once an hour."""

    prove_since: Duration | None = Field(default=None, gt=0)
    """How far back the proof among the checks looks, as `calve verify --since` does. Default: at everything."""


class PipelineConfig(Model):
    """A pipeline file."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """The pipeline's name, part of every id it has in Kafka and Iceberg. `^[a-z][a-z0-9_]{0,40}$`"""

    takes_over: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """The name that the pipeline had at its first run, if it was renamed since. Its ids in Kafka and Iceberg keep that
    name, as do ledger and dead letters: it stays the same pipeline. Leave it in for good."""

    kind: Annotated[Literal["sink"], comes_with("a later version", "mirror", "source")] = "sink"
    """`sink`: Kafka to Iceberg."""

    source: Source
    """What is read."""

    catalog: CatalogChoice
    """A name from `connections.yaml`, or a mapping of pyiceberg's keys."""

    table_defaults: TableDefaults = TableDefaults()
    """What holds for each table that doesn't say otherwise."""

    tables: tuple[Table, ...] = Field(min_length=1)
    """The tables that are fed. Each record goes to each of them whose `topics`, `where` and `name_from` take it; one
    that no table takes is counted as unrouted."""

    on_bad_record: Literal["dead_letter", "stop"] = "dead_letter"
    """What happens to a record that can't be stored: it goes to the dead-letter table, or the pipeline stops."""

    dead_letters: DeadLetters = DeadLetters()
    """The dead-letter table; unused under `on_bad_record: stop`."""

    trigger: Trigger = Trigger()
    """When the sensor starts a run."""

    batch: Batch = Batch()
    """The most one batch takes in."""

    run: Run = Run()
    """How long one run goes on."""

    commit: Commit = Commit()
    """When what is published is committed to the tables."""

    objectives: Objectives = Objectives()
    """What the pipeline is measured against."""

    spark: SparkChoice = SparkSettings(master="local[*]")
    """A name from `connections.yaml`, or a mapping. Default: `{master: "local[*]"}`, this machine."""

    maintenance: Maintenance = Maintenance()
    """Maintenance of tables and control topic."""

    dagster: Dagster = Dagster()
    """How the pipeline appears in Dagster."""

    @property
    def first_name(self) -> str:
        """The name in every id in Kafka and Iceberg."""
        return self.takes_over or self.name

    @property
    def ledger_table(self) -> str:
        return f"calve.{self.first_name}_ledger"

    @property
    def dead_letter_table(self) -> str:
        return self.dead_letters.table or f"calve.{self.first_name}_dead_letters"

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        wrong = (*self._repeated(), *self._reserved(), *self._unroutable(), *self._transforms())
        refuse_at("PipelineConfig", wrong)
        return self

    def _unroutable(self) -> Iterator[tuple[Location, str, object]]:
        """Placeholders that nothing fills, and what a name that stands for many tables can't say."""
        pattern = self.source.topics_regex
        groups = set(re.compile(pattern).groupindex) if pattern else set[str]()
        for reserved in sorted(groups & {TOPIC, VALUE}):
            yield ("source", "topics_regex"), f"a group can't be called {reserved}; choose another name", None
        for index, table in enumerate(self.tables):
            yield from self._unfilled(("tables", index), table, groups)
            for topic in table.topics or ():
                if topic not in self.source.topics and not (pattern and re.fullmatch(pattern, topic)):
                    yield ("tables", index, "topics"), f"{topic} is not a topic of source", None

    @staticmethod
    def _unfilled(at: Location, table: Table, groups: set[str]) -> Iterator[tuple[Location, str, object]]:
        wanted = placeholders(table.name)
        known = {TOPIC, *groups, *([VALUE] if table.name_from else [])}
        for name in sorted(wanted - known):
            text = f"{{{name}}}: nothing gives its value; known here: {', '.join(sorted(known))}"
            yield (*at, "name"), text, None
        if table.name_from and VALUE not in wanted:
            yield (*at, "name"), "needs {value}, for which name_from names a field", None
        if wanted and table.history == "replay":
            yield (*at, "history"), "replay needs one table; name it without a placeholder", None
        if wanted and table.auto_create and table.auto_create.location:
            yield (*at, "auto_create", "location"), "all tables of the name would share it; leave it out", None

    def _repeated(self) -> Iterator[tuple[Location, str, object]]:
        topics = Counter(self.source.topics)
        tables = Counter(table.name for table in self.tables)
        for topic in (topic for topic, times in topics.items() if times > 1):
            yield ("source", "topics"), f"{topic} is named {topics[topic]} times; name each topic once", None
        for table in (table for table, times in tables.items() if times > 1):
            yield ("tables",), f"{table} is named {tables[table]} times; name each table once", None

    def _reserved(self) -> Iterator[tuple[Location, str, object]]:
        names = {table.name for table in self.tables}
        if self.dead_letter_table in names:
            text = f"{self.dead_letter_table} is also under tables; give the dead letters a table of their own"
            yield ("dead_letters", "table"), text, None
        if self.ledger_table in names | {self.dead_letter_table}:
            yield ("tables",), f"{self.ledger_table} is this pipeline's ledger; choose another name", None

    def _transforms(self) -> Iterator[tuple[Location, str, object]]:
        for number, table in enumerate(self.tables):
            if table.transform is None:
                continue
            if table.auto_create is not None and not table.auto_create.columns:
                text = "a table with a transform is created with the columns that it names; name them"
                yield ("tables", number, "auto_create", "columns"), text, None
            if table.transform.where is not None and len(self.tables) > 1:
                text = "where is for a pipeline with one table; give the table a pipeline of its own"
                yield ("tables", number, "transform", "where"), text, None
