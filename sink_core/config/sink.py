"""The pipeline file of a sink: Kafka to Iceberg."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from calve.sink_core.config.common import Dagster, Objectives, PipelineConfig
from calve.sink_core.config.connections import CatalogChoice, HudiChoice
from calve.sink_core.config.fields import KeyPart, TableName, TopicName
from calve.sink_core.config.hudi import hudi_tables
from calve.sink_core.config.model import Location, Model, refuse_at
from calve.sink_core.config.routing import TOPIC, VALUE, compiled, is_internal, placeholders
from calve.sink_core.config.row_changes import row_changes
from calve.sink_core.config.sink_source import KeyFormat, Source, ValueFormat
from calve.sink_core.config.table_maintenance import SinkMaintenance
from calve.sink_core.config.tables import Table, TableDefaults
from calve.sink_core.config.topics import covers
from calve.sink_core.config.units import DAY, BatchOrDuration, Duration, Percent


class DeadLetters(Model):
    """Where records go that can't be stored."""

    table: TableName | None = None
    """The dead-letter table, created if missing. Default: `calve.<pipeline>_dead_letters`."""

    topic: TopicName | None = None
    """Also append each dead letter to this topic of the source's cluster, with Kafka Connect's headers, in the
    transaction that publishes its batch. It must exist. Default: to none."""

    stop_above: Percent | None = None
    """Stop, and publish nothing of the batch, when a larger share of its records than this is bad. Default: never."""


class Commit(Model):
    """When what is published is committed to the tables."""

    every: BatchOrDuration = "batch"
    """`batch`: after each batch. A duration commits on a schedule: minutes that divide an hour (`1m`, `5m`, `30m`) or
    hours that divide a day. `calve run`, which has no schedule, then commits each time so long has passed, and at its
    end."""

    parallel_tables: Annotated[int, Field(ge=1, le=64)] = 8
    """How many tables are loaded and committed at a time; each has its own connection to the catalog. SQLite has one
    writer, so there it is always one."""


class SinkObjectives(Objectives):
    """What the pipeline is measured against."""

    dead_letters: Percent = 0.01
    """Greatest share of dead letters in the last 100 batches; a check warns above it."""

    schema_misfits: Duration = Field(default=7 * DAY, gt=0)
    """How long a dead letter that doesn't fit its table keeps a check red from its commit on, if it isn't replayed."""


class SinkDagster(Dagster):
    """How the pipeline appears in Dagster."""

    key_prefix: tuple[KeyPart, ...] = ()
    """Put before the tables' asset keys, which are their names otherwise."""

    sample_rows: int = Field(default=0, ge=0, le=100)
    """Rows of each table that a run shows on the table's page. Whoever sees Dagster's UI sees them; columns named like
    a secret are left out. Default: none."""

    hours_from: date | None = None
    """The first day whose hours the Partitions page of the job `NAME_replay_hours_job` offers for a backfill. Default:
    30 days ago, when Dagster loads the pipeline."""


class SinkConfig(PipelineConfig):
    """A pipeline file of a sink."""

    # Narrower than in every file: a value that nobody changes may be.
    kind: Literal["sink"] = "sink"  # pyright: ignore[reportIncompatibleVariableOverride]
    """`sink`: Kafka to tables, Iceberg's or Hudi's."""

    source: Source
    """What is read."""

    catalog: CatalogChoice
    """A name from `connections.yaml`, or a mapping of pyiceberg's keys."""

    hudi: HudiChoice | None = None
    """For tables with `format: hudi`: where they are, by a name from `connections.yaml`, or as a mapping with
    `warehouse`."""

    table_defaults: TableDefaults = TableDefaults()
    """What holds for each table that doesn't say otherwise."""

    tables: tuple[Table, ...] = Field(min_length=1)
    """The tables that are fed. Each record goes to each of them whose `topics`, `where` and `name_from` take it; one
    that no table takes is counted as unrouted."""

    on_bad_record: Literal["dead_letter", "stop"] = "dead_letter"
    """What happens to a record that can't be stored: it goes to the dead-letter table, or the pipeline stops."""

    dead_letters: DeadLetters = DeadLetters()
    """The dead-letter table; unused under `on_bad_record: stop`."""

    commit: Commit = Commit()
    """When what is published is committed to the tables."""

    objectives: SinkObjectives = SinkObjectives()  # pyright: ignore[reportIncompatibleVariableOverride]
    """What the pipeline is measured against."""

    maintenance: SinkMaintenance = SinkMaintenance()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Maintenance of tables and control topic."""

    dagster: SinkDagster = SinkDagster()  # pyright: ignore[reportIncompatibleVariableOverride]
    """How the pipeline appears in Dagster."""

    @property
    def ledger_table(self) -> str:
        return f"calve.{self.first_name}_ledger"

    @property
    def dead_letter_table(self) -> str:
        return self.dead_letters.table or f"calve.{self.first_name}_dead_letters"

    def connections(self) -> Iterator[tuple[Location, object]]:
        yield ("source", "kafka"), self.source.kafka
        yield from self._registries()
        yield ("catalog",), self.catalog
        yield ("hudi",), self.hudi
        yield from super().connections()

    def _registries(self) -> Iterator[tuple[Location, str | None]]:
        """Where a registry may be named."""
        entries: list[tuple[Location, KeyFormat | None, ValueFormat | None]]
        entries = [(("source",), self.source.key, self.source.value)]
        entries += [(("source", "formats", i), entry.key, entry.value) for i, entry in enumerate(self.source.formats)]
        for at, key, value in entries:
            for name, of in (("key", key), ("value", value)):
                if of is not None:
                    yield (*at, name, "registry"), of.registry

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        wrong = (*self._repeated(), *self._reserved(), *self._unroutable(), *self._unreadable(), *self._transforms())
        changing = row_changes(self.tables, self.table_defaults, self.source, self.commit.every)
        of_hudi = hudi_tables(self.tables, self.table_defaults, self.hudi)
        refuse_at("SinkConfig", (*wrong, *changing, *of_hudi))
        return self

    def _unroutable(self) -> Iterator[tuple[Location, str, object]]:
        """Placeholders that nothing fills, and what a name that stands for many tables can't say."""
        pattern = self.source.topics_regex
        groups = {*compiled(pattern).groupindex} if pattern else set[str]()
        for reserved in sorted(groups & {TOPIC, VALUE}):
            yield ("source", "topics_regex"), f"a group can't be called {reserved}; choose another name", None
        for index, table in enumerate(self.tables):
            yield from self._unfilled(("tables", index), table, groups)
            for topic in table.topics or ():
                if not covers(topic, self.source.topics, pattern):
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

    def _unreadable(self) -> Iterator[tuple[Location, str, object]]:
        """What the format of the values doesn't allow."""
        for index, table in enumerate(self.tables):
            kinds = sorted(self.source.value_types(table.topics))
            for key, given in (("where", table.where), ("name_from", table.name_from)):
                whole = [kind for kind in kinds if kind in ("string", "bytes")]
                if given is not None and whole:
                    yield ("tables", index, key), f"a value of type {whole[0]} has no fields", None

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
        topic = self.dead_letters.topic
        if topic is not None and is_internal(topic):
            yield ("dead_letters", "topic"), f"{topic} is a topic of Kafka's or Calve's own; choose another", None
        elif topic is not None and self.source.has(topic):
            yield ("dead_letters", "topic"), f"{topic} is read by source: every letter would come back", None

    def _transforms(self) -> Iterator[tuple[Location, str, object]]:
        for number, table in enumerate(self.tables):
            if table.transform is None:
                continue
            if table.auto_create is not None and not table.auto_create.columns:
                text = "a table with a transform is created with the columns that it names; name them"
                yield ("tables", number, "auto_create", "columns"), text, None
