"""A SQL catalog on a PostgreSQL that wants a password: what pyiceberg and Spark's JDBC catalog both work with."""

from __future__ import annotations

import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.iceberg.catalog import sql
from calve.sink_core.libpq import LIBPQ
from calve.sink_core.sink.loop.coordinator import CommitReport
from calve.sink_core.sink.maintenance.tasks import run_task
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.procedures import SparkProcedures
from tests.launch import forked
from tests.pipelines import Flow
from tests.postgres import DATABASE, USER, postgres
from tests.support import TopicFactory

PASSWORD = "p@ss/w:rd"
IN_AN_ADDRESS = "p%40ss%2Fw%3Ard"
EVENTS, LATEST = "db.events", "db.latest"


AT_A_TIME = 3
MANY = tuple(f"db.t{number}" for number in range(6))


@contextmanager
def lake_properties() -> Generator[dict[str, str]]:
    with postgres(PASSWORD) as server:
        yield {"uri": f"postgresql+psycopg2://{USER}:{IN_AN_ADDRESS}@127.0.0.1:{server.port}/{DATABASE}"}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Generator[Flow]:
    columns = {"auto_create": {"columns": {"id": "long", "text": "string"}}}
    merged = {"name": LATEST, "mode": "upsert", "key": ["id"], "write_mode": "merge"}
    extra = {
        "tables": [{"name": EVENTS, **columns}, {**merged, **columns}],
        "maintenance": {"compact": {"lag": "0s", "min_files": 2}},
    }
    with lake_properties() as properties:
        yield Flow.create(
            tmp_path,
            broker.bootstrap,
            kafka_topic(1),
            lake_properties=properties,
            tables=(EVENTS, LATEST),
            extra=extra,
        )


@pytest.fixture
def many(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Generator[Flow]:
    """Each record goes into all tables, which are committed several at a time. Ids 0 to 4 are there."""
    with lake_properties() as properties:
        extra = {"commit": {"parallel_tables": AT_A_TIME}}
        found = Flow.create(
            tmp_path, broker.bootstrap, kafka_topic(1), lake_properties=properties, tables=MANY, extra=extra
        )
        found.produce(range(5))
        found.run()
        found.produce(range(5, 10))
        found.publish()
        yield found


def check_each_record_is_there_once(flow: Flow) -> None:
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def test_as_many_connections_commit_as_tables_are_done_at_a_time(many: Flow) -> None:
    """Beside them is the one that the pipeline was opened with."""
    engine = create_engine(many.lake_properties["uri"])
    with many.session() as session, engine.connect() as asking:
        session.bind()
        report = session.coordinator().commit()
        clients = asking.execute(text("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"))
        assert clients.scalar() == AT_A_TIME + 2
    engine.dispose()
    assert [commit.table for commit in report.landed] == sorted([*MANY, many.pipeline.ledger_table])
    check_each_record_is_there_once(many)


def test_a_row_that_somebody_has_locked_is_not_waited_for_for_ever(many: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "LOCK_TIMEOUT", "100ms")
    engine = create_engine(many.lake_properties["uri"])
    with engine.begin() as somebody:
        somebody.execute(text("SELECT * FROM iceberg_tables WHERE table_name = 't1' FOR UPDATE"))
        report = many.commit()
        assert {table: error.code for table, error in report.failed.items()} == {MANY[1]: Code.ROW_LOCKED}
    engine.dispose()
    assert many.commit().failed == {}
    check_each_record_is_there_once(many)


def test_a_connection_whose_other_end_is_gone_is_ended_within_a_minute(many: Flow) -> None:
    with many.session() as session:
        assert isinstance(session.catalog, SqlCatalog)
        with session.catalog.engine.connect() as connection:
            parameters = connection.connection.driver_connection.info.dsn_parameters  # pyright: ignore
    assert parameters.items() >= LIBPQ.items()


def test_two_coordinators_at_once_commit_each_table_once(many: Flow) -> None:
    with ThreadPoolExecutor(2) as both:
        reports: list[CommitReport] = [each.result() for each in [both.submit(many.commit) for _ in range(2)]]
    assert [report.failed for report in reports] == [{}, {}]
    landed = [commit.table for report in reports for commit in report.landed]
    assert sorted(landed) == sorted([*MANY, many.pipeline.ledger_table])
    check_each_record_is_there_once(many)


@pytest.mark.parametrize("place", ["commit.after-list@2", "commit.after-swap@3"])
def test_after_a_kill_amid_several_commits_the_rest_is_committed(many: Flow, place: str) -> None:
    name, _, visit = place.partition("@")
    killed = forked("commit", many.pipeline.path, **{VARIABLE: f"{name}=kill@{visit}"})
    assert killed.returncode == -signal.SIGKILL, killed
    assert not many.commit().failed
    check_each_record_is_there_once(many)


def test_spark_merges_and_compacts_where_pyiceberg_commits(
    flow: Flow, spark: SparkSession, engine: SparkEngine
) -> None:
    def by_spark(table: str) -> list[int]:
        """The pipeline's runs have made the catalog known to the session."""
        return sorted(row["id"] for row in spark.table(f"{flow.catalog}.{table}").collect())

    for first in (0, 5, 3):
        flow.produce(range(first, first + 5))
        assert flow.run(engine).commits[-1].failed == {}
    assert by_spark(LATEST) == list(range(10))
    with flow.session() as session:
        done = run_task("compact", session, SparkProcedures(lambda: spark, flow.pipeline.catalog))
        assert verify(session, deep=True).violations == ()
    assert done.failed == {}
    assert EVENTS in {outcome.subject for outcome in done.done if outcome.changed}
    assert by_spark(EVENTS) == sorted([*range(10), *range(3, 8)])
