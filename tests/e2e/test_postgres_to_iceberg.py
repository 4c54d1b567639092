"""The bank of `examples/postgres_to_iceberg` with a mirror in between: a PostgreSQL that changes, topics, their copies
in another cluster, and tables equal to it row for row.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.load import load
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.bank import EXAMPLE, Bank
from tests.postgres import postgres

MOMENTS = 3
"""`make faults` looks at more, without a mirror, and kills (tests/e2e/faults/test_postgres_to_iceberg.py)."""


def test_the_tables_are_the_database_at_every_moment_looked_at(
    tmp_path: Path, broker: Broker, other_broker: Broker, spark: SparkSession
) -> None:
    here, changes = SparkSettings(master="local[2]", tasks=2), 0
    with postgres() as server:
        bank = Bank.create(server, broker.bootstrap, tmp_path, {"master": "local[2]"}, far=other_broker.bootstrap)
        assert bank.send() == len(bank.moment().accounts)
        with SparkEngine(here) as engine, Session.open(load(bank.file), engine=engine) as session:
            with server.load(EXAMPLE / "changes.sql", per_second=100):
                for _ in range(MOMENTS):
                    moment = bank.moment()
                    changes += moment.sent
                    run_pipeline(session)
                    bank.check(spark, moment)
            assert changes
            assert verify(session, deep=True).violations == ()
