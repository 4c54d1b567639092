"""A Hudi table as a batch sees it: loaded, and compared with the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.schema import Schema

from calve.sink_core.config.sink_pipeline import TableSettings, TargetFileSize
from calve.sink_core.error_codes.hudi import FOREIGN_HUDI_TABLE
from calve.sink_core.errors import TableUnusable
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.read import read_rows
from calve.sink_core.hudi.files.schema import from_avro
from calve.sink_core.hudi.files.staged import HudiFile, write_staged
from calve.sink_core.hudi.files.timeline import Timeline, extra_of, instant_text
from calve.sink_core.hudi.java.client import table_type_of
from calve.sink_core.hudi.table.target import HudiTarget
from calve.sink_core.iceberg.files.stand_in import stand_in, written
from calve.sink_core.iceberg.handles import TableMetadata
from calve.sink_core.tables.batch import TableOutput, ToMerge
from calve.sink_core.tables.format.lake import Described, Totals
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges

VERSIONS = ("8", "9")
"""Table versions whose timeline is that of `timeline.py`."""

PARTITION_FIELDS = "hoodie.table.partition.fields"
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "hoodie.table.version": VERSIONS,
    "hoodie.table.timeline.timezone": ("UTC",),
    "hoodie.populate.meta.fields": ("true", ""),
    "hoodie.datasource.write.drop.partition.columns": ("false", ""),
    # A key of columns would tell rows otherwise than ours do.
    "hoodie.table.recordkey.fields": ("",),
}
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
_KEPT = {"files", "column_stats", "partition_stats"}
"""Parts of a table's metadata table that a commit by its files alone keeps right, or drops."""


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
        """As the last commit of ours counted; rows are None where others have written since."""
        rows, files, size = self.counted
        tagged = self.view.tagged
        return Totals(
            rows if self.view.head == self.view.tag else None,
            files,
            size,
            versions=len(self.view.snapshots),
            head=None if self.view.head is None else str(self.view.head),
            valid_through_ms=tagged.own.valid_through_ms if tagged and tagged.own else None,
        )

    @property
    def counted(self) -> tuple[int, int, int]:
        """Rows, files and bytes by the last commit that says so."""
        said = (extra_of(instant).get(self.keys.totals) for instant in reversed(self.timeline.commits))
        rows, files, size = json.loads(next(filter(None, said), "[0, 0, 0]"))
        return rows, files, size

    @property
    def described(self) -> Described:
        version = int(self.properties["hoodie.table.version"])
        return Described(
            str(self.place.folder), {"table type": table_type_of(self.properties), "table version": version}
        )

    def sample(self, columns: Sequence[str], rows: int) -> Sequence[Mapping[str, Any]]:
        try:
            batches = read_rows(self.place, columns, rows)
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        first = next(iter(batches), None) if self.timeline.commits else None
        return first.slice(0, rows).to_pylist() if first is not None else []

    def check_usable(self) -> None:
        for name, allowed in _NEEDED.items():
            if (found := self.properties.get(name, "")) not in allowed:
                wanted = " or ".join(filter(None, allowed)) or "unset"
                raise self._unusable(f"{name} is {found}; Calve appends to tables where it is {wanted}")
        parts = set(filter(None, self.properties.get(METADATA_PARTITIONS, "").split(",")))
        if others := sorted(parts - _KEPT):
            raise self._unusable(f"its metadata table has {', '.join(others)}, which commits can't keep right")
        _ = self.metadata

    def row_changes(self, settings: TableSettings) -> RowChanges | None:  # noqa: ARG002 - refused in the file
        return None

    def existing_rows(self, key: Sequence[int], held: Sequence[int]) -> ExistingRows | None:  # noqa: ARG002
        return None

    def ready(self, settings: TableSettings) -> HudiTable:  # noqa: ARG002
        return self

    def target(self, size: TargetFileSize, changes: RowChanges | None = None, instant_ms: int = 0) -> HudiTarget:  # noqa: ARG002
        return HudiTarget(self.place, written(self.metadata), instant_text(instant_ms), size.bytes)

    def output(
        self,
        batch_id: str,
        files: Sequence[HudiFile],
        changes: int | None = None,  # noqa: ARG002 - there are none
        to_merge: ToMerge | None = None,  # noqa: ARG002
    ) -> TableOutput:
        return write_staged(self.place, batch_id, self.name, self.uuid, files)

    def _unusable(self, why: str) -> TableUnusable:
        return TableUnusable(
            f"{self.name}: {why}",
            hint="have Calve create a table of another name",
            code=FOREIGN_HUDI_TABLE,
        )
