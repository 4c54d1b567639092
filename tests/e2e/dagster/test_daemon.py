"""Sensor, runs and commits with a real daemon; runs that die or fail: nothing is lost or twice, nothing stays stuck."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Generator
from pathlib import Path

import dagster as dg
import pytest

from calve.orchestration.dagster.common.names import ERROR_TAG, pool
from calve.orchestration.dagster.common.verdicts import FRESHNESS, LAG
from calve.orchestration.dagster.sink.names import COMMIT, INGEST, batches_key
from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.e2e.dagster.stack import BIN, DYING, Stack, stack, until
from tests.gate import only
from tests.pipelines import Flow
from tests.warm_spark import WarmSpark

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS
POINTS = ("write.after-files", "commit.after-swap")
"""Before a batch is published, and after it; tests/e2e/faults kills everywhere, without Dagster."""

BATCH = 100


class Deployment:
    """A healthy pipeline whose runs are killed, one that never reaches its catalog, one that stops on a bad record."""

    def __init__(self, directory: Path, broker: Broker, warm_spark: WarmSpark) -> None:
        def flow(namespace: str, **options: object) -> Flow:
            topic = support.create_topic(broker.bootstrap, support.unique("topic"), 2, None)
            tables, spark = (f"{namespace}.events",), warm_spark.settings
            return Flow.create(directory, broker.bootstrap, topic, tables=tables, spark=spark, **options)

        self.directory = directory / "dagster"
        self.healthy = flow("healthy", extra={"trigger": {"every": "1s"}})
        self.unreachable = flow("unreachable", lake_properties={"uri": "postgresql+psycopg2://calve@127.0.0.1:1/lake"})
        self.stopped = flow("stopped", extra={"on_bad_record": "stop", "objectives": {"lag": 10, "freshness": "10s"}})
        self.flows = (self.healthy, self.unreachable, self.stopped)
        support.produce(broker.bootstrap, self.stopped.topic, [b"no JSON"])
        for each in self.flows:
            each.produce(range(BATCH))
        self.expected = BATCH

    def ids_arrived(self) -> bool:
        return len(self.healthy.ids()) >= self.expected


@pytest.fixture(scope="module")
def deployment(broker: Broker, warm_spark: WarmSpark, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return Deployment(tmp_path_factory.mktemp("killed"), broker, warm_spark)


@pytest.fixture(scope="module")
def dagster(deployment: Deployment) -> Generator[Stack]:
    # The other two pipelines' runs never get as far as the failpoint.
    files = [flow.pipeline.path for flow in deployment.flows]
    with stack(deployment.directory, files, definitions=DYING) as running:
        running.daemon()
        until(lambda: running.runs(deployment.healthy.name, statuses=[SUCCESS]), timeout_s=180, why=running.logs)
        yield running


def test_records_arrive_in_the_table_without_anybody_doing_anything(deployment: Deployment, dagster: Stack) -> None:
    flow = deployment.healthy
    assert flow.ids() == list(range(BATCH))
    until(lambda: "caught up" in dagster.last_skip(f"{flow.name}_lag"), timeout_s=90, why=dagster.logs)
    run = dagster.runs(flow.name)[0].dagster_run
    assert run.tags["calve/moved"].split()[0] == str(BATCH)
    assert run.tags["calve/reason"].startswith("first run")

    flow.produce(range(BATCH, BATCH + 50), partition=1)
    deployment.expected += 50
    until(deployment.ids_arrived, timeout_s=90, why=dagster.logs)
    assert flow.ids() == list(range(BATCH + 50))
    until(lambda: dagster.runs(flow.name)[0].dagster_run.status == SUCCESS, timeout_s=90, why=dagster.logs)


@pytest.mark.parametrize("point", only(["commit.after-swap"], of=POINTS))
def test_the_next_run_carries_on_where_one_was_killed(deployment: Deployment, dagster: Stack, point: str) -> None:
    flow, flag = deployment.healthy, deployment.directory / "failpoint"
    failed_before = len(dagster.runs(flow.name, statuses=[FAILURE]))
    flag.write_text(f"{point}=kill")
    flow.produce(range(deployment.expected, deployment.expected + BATCH))
    deployment.expected += BATCH

    until(lambda: len(dagster.runs(flow.name, statuses=[FAILURE])) > failed_before, timeout_s=120, why=dagster.logs)
    flag.unlink()
    killed = dagster.runs(flow.name, statuses=[FAILURE])[0].dagster_run
    assert ERROR_TAG not in killed.tags, "died by itself instead of being killed"
    until(deployment.ids_arrived, timeout_s=180, why=dagster.logs)
    assert flow.ids() == list(range(deployment.expected))
    until(lambda: dagster.runs(flow.name)[0].dagster_run.status == SUCCESS, timeout_s=120, why=dagster.logs)
    for stage in (INGEST, COMMIT):
        storage = dagster.instance.event_log_storage
        assert storage.get_concurrency_info(pool(flow.pipeline, stage)).active_slot_count == 0
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.proven, report.violations


@pytest.mark.faults
def test_a_pipeline_that_always_fails_backs_off_and_says_why(deployment: Deployment, dagster: Stack) -> None:
    """Ten minutes are simulated in tests/unit/orchestration/dagster/common/test_trigger.py; this is the real daemon."""
    flow = deployment.unreachable
    until(lambda: len(dagster.runs(flow.name, statuses=[FAILURE])) >= 2, timeout_s=180, why=dagster.logs)
    records = sorted(dagster.runs(flow.name), key=lambda record: record.create_timestamp)
    began = [record.create_timestamp.timestamp() for record in records]
    assert len(records) <= 5
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(began))
    assert records[0].dagster_run.tags[ERROR_TAG] == "Unreachable"
    # Between two runs: while one is in progress it says that.
    until(lambda: "127.0.0.1" in dagster.last_skip(f"{flow.name}_lag"), timeout_s=60, why=dagster.logs)


def test_a_terminal_error_stops_until_it_is_answered_and_the_objectives_are_judged_meanwhile(
    deployment: Deployment, dagster: Stack
) -> None:
    flow = deployment.stopped
    until(lambda: dagster.runs(flow.name, statuses=[FAILURE]), timeout_s=120, why=dagster.logs)
    resume = f"calve resume {flow.pipeline.path}"
    until(lambda: resume in dagster.last_skip(f"{flow.name}_lag"), timeout_s=120, why=dagster.logs)
    assert len(dagster.runs(flow.name)) == 1
    # None of its runs gets as far as its checks.
    objectives = [(batches_key(flow.pipeline), LAG), (dg.AssetKey(["stopped", "events"]), FRESHNESS)]
    until(lambda: dagster.red(*objectives), timeout_s=60, why=dagster.logs)
    assert "on_bad_record" in dagster.last_skip(f"{flow.name}_lag"), "the setting of its hint"
    subprocess.run([BIN / "calve", "resume", flow.pipeline.path], check=True, capture_output=True)
    until(lambda: len(dagster.runs(flow.name)) == 2, timeout_s=60, why=dagster.logs)
