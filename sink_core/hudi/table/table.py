"""A Hudi table as a batch sees it: loaded, and compared with the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import TableSettings, TargetFileSize
from calve.sink_core.errors import TableUnusable
from calve.sink_core.hudi.changes.settings import hudi_changes_of, record_key
from calve.sink_core.hudi.files.place import PARTITION_FIELDS, Place
from calve.sink_core.hudi.files.read import NotReadable, read_rows
from calve.sink_core.hudi.files.schema import from_avro, is_marked
from calve.sink_core.hudi.files.staged import HudiFile, write_staged
from calve.sink_core.hudi.files.timeline import Timeline, extra_of, instant_text
from calve.sink_core.hudi.java.client import table_type_of
from calve.sink_core.hudi.table.shape import partitions_of
from calve.sink_core.hudi.table.target import HudiTarget
from calve.sink_core.iceberg.create.tables import CREATED_BY
from calve.sink_core.iceberg.files.stand_in import stand_in, written
from calve.sink_core.iceberg.handles import TableMetadata
from calve.sink_core.tables.batch import TableOutput, ToMerge
from calve.sink_core.tables.format.lake import Described, Totals
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges

VERSIONS = ("8", "9")
"""Table versions whose timeline is that of `timeline.py`."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "hoodie.table.version": VERSIONS,
    "hoodie.table.timeline.timezone": ("UTC",),
    "hoodie.populate.meta.fields": ("true", ""),
    "hoodie.datasource.write.drop.partition.columns": ("false", ""),
}
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
_KEPT = {"files", "column_stats", "partition_stats"}
"""Parts of a table's metadata table that a commit by its files alone keeps right, or drops."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a commit says that the table has with it; `size` in bytes."""

    rows: int
    files: int
    size: int


@dataclass(frozen=True)
class HudiTable:
    """As `LoadedTable`: its files as they were read, and `view` what its timeline says."""

    name: str
    place: Place
    properties: Mapping[str, str]
    timeline: Timeline
    view: TableView
    keys: SummaryKeys

    @property
    def uuid(self) -> str:
        return self.view.uuid

    @cached_property
    def schema_text(self) -> str:
        """The table's schema as Avro: that of the last commit that names one, else that of its creation."""
        said = (extra_of(instant).get("schema") for instant in reversed(self.timeline.commits))
        return next(filter(None, said), None) or self.properties.get("hoodie.table.create.schema", "")

    @cached_property
    def metadata(self) -> TableMetadata:
        """What stands for columns and partitions where Iceberg's code is shared."""
        schema = from_avro(self.schema_text, self.name)
        names = [name for name in self.properties.get(PARTITION_FIELDS, "").split(",") if name]
        try:
            return stand_in(schema, names, str(self.place.folder))
        except ValueError as error:
            raise self._unusable(f"{PARTITION_FIELDS} is {', '.join(names)}: {error}") from None

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()

    @property
    def stored_offset(self) -> int:
        return self.view.stored_offset

    @property
    def totals(self) -> Totals:
        """As the last commit of ours counted, rows None where others have written since. Where records change rows the
        files are counted, and their rows are known to readers only.
        """
        counted, tagged = self.counted, self.view.tagged
        rows: int | None = counted.rows if self.view.head == self.view.tag else None
        if self.key:
            files = [file for of in partitions_of(self.place, self.timeline).values() for file in of]
            rows, counted = None, Counted(0, len(files), sum(file.size for file in files))
        return Totals(
            rows,
            counted.files,
            counted.size,
            versions=len(self.view.snapshots),
            head=None if self.view.head is None else str(self.view.head),
            valid_through_ms=tagged.own.valid_through_ms if tagged and tagged.own else None,
        )

    @property
    def counted(self) -> Counted:
        """By the last commit that says so; where records change rows none does."""
        said = (extra_of(instant).get(self.keys.totals) for instant in reversed(self.timeline.commits))
        return Counted(*json.loads(next(filter(None, said), "[0, 0, 0]")))

    @property
    def described(self) -> Described:
        version = int(self.properties["hoodie.table.version"])
        return Described(
            str(self.place.folder), {"table type": table_type_of(self.properties), "table version": version}
        )

    def sample(self, columns: Sequence[str], rows: int) -> Sequence[Mapping[str, Any]]:
        try:
            first = next(read_rows(self.place, columns, rows), None) if self.timeline.commits else None
        except NotReadable as error:
            raise NotImplementedError(str(error)) from None
        return first.slice(0, rows).to_pylist() if first is not None else []

    def why_not_owned(self, owned: bool | None) -> str | None:
        """Why old versions must stay, None if they may go; `owned` as in the pipeline file."""
        if owned is None and CREATED_BY not in self.properties:
            return "not created by Calve, and the pipeline file doesn't say owned: true for it"
        return "the pipeline file says owned: false" if owned is False else None

    def check_usable(self) -> None:
        for name, allowed in _NEEDED.items():
            if (found := self.properties.get(name, "")) not in allowed:
                wanted = " or ".join(filter(None, allowed)) or "unset"
                raise self._unusable(f"{name} is {found}; Calve appends to tables where it is {wanted}")
        parts = set(filter(None, self.properties.get(METADATA_PARTITIONS, "").split(",")))
        if others := sorted(parts - _KEPT):
            raise self._unusable(f"its metadata table has {', '.join(others)}, which commits can't keep right")
        _ = self.metadata

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of its record key, if records change its rows; else that is their place in Kafka."""
        return record_key(self.properties)

    def row_changes(self, settings: TableSettings) -> RowChanges | None:
        return hudi_changes_of(self.metadata, settings, self.properties, marked=is_marked(self.schema_text))

    def existing_rows(self, key: Sequence[int], held: Sequence[int]) -> ExistingRows | None:  # noqa: ARG002
        return None

    def ready(self, settings: TableSettings) -> HudiTable:  # noqa: ARG002
        return self

    def target(self, size: TargetFileSize, changes: RowChanges | None = None, instant_ms: int = 0) -> HudiTarget:
        # All changes of a key must come to one task.
        distribution = "hash" if changes else "none"
        text = written(self.metadata)
        return HudiTarget(self.name, self.place, text, instant_text(instant_ms), size.bytes, distribution)

    def output(
        self,
        batch_id: str,
        files: Sequence[HudiFile],
        changes: int | None = None,
        to_merge: ToMerge | None = None,  # noqa: ARG002 - what a commit needs of it are properties of the table
    ) -> TableOutput:
        return write_staged(self.place, batch_id, self.name, self.uuid, files, changes)

    def _unusable(self, why: str) -> TableUnusable:
        return TableUnusable(
            f"{self.name}: {why}",
            hint="have Calve create a table of another name",
            code=Code.FOREIGN_HUDI_TABLE,
        )
