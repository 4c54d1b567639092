"""The bank of `examples/postgres_to_iceberg`, at moments when nobody changes it: what database and tables have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg2
from pyspark.sql import SparkSession

from calve.sink_core.config.load import load_as
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import run_mirror
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import run_source
from tests import support
from tests.postgres import Postgres

EXAMPLE = Path(__file__).parents[1] / "examples/postgres_to_iceberg"
ACCOUNTS, ALL_ACCOUNTS = "bank.accounts", "bank.all_accounts"

Account = tuple[int, str, Decimal, str | None, int]
"""id, owner, balance, note, touched in microseconds."""


@dataclass(frozen=True)
class Moment:
    """All rows of a database, when `sent` records more were in Kafka, with every change of theirs."""

    accounts: list[Account]
    sent: int


@dataclass(frozen=True)
class Bank:
    """A database, and the example's pipelines under a name of its own: `name` is that of its catalog and topics too.

    With `far`, another cluster, a mirror lies between the topics and the tables.
    """

    server: Postgres
    bootstrap: str
    directory: Path
    name: str
    far: str | None = None

    @classmethod
    def create(
        cls, server: Postgres, bootstrap: str, directory: Path, spark: Mapping[str, Any], *, far: str | None = None
    ) -> Bank:
        """With the example's tables in the database, and its files in the directory."""
        bank = cls(server, bootstrap, directory, support.unique("bank").replace("-", "_"), far)
        server.psql(EXAMPLE / "schema.sql")
        connections = {
            "deployment": bank.name,
            "kafka": {"main": {"bootstrap.servers": bootstrap}, "far": {"bootstrap.servers": far or bootstrap}},
            "database": {"bank": {"url": server.url}},
            "catalog": {bank.name: {"type": "sql", **support.catalog_properties(bank.lake)}},
            "spark": {"small": dict(spark)},
        }
        (directory / "connections.yaml").write_text(json.dumps(connections))
        sink = (EXAMPLE / "pipeline.yaml").read_text()
        ours = sink.replace("[pg.public.", f"[{bank.name}.public.").replace("catalog: lake", f"catalog: {bank.name}")
        if far is not None:
            ours = ours.replace("kafka: main", "kafka: far").replace(
                f"[{bank.name}.public.", f"[far.{bank.name}.public."
            )
            mirror = {
                "name": f"{bank.name}_mirror",
                "kind": "mirror",
                "source": {"kafka": "main", "topics": [f"{bank.name}.public.accounts"]},
                "target": {"kafka": "far", "names": "far.{topic}"},
                "batch": support.SHORT_CUT,
            }
            bank.mirror.write_text(json.dumps(mirror))
        short_cut = f"\nbatch: {json.dumps(support.SHORT_CUT)}\n"
        bank.file.write_text(ours + short_cut)
        source = (EXAMPLE / "source.yaml").read_text() + short_cut
        bank.source.write_text(source.replace('"pg.{', f'"{bank.name}.{{'))
        return bank

    @property
    def file(self) -> Path:
        return self.directory / "pipeline.yaml"

    @property
    def source(self) -> Path:
        return self.directory / "source.yaml"

    @property
    def mirror(self) -> Path:
        return self.directory / "mirror.yaml"

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    def moment(self) -> Moment:
        """All changes until now are in Kafka when this returns, and no later ones: nobody can change the table."""
        with closing(psycopg2.connect(self.server.dsn)) as connection, connection.cursor() as cursor:
            # Once they that have changed it are over.
            cursor.execute("LOCK TABLE accounts IN SHARE MODE")
            micros = "(extract(epoch FROM touched) * 1000000)::bigint"
            cursor.execute(f"SELECT id, owner, balance, note, {micros} FROM accounts")
            return Moment(sorted(cursor.fetchall()), self.send())

    def send(self) -> int:
        """Send what the log has, to the far cluster if there is one; the number of records."""
        with SourcePlane(load_as(SourcePipeline, self.source)) as plane:
            sent = run_source(plane).records
        if self.far is not None:
            with MirrorPlane(load_as(MirrorPipeline, self.mirror)) as plane:
                assert run_mirror(plane).records == sent
        return sent

    def check(self, spark: SparkSession, wanted: Moment) -> None:
        """Both tables have the accounts row for row; that which keeps what was deleted has it marked."""
        support.attach(spark, self.lake, self.name)
        columns = "id, owner, balance, note, unix_micros(touched)"
        for table, where in ((ACCOUNTS, ""), (ALL_ACCOUNTS, " WHERE NOT _is_deleted")):
            found: list[Any] = spark.sql(f"SELECT {columns} FROM {self.name}.{table}{where}").collect()
            assert sorted(tuple(row) for row in found) == wanted.accounts, f"{table} after {wanted.sent:,} records"
