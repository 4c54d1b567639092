"""The bank of `examples/postgres_to_iceberg` for minutes, while runs of both pipelines are killed at any moment."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from tests.bank import EXAMPLE, Bank
from tests.e2e.faults.kills import RUN_S, done
from tests.e2e.faults.processes import Launcher
from tests.postgres import postgres
from tests.warm_spark import WarmSpark

MOMENTS, KILLS = 10, 2
"""Moments at which all is compared, and kills before each."""


@pytest.fixture
def bank(broker: Broker, warm_spark: WarmSpark, tmp_path: Path) -> Generator[Bank]:
    with postgres() as server:
        yield Bank.create(server, broker.bootstrap, tmp_path, {**warm_spark.settings, "tasks": 2})


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_whatever_is_killed_the_tables_are_the_database_at_ten_moments(
    bank: Bank, launcher: Launcher, spark: SparkSession
) -> None:
    chance, killed = random.Random(8), 0
    bank.send()
    with bank.server.load(EXAMPLE / "changes.sql", per_second=100):
        for _ in range(MOMENTS):
            for _ in range(KILLS):
                for _ in range(chance.randint(0, 2)):
                    source = launcher.warm(["run", str(bank.source)])
                    source.listen(chance.uniform(0.3, 2.5))
                    source.kill(group=True)
                    killed += source.finish(RUN_S) < 0
                run = launcher.warm(["run", str(bank.file)])
                run.listen(chance.uniform(0.5, 8))
                run.kill(group=True)
                killed += run.finish(RUN_S) < 0
            moment = bank.moment()
            done(launcher.warm, ["run", str(bank.file)])
            bank.check(spark, moment)
    assert killed
    done(launcher.warm, ["verify", str(bank.file), "--deep"])
