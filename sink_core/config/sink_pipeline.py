"""A sink with everything it names: its tables and what feeds them, formats, catalog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.config.assemble import catalog_settings, hudi_settings, kafka_settings, spark_settings
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.effective import CatalogSettings, HudiSettings, Pipeline, name_of
from calve.sink_core.config.reading import ALIKE, FormatsByTopic, readings
from calve.sink_core.config.references import redact, resolve, without_user_info
from calve.sink_core.config.routes import fed_tables, is_open, may_feed, namings
from calve.sink_core.config.routing import ALL, Naming, Rule
from calve.sink_core.config.sink import SinkConfig
from calve.sink_core.config.table_formats import HUDI, ICEBERG
from calve.sink_core.config.tables import (
    KAFKA,
    AutoCreate,
    HistoryChoice,
    HudiType,
    InDagster,
    Steps,
    Table,
    TableDefaults,
    Transform,
    UnknownFields,
)
from calve.sink_core.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class TargetFileSize:
    """If `stated` in the pipeline file it wins over a table's own property, else it stands in for it."""

    bytes: int
    stated: bool


@dataclass(frozen=True)
class TableSettings:
    """A table that is fed, with `table_defaults` applied. `explicit`: by the file alone there is such a table.
    `kafka_key` is the Iceberg type of the Kafka keys that its `key` is made of, if it is.
    """

    name: str
    mode: str
    auto_create: AutoCreate | None
    kafka_column: bool
    target_file_bytes: int
    evolve: Steps
    case_insensitive: bool
    owned: bool | None
    history: HistoryChoice | None = None
    rule: Rule = ALL
    explicit: bool = True
    transform: Transform | None = None
    target_file_stated: bool = False
    key: tuple[str, ...] = ()
    kafka_key: str = ""
    order_by: str | None = None
    soft_deletes: bool = False
    ignores_truncate: bool = False
    envelope: str = "debezium"
    op_field: str = ""
    stops_moved_keys: bool = False
    merged: bool = False
    keeps_old: bool = False
    ignore_fields: tuple[str, ...] = ()
    unknown_fields: UnknownFields = "leave_out"
    dagster: InDagster = field(default_factory=InDagster)
    format: str = ICEBERG
    hudi_type: HudiType = "copy_on_write"

    @property
    def changes_rows(self) -> bool:
        """Whether records change rows that are there, by the columns of `key` or the table's identifier fields."""
        return self.mode != "append"

    @property
    def events(self) -> str:
        """In which words records say what became of a row, if they do rather than be rows."""
        return self.envelope if self.mode == "cdc" else ""


@dataclass(frozen=True)
class SinkPipeline(Pipeline):
    """A pipeline of kind `sink`; `kafka` is also the cluster that it reads.

    `matched` are the topics that `source.topics_regex` found last, `known_tables` what the control log speaks of:
    together with the file they say which topics are read and which tables there are.
    """

    config: SinkConfig
    catalog: CatalogSettings
    readings: FormatsByTopic = ALIKE
    hudi: HudiSettings | None = None
    matched: tuple[str, ...] = ()
    known_tables: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: SinkConfig, connections: Connections, path: Path) -> SinkPipeline:
        """With the connections that the file names, all of which are there. Raises ConfigError for a schema file that
        isn't.
        """
        return cls(
            config=config,
            deployment=connections.deployment,
            kafka=kafka_settings(config.source.kafka, connections),
            catalog=catalog_settings(config.catalog, connections),
            spark=spark_settings(config.spark, connections),
            path=path,
            readings=readings(config.source, connections.registry, path.parent),
            hudi=hudi_settings(config.hudi, connections),
        )

    @property
    def is_open(self) -> bool:
        """Whether topics or tables are found at run time; the file has them all otherwise."""
        return is_open(self.config)

    def having(self, matched: Iterable[str], known_tables: Iterable[str]) -> SinkPipeline:
        """The same with what was found out since."""
        found, known = tuple(sorted(matched)), frozenset(known_tables)
        if (found, known) == (self.matched, self.known_tables):
            return self
        return replace(self, matched=found, known_tables=known)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read: those of the file, then those that matched."""
        return tuple(dict.fromkeys([*self.config.source.topics, *self.matched]))

    @property
    def tag(self) -> str:
        """The Iceberg tag on this pipeline's last snapshot of a table."""
        return f"calve-{self.config.first_name}"

    @property
    def ledger_table(self) -> str:
        return self.config.ledger_table

    @property
    def dead_letter_table(self) -> str:
        return self.config.dead_letter_table

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic that is told of dead letters, if there are any."""
        return None if self.config.on_bad_record == "stop" else self.config.dead_letters.topic

    @property
    def table_names(self) -> tuple[str, ...]:
        """Every table a batch can feed: data tables, ledger and dead letters."""
        return (*(table.name for table in self.tables), self.ledger_table, self.dead_letter_table)

    @property
    def from_now(self) -> frozenset[str]:
        """The tables that need not have what was published before they were added."""
        entire = {table.name for table in self.tables if table.history == "replay"}
        return frozenset(self.table_names) - entire

    def target_file_size(self, name: str) -> TargetFileSize:
        """Of a data table, the ledger or the dead letters."""
        defaults = self.config.table_defaults
        given = TargetFileSize(defaults.target_file_size, "target_file_size" in defaults.model_fields_set)
        return self._stated_file_sizes.get(name, given)

    @cached_property
    def _stated_file_sizes(self) -> dict[str, TargetFileSize]:
        return {t.name: TargetFileSize(t.target_file_bytes, True) for t in self.tables if t.target_file_stated}

    def require_tables(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a table that this pipeline does not feed, whatever topics and records there will be."""
        foreign = sorted(n for n in set(names) - set(self.table_names) if not may_feed(self.config, n))
        if foreign:
            raise ConfigError(
                f"table {foreign[0]} is not fed by pipeline {self.name}",
                hint=f"name one of {', '.join(self.table_names)}",
                code=Code.NO_SUCH_NAME,
            )

    @cached_property
    def tables(self) -> tuple[TableSettings, ...]:
        """The data tables in the file's order, then those found at run time; ledger and dead letters are not among
        them.
        """
        defaults = self.config.table_defaults
        return tuple(
            TableSettings(
                name=fed.name,
                mode=fed.entry.mode,
                auto_create=fed.entry.auto_create,
                kafka_column=_or(fed.entry.kafka_column, defaults.kafka_column),
                target_file_bytes=_or(fed.entry.target_file_size, defaults.target_file_size),
                evolve=_steps(fed.entry, defaults),
                case_insensitive=_or(fed.entry.case_insensitive, defaults.case_insensitive),
                ignore_fields=_or(fed.entry.ignore_fields, defaults.ignore_fields),
                unknown_fields=_or(fed.entry.unknown_fields, defaults.unknown_fields),
                dagster=fed.entry.dagster,
                format=fed.entry.format,
                hudi_type=fed.entry.hudi.type,
                owned=fed.entry.owned,
                history=fed.entry.history,
                rule=fed.rule,
                explicit=fed.explicit,
                transform=fed.entry.transform,
                target_file_stated=fed.entry.target_file_size is not None,
                key=fed.entry.key_columns,
                order_by=fed.entry.order_by,
                soft_deletes=fed.entry.deletes == "soft",
                ignores_truncate=fed.entry.on_truncate == "ignore",
                envelope=fed.entry.wording,
                op_field=fed.entry.op_field or "",
                stops_moved_keys=fed.entry.stops_moved_keys,
                kafka_key=self._key_type(fed.rule, f"{fed.name}: key: kafka") if fed.entry.key == KAFKA else "",
                merged=fed.entry.write_mode == "merge",
                keeps_old=fed.entry.unavailable_value == "keep-old",
            )
            for fed in fed_tables(self.config, self.topics, self.known_tables)
        )

    def format_of(self, table: str) -> str:
        """The format of a table, of the ledger or of the dead letters; Iceberg's for one that the file has no more."""
        return self._formats.get(table, ICEBERG)

    @property
    def has_timelines(self) -> bool:
        """Whether batches need an instant: tables have a timeline in which each is a moment of its own."""
        return HUDI in self._formats.values()

    @cached_property
    def _formats(self) -> dict[str, str]:
        return {table.name: table.format for table in self.tables}

    @cached_property
    def namings(self) -> tuple[Naming, ...]:
        """Entries whose tables are named by a field of the records."""
        return namings(self.config, self.topics)

    def topics_of(self, table: TableSettings) -> tuple[str, ...]:
        """The topics whose records a table may take."""
        return tuple(topic for topic in self.topics if table.rule.takes_topic(topic))

    def keys_as(self, table: TableSettings) -> str:
        """The Iceberg type that a table's SQL sees keys as: bytes where its topics have keys of several.

        Raises ConfigError if the SQL may look at these, and as `FormatsByTopic.of` does.
        """
        named = table.transform is not None and table.transform.may_name("key")
        return self._key_type(table.rule, f"{table.name}: transform" if named else "")

    def _key_type(self, rule: Rule, wanted_by: str) -> str:
        return self.readings.key_type([topic for topic in self.topics if rule.takes_topic(topic)], wanted_by)

    @cached_property
    def changing(self) -> frozenset[str]:
        """The tables whose rows records change."""
        return frozenset(table.name for table in self.tables if table.changes_rows)

    def _named(self, table: TableSettings) -> bool:
        """Whether records have named the table: it is there once they have."""
        return table.rule.naming is not None and table.name in self.known_tables

    def tables_of(self, topics: Iterable[str]) -> tuple[str, ...]:
        """The tables that a batch of these topics feeds: all that the file names, and of others those that it may."""
        read = set(topics)
        fed = (t for t in self.tables if t.explicit or (t.rule.topics or frozenset()) & read or self._named(t))
        return (*(table.name for table in fed), self.ledger_table, self.dead_letter_table)

    @cached_property
    def catalog_fingerprint(self) -> str:
        """Which catalog this is, as a text that is the same on every host and holds no secret.

        Type, uri and warehouse without user info and query, and the catalog's name. References in uri and warehouse are
        resolved, since hosts may spell them differently; raises ConfigError if a variable is not set.
        """
        properties = self.catalog.properties
        places = resolve({key: properties[key] for key in ("uri", "warehouse") if key in properties})
        kind = properties.get("type") or properties.get("py-catalog-impl")
        shown = {key: without_user_info(str(value)).rstrip("/") for key, value in places.items()}
        return " ".join(f"{key}={value}" for key, value in {"name": self.catalog.name, "type": kind, **shown}.items())

    def _connections(self) -> dict[str, Any]:
        catalog = {"name": self.catalog.name, **self.catalog.properties, "spark": dict(self.catalog.spark)}
        registries = {registry.name: redact(registry.properties) for registry in self.readings.registries}
        common = super()._connections()
        return {
            "kafka": common["kafka"],
            **({"registry": registries} if registries else {}),
            "catalog": {name_of(self.config.catalog): redact(catalog)},
            **self._hudi(),
            "spark": common["spark"],
        }

    def _hudi(self) -> dict[str, Any]:
        hudi = self.hudi
        if hudi is None:
            return {}
        said = {"warehouse": hudi.warehouse, **hudi.properties, "spark": dict(hudi.spark)}
        return {"hudi": {hudi.name: redact(said)}}

    def _derived(self) -> dict[str, str]:
        return {
            **super()._derived(),
            "tag": self.tag,
            "ledger_table": self.ledger_table,
            "dead_letter_table": self.dead_letter_table,
        }


def check_number(pipeline: SinkPipeline) -> None:
    """Raise ConfigError for an entry whose field names more tables than it may."""
    for index, entry in enumerate(pipeline.config.tables):
        number = sum(table.rule.naming == index for table in pipeline.tables)
        if entry.name_from and number > entry.name_from.max_tables:
            raise ConfigError(
                f"tables: {entry.name_from.field} names {number:,} tables by {entry.name}, more than its "
                f"name_from.max_tables allows ({entry.name_from.max_tables:,}); none was created",
                hint="narrow name_from.allow, or raise name_from.max_tables if they are meant",
                code=Code.TOO_MANY_TABLES,
            )


def _steps(table: Table, defaults: TableDefaults) -> Steps:
    # With SQL the columns are what it gives, whatever records have.
    given = () if table.transform else _or(table.evolve, defaults.evolve)
    return Steps(given, _or(table.max_columns, defaults.max_columns) if "add_column" in given else None)


def _or(given: T | None, default: T) -> T:
    return default if given is None else given
