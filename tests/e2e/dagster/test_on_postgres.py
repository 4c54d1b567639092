"""Operation at a distance: runs and events in a PostgreSQL, a code server of its own, which alone has the secrets."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import dagster as dg
import pytest

from calve.orchestration.dagster.common.names import ERROR_TAG, PIPELINE_TAG, WHY_TAG
from calve.orchestration.dagster.common.runs import IN_PROGRESS
from calve.orchestration.dagster.common.verdicts import FRESHNESS
from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.e2e.dagster.stack import Stack, on_postgres, stack, until
from tests.pipelines import Flow
from tests.postgres import postgres

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS
VARIABLE = "CALVE_TEST_LAKE"
TOO_LONG = "x" * 4000
"""More than PostgreSQL puts into an index, in which it has the tags of runs."""


@dataclass(frozen=True)
class Deployed:
    """`flow` reaches its catalog by a variable that only the code server has, `lost` none, and says so at length."""

    dagster: Stack
    flow: Flow
    lost: Flow


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Generator[Deployed]:
    directory = tmp_path_factory.mktemp("distant")

    def flow(namespace: str) -> Flow:
        topic, tables = support.create_topic(broker.bootstrap, support.unique(namespace), 2), (f"{namespace}.events",)
        made = Flow.create(directory, broker.bootstrap, topic, tables=tables, spark={"master": "local[1]"})
        made.produce(range(100))
        return made

    # Spark's workers open the catalog too: a Spark of the runs' own has what they have.
    found, lost = flow("found"), flow("lost")
    by_variable = found.but(lake_properties={"uri": f"${{ENV:{VARIABLE}}}"})
    nowhere = lost.but(
        lake_properties={"uri": f"postgresql+psycopg2://calve@127.0.0.1:1/{TOO_LONG}"},
        extra={"objectives": {"freshness": "10s"}},
    )
    secrets = {VARIABLE: support.catalog_properties(found.lake)["uri"]}
    files = [by_variable.pipeline.path, nowhere.pipeline.path]
    with (
        postgres() as server,
        stack(directory / "dagster", files, settings=on_postgres(server), secrets=secrets) as dagster,
    ):
        dagster.code_server()
        dagster.daemon()
        yield Deployed(dagster, found, nowhere)


def test_records_arrive_and_the_daemon_never_had_the_secret(deployed: Deployed) -> None:
    dagster, flow = deployed.dagster, deployed.flow
    until(lambda: dagster.runs(flow.name, statuses=[SUCCESS]), timeout_s=180, why=dagster.logs)
    assert flow.ids() == list(range(100))
    assert dagster.runs(flow.name)[0].dagster_run.tags["calve/moved"].split()[0] == "100"
    assert not list(dagster.home.rglob("*.db")), "all of it is in PostgreSQL"


def test_a_reason_that_is_too_long_for_an_index_is_in_the_tags_all_the_same(deployed: Deployed) -> None:
    dagster, flow = deployed.dagster, deployed.lost
    failed = until(lambda: dagster.runs(flow.name, statuses=[FAILURE]), timeout_s=180, why=dagster.logs)
    tags = failed[0].dagster_run.tags
    assert tags[ERROR_TAG] == "Unreachable"
    assert "127.0.0.1" in tags[WHY_TAG]
    until(lambda: dagster.red((dg.AssetKey(["lost", "events"]), FRESHNESS)), timeout_s=60, why=dagster.logs)


def test_daemon_and_code_server_may_die_at_any_time(deployed: Deployed) -> None:
    dagster, flow = deployed.dagster, deployed.flow
    dagster.kill("daemon")
    dagster.kill("code-server")
    flow.produce(range(100, 150), partition=1)
    dagster.code_server()
    dagster.daemon()
    until(lambda: len(flow.ids()) >= 150, timeout_s=180, why=dagster.logs)
    assert flow.ids() == list(range(150))
    open_runs = dg.RunsFilter(statuses=IN_PROGRESS, tags={PIPELINE_TAG: flow.name})
    until(lambda: not dagster.instance.get_runs(open_runs), timeout_s=120, why=dagster.logs)
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()
