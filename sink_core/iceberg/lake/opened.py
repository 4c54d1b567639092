"""The Iceberg tables of an open pipeline: one catalog, and several connections to it where tables are done at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.errors import CalveError
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.opening import has_one_writer, open_catalog
from calve.sink_core.iceberg.commit.append import build_append
from calve.sink_core.iceberg.commit.merge import Merging
from calve.sink_core.iceberg.commit.other_pipelines import Coverage, OtherPipelines
from calve.sink_core.iceberg.commit.parallel import TableThreads
from calve.sink_core.iceberg.commit.preconditions import check_published
from calve.sink_core.iceberg.commit.schema_change import change_schema
from calve.sink_core.iceberg.commit.swap import swap
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.iceberg.create.tables import ensure_table
from calve.sink_core.iceberg.examine.table import load_viewed
from calve.sink_core.iceberg.format.table import IcebergTable, iceberg
from calve.sink_core.iceberg.verify.proven import ProvenIceberg
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import Columns, LoadedTable, Looked, Opening
from calve.sink_core.tables.history.findings import Identity
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.history.view import TableView


@dataclass(frozen=True, slots=True)
class IcebergLake:
    """As `Lake`."""

    opening: Opening
    catalog: Catalog
    others: OtherPipelines
    threads: TableThreads

    @property
    def keys(self) -> SummaryKeys:
        pipeline = self.opening.pipeline()
        return SummaryKeys(pipeline.config.first_name, pipeline.control_topic, pipeline.group)

    @property
    def identity(self) -> Identity:
        return Identity(self.opening.log.topic_id, self.opening.cluster_id)

    def committer(self, first_coverage: Callable[[], Coverage] | None = None) -> TableCommitter:
        """`first_coverage` as in `TableCommitter`."""
        pipeline = self.opening.pipeline()
        return TableCommitter(
            self.catalog,
            pipeline.tag,
            self.keys,
            self.identity,
            self.opening.log,
            str(pipeline.path),
            pipeline.ledger_table,
            self.others,
            pipeline.from_now,
            first_coverage,
            Merging.of(pipeline, self.opening.merge()),
            self.opening.rules,
            self.opening.made_by,
        )

    def look(self, name: str, *, compare: bool = True) -> Looked:
        pipeline = self.opening.pipeline()
        if not compare:
            loaded = load_viewed(self.catalog, name, tag=pipeline.tag, keys=self.keys)
            return Looked(self.table(*loaded) if loaded else None, None)
        seen = self.committer().examine(name)
        table = self.table(seen.table, seen.view) if seen.table and seen.view else None
        return Looked(table, seen.finding.error(str(pipeline.path)) if seen.finding else None)

    def load(self, names: Collection[str]) -> Iterator[tuple[str, IcebergTable | CalveError | None]]:
        for name, found in self.threads.each(TableCommitter.load_checked, self.committer(), names):
            yield name, (found if isinstance(found, CalveError) or found is None else self.table(*found))

    def table(self, loaded: Table, view: TableView) -> IcebergTable:
        """A table that a committer has loaded, as a batch sees it."""
        return IcebergTable(view.table, loaded, view, self.catalog, self.opening.pipeline().catalog)

    def proven(self, table: LoadedTable) -> ProvenIceberg:
        assert isinstance(table, IcebergTable)
        return ProvenIceberg(table.table, table.view, self.catalog)

    def create(self, settings: TableSettings, shown: Columns) -> None:
        ensure_table(self.catalog, settings, shown)

    def change_schema(self, name: str, wanted: Schema, steps: Sequence[EvolveStep]) -> Sequence[str]:
        return change_schema(self.catalog, name, wanted, steps)

    def commit(self, names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
        return self.threads.each(_timed, self.committer(), names)

    def put(self, table: LoadedTable, steps: Callable[[], Sequence[Step]]) -> int | Exception:
        taking = steps()
        check_published(iceberg(table), [ref for step in taking for ref in step.manifests])
        attempt = build_append(iceberg(table), taking, tag=self.opening.pipeline().tag)
        reach("resolve.after-list")
        lost_to = swap(self.catalog, iceberg(table), attempt)
        if lost_to is None:
            reach("resolve.after-swap")
        return attempt.snapshot_id if lost_to is None else lost_to

    @property
    def upkeep(self) -> None:
        """By an engine's procedures (sink/maintenance), not here."""
        return

    def close(self) -> None:
        self.threads.close()
        self.catalog.close()


def iceberg_lake(opening: Opening) -> IcebergLake:
    """The lake of a pipeline, its catalog open. Raises Unreachable or ConfigError."""
    pipeline = opening.pipeline()
    catalog = open_catalog(pipeline.catalog)
    at_a_time = 1 if has_one_writer(pipeline.catalog) else pipeline.config.commit.parallel_tables
    return IcebergLake(
        opening,
        catalog,
        OtherPipelines(catalog, pipeline.group, opening.cluster_id),
        TableThreads(partial(open_catalog, pipeline.catalog), at_a_time),
    )


def _timed(committer: TableCommitter, name: str) -> TableCommit | None:
    began = time.monotonic()
    commit = committer.commit(name)
    return replace(commit, seconds=round(time.monotonic() - began, 3)) if commit else None
