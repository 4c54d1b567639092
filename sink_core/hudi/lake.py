"""The Hudi tables of an open pipeline: a warehouse, and JVMs that are started when the first commit needs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.config.references import resolve
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.errors import CalveError, TableUnusable, Unreachable
from calve.sink_core.failpoints import reach
from calve.sink_core.hudi.commit.examine import HudiTables
from calve.sink_core.hudi.commit.table import ATTEMPTS, HudiCommitter, Moved
from calve.sink_core.hudi.files.place import place_of, warehouse_of
from calve.sink_core.hudi.files.schema import is_marked, to_avro
from calve.sink_core.hudi.java.client import HudiClient
from calve.sink_core.hudi.java.create import ensure_table
from calve.sink_core.hudi.java.jvm import HudiRefused, client_jvm
from calve.sink_core.hudi.java.spark import SparkClient
from calve.sink_core.hudi.maintenance.upkeep import HudiUpkeep
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.hudi.verify.proven import ProvenHudi
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile
from calve.sink_core.records.columns.evolution import Used, evolved
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import Columns, LoadedTable, Looked, Opening
from calve.sink_core.tables.history.findings import Identity
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.history.shares import Step


@dataclass(frozen=True, slots=True)
class HudiLake:
    """As `Lake`."""

    opening: Opening
    warehouse: Path
    client: HudiClient
    spark: SparkClient

    @property
    def tables(self) -> HudiTables:
        pipeline, log = self.opening.pipeline(), self.opening.log
        keys = SummaryKeys(pipeline.config.first_name, pipeline.control_topic, pipeline.group)
        now = Identity(log.topic_id, self.opening.cluster_id)
        return HudiTables(partial(place_of, self.warehouse), keys, now, log)

    @property
    def committer(self) -> HudiCommitter:
        pipeline = self.opening.pipeline()
        return HudiCommitter(
            self.client, self.spark, self.tables, str(pipeline.path), pipeline.from_now, self.opening.made_by
        )

    def look(self, name: str, *, compare: bool = True) -> Looked:
        if not compare:
            return Looked(self.tables.load(name), None)
        seen = self.tables.examine(name)
        return Looked(seen.table, seen.finding.error(str(self.opening.pipeline().path)) if seen.finding else None)

    def load(self, names: Collection[str]) -> Iterator[tuple[str, HudiTable | CalveError | None]]:
        for name in names:
            try:
                seen = self.tables.examine(name)
            except CalveError as error:
                yield name, error
                continue
            finding = seen.finding.error(str(self.opening.pipeline().path)) if seen.finding else None
            yield name, finding or seen.table

    def proven(self, table: LoadedTable) -> ProvenHudi:
        assert isinstance(table, HudiTable)
        return ProvenHudi(table)

    def create(self, settings: TableSettings, shown: Columns) -> None:
        ensure_table(self.client, place_of(self.warehouse, settings.name), settings, shown)

    def change_schema(self, name: str, wanted: Schema, steps: Sequence[EvolveStep]) -> Sequence[str]:
        """By a commit without files: readers know the columns before there are rows with them."""
        before = self.tables.load(name)
        if before is None:
            raise dropped_meanwhile(name)
        with self.committer.locked(before):
            for _ in range(ATTEMPTS):
                table = self.tables.load(name)
                if table is None:
                    raise dropped_meanwhile(name)
                change = evolved(table.schema, wanted, steps, Used(table.schema.highest_field_id))
                if change is None:
                    return ()
                try:
                    if self.committer.change(name, to_avro(change.schema, name, marked=is_marked(table.schema_text))):
                        return change.changes
                except HudiRefused as error:
                    raise Unreachable(
                        f"changing the columns of {name}: {error}",
                        hint="the table stays as it is, and the next run tries again",
                        code=Code.HUDI_REFUSED,
                    ) from None
        return ()

    def commit(self, names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
        for name in names:
            try:
                yield name, self.committer.commit(name)
            except CalveError as error:
                yield name, error

    def put(self, table: LoadedTable, steps: Callable[[], Sequence[Step]]) -> int | Exception:
        assert isinstance(table, HudiTable)
        made = steps()
        if any(step.manifests for step in made):
            raise TableUnusable(
                f"{table.name}: was created again, and batches are published for it as it is now",
                hint="choose `refill`, which reads again what the former table had",
                code=Code.HUDI_ANSWER,
            )
        with self.committer.locked(table):
            reach("resolve.after-list")
            try:
                number = self.committer.answer(table, made[-1].summary)
            except (HudiRefused, Moved) as error:
                return error
            reach("resolve.after-swap")
            return number

    @property
    def upkeep(self) -> HudiUpkeep:
        return HudiUpkeep(self.client, self.tables)

    def close(self) -> None:
        self.client.jvm.close()
        self.spark.jvm.close()


def hudi_lake(opening: Opening) -> HudiLake:
    """The lake of a pipeline. Starts nothing. Raises ConfigError for a warehouse that can't be used."""
    settings = opening.pipeline().hudi
    assert settings is not None
    hadoop = {key: str(value) for key, value in resolve(settings.properties).items()}
    spark = {key: str(value) for key, value in resolve(settings.spark).items()}
    client = HudiClient(client_jvm(), hadoop)
    return HudiLake(opening, warehouse_of(settings), client, SparkClient(hadoop, spark))
