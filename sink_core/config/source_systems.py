"""What a source reads: a class of the user's own, the log of a database, its tables by query, or files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator

from calve.sink_core.config.connections import DatabaseChoice
from calve.sink_core.config.fields import TopicName
from calve.sink_core.config.model import Matching, Model, NestedProperty, Property, Text, refuse_at
from calve.sink_core.config.references import redact_text
from calve.sink_core.config.units import DAY, SECOND, Duration

ClassPath = Annotated[
    str,
    Matching(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a class; write package.module:Class"),
]
SlotName = Annotated[str, Matching(r"^[a-z0-9_]{1,63}$", "a replication slot; use a to z, digits and _")]
TableName = Annotated[str, Matching(r"^[^.\s]+\.[^.\s]+$", "a table; write schema.table")]
AnyTableName = Annotated[str, Matching(r"^[^.]+\..+$", "a table; write schema.table")]
"""One that no topic can be called after may be so named too."""


SCHEMA, TABLE = "{schema}", "{table}"
"""The placeholders of `target.topics`."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """What topics of tables are called: by `target.topics`, but tables in `by_table`, each by its `schema.table`."""

    pattern: str
    by_table: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, schema: str, table: str) -> str:
        named = self.by_table.get(f"{schema}.{table}")
        return named or self.pattern.replace(SCHEMA, schema).replace(TABLE, table)


class ClassSource(Model):
    """A system that is read by a class of yours."""

    type: ClassPath
    """The class that reads it, `package.module:Class`: one of yours, see docs/sources.md."""

    options: dict[str, NestedProperty] = Field(default={})
    """What the class is made with, by name. `${ENV:NAME}` may stand in texts."""

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        return self.type


class PostgresLog(Model):
    """The log of a PostgreSQL database, by logical decoding (`pgoutput`). Needs `wal_level=logical`."""

    slot: SlotName
    """The replication slot, this pipeline's own; made at first use. PostgreSQL keeps its log for it until the rows are
    in Kafka."""

    publication: Text
    """The publication that says which tables are read: `CREATE PUBLICATION … FOR TABLE …`."""

    tables: tuple[TableName, ...] = ()
    """Tables that the publication must have; Dagster shows each of them with its topic. Default: whatever it has."""

    exclude: tuple[AnyTableName, ...] = ()
    """Tables of the publication that are not read, with `*` and `?` as shells have them: `audit.*`. Default: none."""

    snapshot: Literal["initial", "never"] = "initial"
    """`initial`: the rows that are there are sent first, and those of each table that joins the publication later.
    `never`: only what changes from the slot's position on."""


class TableByQuery(Model):
    """A table that is asked again and again for what is new in it."""

    table: TableName
    """`schema.table`."""

    by: Literal["transaction", "timestamp", "incrementing", "bulk"] = "transaction"
    """How new rows are told. `transaction`: by the transaction that wrote them, PostgreSQL only; misses none, however
    late it commits. `timestamp`: by `column`, and `key` for rows of the same time. `incrementing`: by `column`, whose
    values only grow; rows that change are not seen. `bulk`: all rows each time."""

    column: Text | None = None
    """The column that tells new rows; for `timestamp` and `incrementing`."""

    key: tuple[Text, ...] = ()
    """The columns that make a record's key, and for `timestamp` the order of rows of one time. Default: the primary
    key."""

    settle: Duration | None = Field(default=None, gt=0)
    """For `timestamp` and `incrementing`: how long a time must be past, or a value have been there, before rows up to
    it are read. A transaction that lasts longer than this can hide rows for good."""

    every: Duration | None = Field(default=None, gt=0)
    """For `bulk`: how long after all rows were read they are read again. Default: 1h."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        by_column = self.by in ("timestamp", "incrementing")
        problems: list[tuple[tuple[str, ...], str, object]] = []
        if by_column and self.column is None:
            problems.append((("column",), f"by: {self.by} needs column: the one that tells new rows", None))
        if by_column and self.settle is None:
            text = f"by: {self.by} needs settle, longer than any transaction that writes here lasts, such as 30s"
            problems.append((("settle",), text, None))
        if not by_column and self.column is not None:
            problems.append((("column",), f"by: {self.by} takes none", self.column))
        if not by_column and self.settle is not None:
            problems.append((("settle",), f"by: {self.by} takes none", self.settle))
        if self.by != "bulk" and self.every is not None:
            problems.append((("every",), f"by: {self.by} takes none: trigger.every says when it is asked", self.every))
        refuse_at("TableByQuery", problems)
        return self


class DatabaseSource(Model):
    """A database: its log, or tables by query. Exactly one of `log` and `tables`."""

    database: DatabaseChoice
    """A name from `connections.yaml`, or a mapping with `url`."""

    log: PostgresLog | None = None
    """The log of a PostgreSQL database: each change of each row."""

    tables: tuple[TableByQuery, ...] = ()
    """Tables that are asked for what is new in them."""

    @property
    def named(self) -> tuple[str, ...]:
        """The tables that the file names."""
        return self.log.tables if self.log is not None else tuple(each.table for each in self.tables)

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        name = self.database if isinstance(self.database, str) else "the database"
        return f"the log of {name}" if self.log is not None else f"tables of {name}"

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.log is None) == (not self.tables):
            given = "neither" if self.log is None else "both"
            refuse_at("DatabaseSource", [((), f"needs exactly one of log and tables, {given} given", given)])
        names = [each.table for each in self.tables]
        twice = sorted({name for name in names if names.count(name) > 1})
        refuse_at("DatabaseSource", [(("tables",), f"{name} is there twice", name) for name in twice])
        return self


class Files(Model):
    """Files of one folder, or of one pattern."""

    path: Text
    """Where they are: a folder, a folder and a pattern, `/in/*.jsonl`, or an address of fsspec, `s3://in/**/*.csv`.
    Names that begin with `.` or `_` are left out."""

    format: Literal["json_lines", "csv", "parquet"]
    """`json_lines` and `csv` may grow, and are read by whole lines; Parquet never changes. A CSV has a header line."""

    topic: TopicName
    """Where the rows go."""

    key: tuple[Text, ...] = ()
    """The fields that make a record's key. Default: none."""

    forget_after: Duration = Field(default=7 * DAY, gt=0)
    """The offset of a file that is gone is kept so long, by the time of its last change: one that comes back is then
    not read again."""

    settle: Duration = Field(default=0 * SECOND, ge=0)
    """A file is left alone until it has not changed for so long; its last line then needs no newline. With 0 a last
    line is left until it has one."""

    follow_links: bool = False
    """Whether links are read that lead out of the folder. Who may put files there could then have any file read that
    Calve's user may read. Without it they are left out, and `calve status` counts them."""

    options: dict[str, Property] = Field(default={})
    """What fsspec is given for this address, such as `key`, `secret`, `endpoint_url`."""


class FilesSource(Model):
    """Files, line by line or row by row."""

    files: Files
    """Which files, and what is made of them."""

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        return f"files of {redact_text(self.files.path)}"


def _kind_of(given: object) -> str:
    for key, model in (("database", DatabaseSource), ("files", FilesSource)):
        if isinstance(given, model) or (isinstance(given, Mapping) and key in cast(Mapping[str, object], given)):
            return f"<{key}>"
    return "<class>"


SourceSystem = Annotated[
    Annotated[ClassSource, Tag("<class>")]
    | Annotated[DatabaseSource, Tag("<database>")]
    | Annotated[FilesSource, Tag("<files>")],
    Discriminator(_kind_of),
]
"""What is read."""
