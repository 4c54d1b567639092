"""Are catalog and warehouse there, and are the tables such that Calve can write them, or will it create them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property

from pyiceberg.schema import Schema

from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.config.table_formats import HUDI
from calve.sink_core.control.checking.checklist import Check, Note
from calve.sink_core.errors import ConfigError
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.create.tables import Columns, columns_shown, load_if_there, missing_table, new_table
from calve.sink_core.iceberg.create.warehouse import has_namespace, number_of_namespaces, warehouse_of
from calve.sink_core.iceberg.examine.table import check_usable, row_changes_of
from calve.sink_core.iceberg.handles import Catalog, Table
from calve.sink_core.records.columns.kafka_column import has_kafka_column, without_kafka_column
from calve.sink_core.records.formats import Sample
from calve.sink_core.records.keys import key_type
from calve.sink_core.sink.checks import hudi

EQUALITY_DELETES = (
    "its rows change by equality deletes: engines on Iceberg's Java library and DuckDB 1.5 read these, pyiceberg does "
    "not; with write_mode: merge there are none (docs/row_changes.md)"
)


class TableChecks:
    """The questions to catalog and storage. Use as a context manager: the catalog is opened by the first of them."""

    def __init__(self, pipeline: SinkPipeline, sample: Sample) -> None:
        self._pipeline, self._sample = pipeline, sample
        self._opened = ExitStack()

    def __enter__(self) -> TableChecks:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def checks(self) -> tuple[Check, ...]:
        """Tables whose columns the source must show need the topics, or the schemas that their records name."""
        internal = (self._pipeline.ledger_table, self._pipeline.dead_letter_table)
        return (
            Check("catalog", self.catalog),
            Check("warehouse", self.warehouse, needs=("catalog",)),
            *self._hudi_checks(),
            *(self._table_check(settings) for settings in self._pipeline.tables if settings.explicit),
            *(Check(f"table {name}", lambda name=name: self.internal(name), needs=("catalog",)) for name in internal),
        )

    def catalog(self) -> str:
        """Whether it opens and answers."""
        catalog = self._pipeline.catalog
        named, opened = f"{catalog.name} ({catalog.properties.get('type', 'own class')})", self._catalog
        try:
            return f"{named}, {number_of_namespaces(opened)} namespaces"
        except ConfigError:
            # A run lists nothing: who may not do that may do the rest.
            namespace = self._pipeline.ledger_table.split(".")[0]
            there = has_namespace(opened, namespace)
        return (
            f"{named}, namespace {namespace} {'is there' if there else 'will be created'}; it lists none to this user"
        )

    def warehouse(self) -> str | Note:
        """Writes and deletes a small file where data files go."""
        by_service = self._pipeline.catalog.properties.get("type") != "sql"
        warehouse = warehouse_of(self._catalog, self._pipeline.table_names, named=by_service)
        if warehouse is None:
            return Note("will be seen with the first table: the catalog alone knows where tables are put")
        warehouse.check_writable()
        return f"{warehouse.location} can be written"

    def data_table(self, settings: TableSettings) -> str | Note:
        """Whether it can be written, or can be created as the file says."""
        table = load_if_there(self._catalog, settings.name)
        if table is not None:
            self._check_transform(settings, table.schema())
            return self._usable(table, settings)
        if settings.auto_create is None:
            raise missing_table(self._catalog, settings, self._shown(settings))
        new = new_table(settings, settings.auto_create, self._shown(settings))
        self._check_transform(settings, new.schema)
        if settings.changes_rows and not settings.merged:
            return Note(f"will be created with {len(new.schema.fields)} columns", EQUALITY_DELETES)
        return f"will be created with {len(new.schema.fields)} columns, {_partitioning(new.partition_terms)}"

    def internal(self, name: str) -> str:
        """Ledger or dead letters."""
        table = load_if_there(self._catalog, name)
        if table is None:
            return "will be created"
        check_usable(table, name)
        return "can be written"

    @cached_property
    def _sampled(self) -> Mapping[str, list[bytes]]:
        return self._sample()

    @cached_property
    def _catalog(self) -> Catalog:
        return self._opened.enter_context(open_catalog(self._pipeline.catalog))

    def _hudi_checks(self) -> Iterator[Check]:
        ours = [settings for settings in self._pipeline.tables if settings.format == HUDI]
        if ours:
            yield Check("hudi warehouse", lambda: hudi.warehouse(self._pipeline))
            yield Check("hudi client", hudi.client)
        if any(settings.changes_rows for settings in ours):
            yield Check("hudi row changes", hudi.row_changes)

    def _table_check(self, settings: TableSettings) -> Check:
        if settings.format == HUDI:
            name, shown = f"table {settings.name}", self._shown(settings)
            return Check(name, lambda: hudi.table(self._pipeline, settings, shown), ("hudi warehouse", "topics"))
        named = settings.auto_create is not None and settings.auto_create.columns
        read = {self._pipeline.readings.of(topic).value for topic in self._pipeline.topics_of(settings)}
        shown_by = ("schemas",) if any(of.registry for of in read) else ("topics",)
        needs = ("catalog",) if named else ("catalog", *shown_by)
        return Check(f"table {settings.name}", lambda: self.data_table(settings), needs)

    def _usable(self, table: Table, settings: TableSettings) -> str | Note:
        check_usable(table, settings.name)
        row_changes_of(table, settings)
        if settings.changes_rows and not settings.merged:
            return Note("can be written", EQUALITY_DELETES)
        if has_kafka_column(table.schema(), table=settings.name) or not settings.kafka_column:
            return "can be written"
        return Note(
            "can be written, but has no _kafka column: `verify --deep` can't look into it",
            "add the column, or set kafka_column: false for the table",
        )

    def _shown(self, settings: TableSettings) -> Columns:
        """The columns that its topics ask for; all are sampled once."""
        return columns_shown(self._pipeline, lambda: self._sampled, self._pipeline.topics_of(settings))

    def _check_transform(self, settings: TableSettings, schema: Schema) -> None:
        """Bind the table's SQL to the columns. Raises ConfigError."""
        if settings.transform is not None:
            from calve.sink_core.records.transform.transform import Transforming

            key = key_type(self._pipeline.keys_as(settings))
            Transforming(settings.transform, without_kafka_column(schema), table=settings.name, key=key)


def _partitioning(fields: int) -> str:
    return f"partitioned by {fields} terms" if fields > 1 else "partitioned" if fields else "unpartitioned"
