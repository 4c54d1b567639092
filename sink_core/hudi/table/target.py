"""A Hudi table as tasks write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.schema import Schema

from calve.sink_core.hudi.changes.keys import indistinct_keys
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.schema import HUDI_COLUMNS
from calve.sink_core.hudi.files.staged import too_long_for_paths
from calve.sink_core.hudi.table.writer import HudiWriter
from calve.sink_core.iceberg.changes.pieces import ChangePieces
from calve.sink_core.iceberg.files.stand_in import read
from calve.sink_core.iceberg.handles import TableMetadata
from calve.sink_core.records.columns.column_names import ColumnRule
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.format.target import ChangingWriter, Distribution, RowCheck, RowWriter
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tables.row_changes import RowChanges


@dataclass(frozen=True)
class HudiTarget:
    """As `Target`. `text` is the JSON of the metadata that stand for the table's columns and partitions, `instant` what
    the batch is committed under, `target_file_size` in bytes.
    """

    name: str
    place: Place
    text: str
    instant: str
    target_file_size: int
    distribution: Distribution = "none"

    @cached_property
    def metadata(self) -> TableMetadata:
        """Parsed when it is needed: a task gets records for few of many tables."""
        return read(self.text)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "metadata"}

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()

    @property
    def names(self) -> dict[int, list[str]]:
        return {}

    def writer(self, file_prefix: str, budget: Budget) -> RowWriter:
        folder = self.place.staged / file_prefix
        return HudiWriter(folder, self.metadata, self.instant, target_file_size=self.target_file_size, budget=budget)

    def change_writer(
        self,
        file_prefix: str,
        budget: Budget,  # noqa: ARG002 - one file, once all changes are there
        changes: RowChanges,
        topics: Sequence[str],
    ) -> ChangingWriter:
        # Imported where it is needed: most tasks have no row changes.
        from calve.sink_core.hudi.changes.writer import HudiChangeWriter

        folder = self.place.staged / file_prefix
        return HudiChangeWriter(folder, self.metadata, self.instant, changes=changes, table=self.name, topics=topics)

    @property
    def column_rule(self) -> ColumnRule:
        return HUDI_COLUMNS

    def row_checks(self, key: Sequence[str]) -> Sequence[RowCheck]:
        partitions = tuple(field.name for field in self.metadata.spec().fields)
        checks = (RowCheck(tuple(key), indistinct_keys), RowCheck(partitions, too_long_for_paths))
        return [check for check in checks if check.columns]

    def spreader(
        self, outbox: Outbox, number: int, budget: Budget, changes: RowChanges | None, *, bounded: bool
    ) -> RowWriter:
        assert changes is not None
        return ChangePieces(self.schema, changes.key, outbox, number, budget, bounded=bounded)
