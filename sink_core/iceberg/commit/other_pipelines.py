"""Other pipelines of Calve that write to the same table, and whether they read the same records.

Several pipelines may feed one table. Where two of them read the same offsets of the same topic, it has each of these
records twice. What the other one has read, its ledger says, which stands in the same catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In
from pyiceberg.table import Table

from calve.sink_core.errors import ConfigError
from calve.sink_core.finding import Finding
from calve.sink_core.findings import TABLE_FED_TWICE
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.offsets import OffsetRange, Offsets, TopicPartition
from calve.sink_core.tables.history.record import name_of
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.state import CommitState

_COLUMNS = ("topic_id", "partition", "start_offset", "end_offset", "written")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a pipeline reads: the UUID of each topic, and where each partition begins, 0 for one that is not named."""

    topic_ids: Mapping[str, str]
    begins: Offsets

    def begin(self, at: TopicPartition) -> int:
        return self.begins.get(at, 0)


def coverage_of(state: CommitState) -> Coverage | None:
    """By the control log; None before the bootstrap."""
    return Coverage(state.last_publish.topic_ids, state.begins) if state.last_publish else None


def read_twice(reading: Coverage, table: str, rows: Iterable[Mapping[str, Any]]) -> OffsetRange | None:
    """The first range in a ledger's `rows` that put records into `table` which `reading` has, or will have, as well."""
    names = {topic_id: topic for topic, topic_id in reading.topic_ids.items()}
    for row in rows:
        topic = names.get(row["topic_id"])
        if topic is None or not dict(row["written"] or ()).get(table):
            continue
        begin = reading.begin(TopicPartition(topic, row["partition"]))
        if row["end_offset"] > begin:
            return OffsetRange(topic, row["partition"], max(begin, row["start_offset"]), row["end_offset"])
    return None


@dataclass(slots=True)
class OtherPipelines:
    """Looks into the ledgers of other pipelines; one that was read and has not changed since is not read again.

    `group` and `cluster_id` are this pipeline's own.
    """

    catalog: Catalog
    group: str
    cluster_id: str
    _harmless: dict[tuple[str, str], object] = field(default_factory=dict[tuple[str, str], object])

    def finding(self, view: TableView, reading: Coverage) -> Finding | None:
        """Raises Unreachable if a ledger can't be read."""
        for group, cluster_id in sorted(view.others.items()):
            if group not in view.adopted and (found := self._compared(view.table, group, cluster_id, reading)):
                return TABLE_FED_TWICE.of(view.table, stored=found[0], found=found[1])
        return None

    def _compared(self, table: str, group: str, cluster_id: str, reading: Coverage) -> tuple[str, str] | None:
        """What is stored and what was found; None if the other pipeline reads other records."""
        stored, name = f"snapshots of pipeline {group}", name_of(group)
        if name == name_of(self.group):
            return stored, f"this one is {self.group}: their tag and their ledger are the same"
        if cluster_id not in ("", self.cluster_id):
            return None
        ledger = self._load(f"calve.{name}_ledger")
        if ledger is None:
            return stored, f"no ledger calve.{name}_ledger that would say what it has read"
        looked_at = (str(ledger.metadata.table_uuid), ledger.metadata.current_snapshot_id, reading)
        if self._harmless.get((group, table)) == looked_at:
            return None
        with unreachable_as_ours(f"reading {'.'.join(ledger.name())}"):
            common = read_twice(reading, table, _rows(ledger, reading))
        if common is None:
            self._harmless[group, table] = looked_at
            return None
        at = TopicPartition(common.topic, common.partition)
        return f"{common} by pipeline {group}", f"this one reads {at} from offset {reading.begin(at)} on"

    def _load(self, name: str) -> Table | None:
        try:
            return load_if_there(self.catalog, name)
        except ConfigError:
            # Another pipeline's ledger may be nobody else's to see.
            return None


def _rows(ledger: Table, reading: Coverage) -> Iterator[Mapping[str, Any]]:
    """The ledger's rows that may matter, a batch of them at a time."""
    wanted = In("topic_id", set(reading.topic_ids.values()))  # pyright: ignore[reportCallIssue] (a model's __new__)
    for batch in ledger.scan(row_filter=wanted, selected_fields=_COLUMNS).to_arrow_batch_reader():
        yield from batch.to_pylist()
