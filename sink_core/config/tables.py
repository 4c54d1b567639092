"""The tables of a pipeline: how they are made, which records they take, and how these become rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag

from calve.sink_core.config.fields import ColumnName, FieldPath, Owner, Regex, TableNames, TopicName
from calve.sink_core.config.model import Model, refusal
from calve.sink_core.config.table_formats import ICEBERG, TableFormatName
from calve.sink_core.config.units import MIB, Bytes


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

    comments: dict[str, str] = Field(default={})
    """What columns hold, nested ones with dots: kept in the table, shown by readers and in Dagster. Default: what the
    records' schema says."""

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
    is `_kafka` with `topic`, `partition`, `offset`, `timestamp`, `key` (as `source.key` says) and `headers` (a list
    of `key` and `value`)."""

    where: str | None = Field(default=None, min_length=1)
    """What stands behind WHERE. A record that it leaves out is counted as left out of this table, or as filtered if
    no other table has it."""

    def may_name(self, word: str) -> bool:
        """Whether the SQL may refer to a name."""
        return re.search(rf"\b{word}\b", f"{self.select} {self.where or ''}") is not None


UnknownFields = Literal["leave_out", "dead_letter"]
EvolveStep = Literal["add_column", "widen", "make_optional"]


class Steps(tuple[EvolveStep, ...]):
    """What a table's schema may be given, and `max_columns`, nested ones counted, that it may then have at most. That
    holds as well for records that are looked at without any step.
    """

    max_columns: int | None

    def __new__(cls, steps: Iterable[EvolveStep] = (), max_columns: int | None = None) -> Self:
        made = super().__new__(cls, steps)
        made.max_columns = max_columns
        return made

    def without(self) -> Steps:
        """No step, and the same `max_columns`."""
        return Steps((), self.max_columns)


NO_STEPS = Steps()


class TableDefaults(Model):
    """What holds for each table that doesn't say otherwise."""

    evolve: tuple[EvolveStep, ...] = ()
    """Schema changes made, once for a batch, when its records need them: `add_column` for fields that a table lacks,
    `widen` (int to long, float to double, decimals to more digits), `make_optional` for required columns that are
    missing or null."""

    max_columns: Annotated[int, Field(ge=1)] = 1000
    """By `evolve` a table gets no more columns than this, nested ones counted. A record that needs more than that
    leaves, alone or by its schema, is a dead letter."""

    case_insensitive: bool = False
    """Match fields of records with columns whatever the case of their names. A record with two fields for one column is
    a dead letter."""

    ignore_fields: tuple[str, ...] = ()
    """Fields that have no column on purpose, with all below them (`debug`, `customer.notes`); `*` for all. Others that
    have none are counted, and a check warns of them. Counting costs where records have much that no column takes."""

    unknown_fields: UnknownFields = "leave_out"
    """What becomes of a record with other fields that no column takes, those included whose names no reader of Iceberg
    could read: `leave_out` stores it without them, and counts them; `dead_letter` sets it aside, and names the field.
    Of formats with a schema, the record is one that its schema has such a field for. SQL of `transform` may leave out
    what it likes."""

    target_file_size: Bytes = Field(default=256 * MIB, gt=0)
    """Data files are closed at about this size. Stated here or for the table it wins over the table's own property."""

    kafka_column: bool = True
    """Give auto-created tables the struct column `_kafka {topic, partition, offset, timestamp}`, which replay, refill
    and `verify --deep` need."""


def _no_merge(given: object) -> object:
    if given == "merge":
        raise refusal("merge is a way to write: say mode: upsert or cdc, and write_mode: merge")
    return given


HistoryChoice = Literal["none", "replay"]
HudiType = Literal["copy_on_write", "merge_on_read"]


class HudiTable(Model):
    """What a table in Hudi's format is to be."""

    type: HudiType = "copy_on_write"
    """Hudi's table type, of a table that is created. Appended rows are base files in both; in a `merge_on_read` table
    others may write log files."""


class InDagster(Model):
    """How a table appears in Dagster."""

    description: str | None = None
    """What the table is for. Default: which pipeline feeds it."""

    owners: tuple[Owner, ...] = ()
    """`team:name` or an e-mail address, in place of the pipeline's."""

    tags: dict[str, str] = Field(default={})
    """Dagster's tags of the asset."""

    kinds: tuple[str, ...] | None = None
    """Dagster's kinds of the asset, three at most. Default: the table's format."""

    automation: Literal["eager"] | None = None
    """`eager`: Dagster commits the table by itself once its batches are materialized, for pipelines with an interval in
    `commit.every`."""


class Where(Model):
    """Records by the value of a field."""

    field: FieldPath
    """A field of the value, `outer.inner` for a nested one. Text, whole numbers and booleans have a value; what is
    missing, null or anything else has none and never matches."""

    matches: Regex
    """A regular expression of RE2 for the field's whole value."""


class NameFrom(Model):
    """Tables named by the value of a field."""

    field: FieldPath
    """As in `where`."""

    allow: Regex
    """A regular expression of RE2 for the field's whole value: others name no table."""

    max_tables: int = Field(default=1000, ge=1)
    """The pipeline stops rather than create more tables than this."""


KAFKA = "kafka"


def _key_kind(given: object) -> str:
    return "<word>" if isinstance(given, str) else "<columns>"


KeyChoice = Annotated[
    Annotated[Literal["kafka"], Tag("<word>")]
    | Annotated[tuple[ColumnName, ...], Field(min_length=1), Tag("<columns>")],
    Discriminator(_key_kind),
]


class Table(Model):
    """A table that is fed, or all tables that a name with placeholders stands for."""

    name: TableNames
    """`namespace.table`, in the pipeline's catalog. A placeholder makes it one table for each value: `{topic}`, a named
    group of `source.topics_regex`, or `{value}` of `name_from`. In what comes from a topic's name a dot becomes `_`,
    unless the placeholder is the whole name. An entry that spells out such a name stands in for it: it gets the same
    records, unless it says `topics` or `where` itself."""

    format: TableFormatName = ICEBERG
    """The table's format. Ledger and dead letters are Iceberg tables in any case."""

    hudi: HudiTable = HudiTable()
    """For `format: hudi`."""

    topics: tuple[TopicName, ...] | None = Field(default=None, min_length=1)
    """Only records of these topics. Default: of all."""

    where: Where | None = None
    """Only records whose field matches. With `mode: cdc` the field tells the source table: `source.db`, `source.schema`
    or `source.table` of Debezium's events, `metadata.schema-name` or `metadata.table-name` of DMS's. Default: all."""

    name_from: NameFrom | None = None
    """A field whose value stands for `{value}` in `name`, as it is: letters, digits, _ and -; dots too if `{value}` is
    the whole name. A record whose value is not allowed, or is no name, goes to none of these tables."""

    mode: Annotated[Literal["append", "upsert", "cdc"], BeforeValidator(_no_merge)] = "append"
    """`append`: each record becomes a row. `upsert`: a record takes the place of the row with its key, and a tombstone
    removes that row. `cdc`: a record says what became of a row, in the words of `envelope`."""

    write_mode: Literal["equality_deletes", "merge"] = "equality_deletes"
    """For `upsert` and `cdc`: how changes come into the table (docs/row_changes.md). `equality_deletes`: each batch
    adds files of rows and of keys; not every engine reads these. `merge`: a commit has Spark merge all batches that
    wait into the table, by rewriting files or by position deletes as the table's property `write.merge.mode` says."""

    envelope: Literal["debezium", "dms"] | None = None
    """For `cdc`: `debezium` are change events with `op`, `before` and `after`. `dms` are messages of AWS DMS, with
    `data`, `metadata` and, if it sends them, `before-image`. Default: `debezium`, unless `op_field` is set."""

    op_field: ColumnName | None = None
    """For `cdc`, in place of `envelope`: the field beside those of the row that says what became of it, such as `Op` or
    `__op`. In any case: `c`, `r`, `i`, `u`, `create`, `read`, `insert`, `update` and `load` put the row, `d` and
    `delete` remove it, `t` and `truncate` are truncates. It is a column only if the table has one of that name."""

    on_truncate: Literal["stop", "ignore"] = "stop"
    """For `cdc`: whether the pipeline stops when the source table was truncated, or leaves that out."""

    unavailable_value: Literal["refuse", "keep-old"] = "refuse"
    """For `cdc`: what becomes of a change without a large value that did not change, for which Debezium says
    `__debezium_unavailable_value`. `refuse`: it is a dead letter. `keep-old`: the row keeps the value that it has; it
    needs `write_mode: merge`, and goes without `order_by`."""

    key: KeyChoice | None = None
    """For `upsert` and `cdc`: the columns that tell rows apart, required and of plain types. Without `order_by` all
    changes of a key must come in one partition. `kafka`: the record's Kafka key, read as `source.key` says: its fields
    are the columns, or all of it is the column `_key`. Default: the table's identifier fields; those of a table that
    is created are the key."""

    deletes: Literal["hard", "soft"] = "hard"
    """For `upsert` and `cdc`: `hard` removes a row. `soft` keeps it, with `true` in a boolean column `_is_deleted`, in
    which other rows have `false`. A table that is created gets the column; its other columns but the key may then be
    null."""

    order_by: FieldPath | None = None
    """For `upsert`: the column, `outer.inner` for a nested one, whose larger value is the newer one, in whichever
    partition and batch a change comes; of equal values the one read later. A whole number, a decimal, a date or a
    timestamp. A record without it is a dead letter, and so is a tombstone. Unless `write_mode` is `merge`, each batch
    then reads key and order of all rows of the table. With `cdc` it needs `deletes: soft`; with Debezium it is a whole
    number of the event, such as `source.lsn`, kept in a column `_order`. Default: changes are in the order of their
    partition."""

    on_moved_key: Literal["stop", "ignore"] = "stop"
    """For `upsert` and `cdc` without `order_by`: whether the pipeline stops when a key has a change in another
    partition than its row came from, or the later batch wins. Where there are several partitions each batch reads key
    and `_kafka` of the table's rows for it; it needs `commit.every: batch` and the column `_kafka`."""

    auto_create: AutoCreate | None = None
    """Create the table if it is missing; `{}` takes every default. Left out, the table must exist."""

    kafka_column: bool | None = None
    """As in `table_defaults`."""

    target_file_size: Annotated[Bytes, Field(gt=0)] | None = None
    """As in `table_defaults`."""

    evolve: tuple[EvolveStep, ...] | None = None
    """As in `table_defaults`."""

    max_columns: Annotated[int, Field(ge=1)] | None = None
    """As in `table_defaults`."""

    case_insensitive: bool | None = None
    """As in `table_defaults`."""

    ignore_fields: tuple[str, ...] | None = None
    """As in `table_defaults`."""

    unknown_fields: UnknownFields | None = None
    """As in `table_defaults`."""

    owned: bool | None = None
    """Whether maintenance may expire the table's snapshots and delete its orphan files. Default: only if Calve has
    created it. `true` promises that no other pipeline feeds it and that others' writes take less than
    `maintenance.orphans.older_than`."""

    dagster: InDagster = InDagster()
    """How the table appears in Dagster."""

    transform: Transform | None = None
    """SQL that makes the row of a record. Default: the value's fields become the columns of their names."""

    history: HistoryChoice | None = None
    """What a table gets of the records that were published before it was added to the pipeline: `none`, or all, read
    from Kafka again: `replay`, not with `mode: upsert`. Must be set when a table is added to a pipeline that has
    published before."""

    @property
    def stops_moved_keys(self) -> bool:
        """Whether a key may come from no other partition than its row. An order makes that harmless."""
        return self.mode != "append" and self.order_by is None and self.on_moved_key == "stop"

    @property
    def wording(self) -> str:
        """In which words change events are written."""
        return "flat" if self.op_field else self.envelope or "debezium"

    @property
    def events(self) -> str:
        """As `wording`; nothing where records are no change events."""
        return self.wording if self.mode == "cdc" else ""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Those that `key` names."""
        return () if self.key is None or self.key == KAFKA else tuple(self.key)
