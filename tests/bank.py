"""The bank of `examples/postgres_cdc`, at moments when nobody changes it: what PostgreSQL has, and what tables have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from examples.postgres_cdc.relay import Relay, at_rest
from tests import support
from tests.postgres import Postgres

EXAMPLE = Path(__file__).parents[1] / "examples/postgres_cdc"
ACCOUNTS, ALL_ACCOUNTS = "bank.accounts", "bank.all_accounts"

Account = tuple[int, str, Decimal, str | None, int]
"""id, owner, balance, note, touched in microseconds."""


@dataclass(frozen=True)
class Moment:
    """All rows of a database when every change before `lsn` was committed, and none after it begun."""

    lsn: int
    accounts: list[Account]


@dataclass(frozen=True)
class Bank:
    """A database, and the example's pipeline under a name of its own: `name` is that of its catalog and topics too."""

    server: Postgres
    bootstrap: str
    directory: Path
    name: str

    @classmethod
    def create(cls, server: Postgres, bootstrap: str, directory: Path, spark: Mapping[str, Any]) -> Bank:
        """With the example's tables in the database, and its files in the directory."""
        bank = cls(server, bootstrap, directory, support.unique("bank").replace("-", "_"))
        server.psql(EXAMPLE / "schema.sql")
        connections = {
            "deployment": bank.name,
            "kafka": {"main": {"bootstrap.servers": bootstrap}},
            "catalog": {bank.name: {"type": "sql", **support.catalog_properties(bank.lake)}},
            "spark": {"small": dict(spark)},
        }
        (directory / "connections.yaml").write_text(json.dumps(connections))
        text = (EXAMPLE / "pipeline.yaml").read_text()
        ours = text.replace("[pg.public.", f"[{bank.name}.public.").replace("catalog: lake", f"catalog: {bank.name}")
        bank.file.write_text(ours)
        return bank

    @property
    def file(self) -> Path:
        return self.directory / "pipeline.yaml"

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    def relay(self) -> Relay:
        return Relay(self.server.dsn, self.bootstrap, prefix=self.name)

    def now(self) -> Moment:
        with at_rest(self.server.dsn) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            (lsn,) = cursor.fetchone()
            micros = "(extract(epoch FROM touched) * 1000000)::bigint"
            cursor.execute(f"SELECT id, owner, balance, note, {micros} FROM accounts")
            return Moment(int(lsn), sorted(cursor.fetchall()))

    def forward(self, moment: Moment) -> int:
        """By a new relay: all changes up to then are in Kafka when this returns. Returns the number of events."""
        total = 0
        with closing(self.relay()) as relay:
            while sent := relay.forward(moment.lsn):
                total += sent
        return total

    def check(self, spark: SparkSession, wanted: Moment) -> None:
        """Both tables have the accounts row for row; that which keeps what was deleted has it marked."""
        support.attach(spark, self.lake, self.name)
        columns = "id, owner, balance, note, unix_micros(touched)"
        for table, where in ((ACCOUNTS, ""), (ALL_ACCOUNTS, " WHERE NOT _is_deleted")):
            found: list[Any] = spark.sql(f"SELECT {columns} FROM {self.name}.{table}{where}").collect()
            assert sorted(tuple(row) for row in found) == wanted.accounts, f"{table} at {wanted.lsn:X}"
