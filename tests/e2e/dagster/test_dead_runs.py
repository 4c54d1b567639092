"""Runs that die with their code server, as when a machine restarts: the next go on, and nobody helps.

The server's whole tree is killed while a run is in the middle of a batch, and started again at once; a worker stands
still, is replaced, and wakes up; and a server is told to end, as by a deploy.
"""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta

import dagster as dg
import psutil
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemotePartitionSetOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.test_utils import create_run_for_test

from calve.orchestration.dagster.common.names import ERROR_TAG, WHY_TAG, job_name, run_tags
from calve.orchestration.dagster.sink.names import INGEST, REPLAY_HOURS
from tests.e2e.dagster.conftest import Deployment
from tests.e2e.dagster.stack import Stack, until
from tests.gate import only

FAILURE, STARTED, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.SUCCESS
POINTS = ("write.after-files", "commit.after-swap")


def stopped_in_a_batch(deployment: Deployment, dagster: Stack, point: str) -> tuple[dg.DagsterRun, psutil.Process]:
    """The run in progress, and its process, which stands still at the point with all of its threads."""
    pid_file = dagster.directory / "stopped"
    pid_file.unlink(missing_ok=True)
    deployment.flag.write_text(f"{point}=stop:{pid_file}")
    deployment.produce()
    until(lambda: pid_file.exists() and pid_file.read_text(), timeout_s=180, why=dagster.logs)
    deployment.flag.unlink()
    (record,) = dagster.runs(deployment.of.healthy.name, statuses=[STARTED])
    return record.dagster_run, psutil.Process(int(pid_file.read_text()))


@pytest.mark.parametrize("point", only(["write.after-files"], of=POINTS))
def test_a_run_that_died_with_its_code_server_is_replaced(deployment: Deployment, dagster: Stack, point: str) -> None:
    run, _process = stopped_in_a_batch(deployment, dagster, point)
    dagster.kill("code-server")
    dagster.code_server()
    deployment.check_all_arrive_once_and_no_run_is_open()
    dead = dagster.instance.get_run_by_id(run.run_id)
    assert dead is not None
    assert (dead.status, dead.tags[ERROR_TAG]) == (FAILURE, "RetriableError")
    assert dead.run_id[:8] in dead.tags[WHY_TAG]


def test_daemon_and_code_server_may_die_at_any_time(deployment: Deployment, dagster: Stack) -> None:
    dagster.kill("daemon")
    dagster.kill("code-server")
    deployment.produce(50, partition=1)
    dagster.code_server()
    dagster.daemon()
    deployment.check_all_arrive_once_and_no_run_is_open()


@pytest.mark.faults
def test_a_worker_that_wakes_up_when_its_run_was_replaced_ends(deployment: Deployment, dagster: Stack) -> None:
    run, process = stopped_in_a_batch(deployment, dagster, "publish.after-offsets")
    until(lambda: _status(dagster, run) == FAILURE, timeout_s=180, why=dagster.logs)
    until(deployment.arrived, timeout_s=240, why=dagster.logs)
    process.send_signal(signal.SIGCONT)
    process.wait(120)
    deployment.check_all_arrive_once_and_no_run_is_open()


@pytest.mark.faults
def test_a_deploy_ends_runs_as_cancelled_and_the_next_one_goes_on(deployment: Deployment, dagster: Stack) -> None:
    run, process = stopped_in_a_batch(deployment, dagster, "write.after-files")
    server = dagster.processes.pop("code-server")
    # As systemd does it, and tini with -g: all processes of the service are told.
    for each in [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]:
        each.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    server.wait(120)
    assert not process.is_running()
    cancelled = dagster.instance.get_run_by_id(run.run_id)
    assert cancelled is not None
    assert cancelled.status == dg.DagsterRunStatus.CANCELED
    assert cancelled.tags[WHY_TAG]
    dagster.code_server()
    deployment.check_all_arrive_once_and_no_run_is_open()


@pytest.mark.faults
def test_a_backfill_goes_on_whose_run_died_with_its_code_server(deployment: Deployment, dagster: Stack) -> None:
    flow, (job, stage) = deployment.of.healthy, (job_name(deployment.of.healthy.pipeline, REPLAY_HOURS), REPLAY_HOURS)
    began = datetime.fromtimestamp(dagster.runs(flow.name)[-1].create_timestamp.timestamp(), UTC)
    hours = [f"{began + timedelta(hours=after):%Y-%m-%d-%H:00}" for after in (-1, 0)]
    pid_file = dagster.directory / "stopped-backfill"
    deployment.flag.write_text(f"range.after-files=stop:{pid_file}")
    origin = RemotePartitionSetOrigin(
        repository_origin=repository_of(dagster, "test"), partition_set_name=f"{job}_partition_set"
    )
    dagster.instance.add_backfill(
        PartitionBackfill(
            "hours",
            BulkActionStatus.REQUESTED,
            from_failure=False,
            tags={},
            backfill_timestamp=time.time(),
            partition_set_origin=origin,
            partition_names=hours,
        )
    )
    until(lambda: pid_file.exists() and pid_file.read_text(), timeout_s=240, why=dagster.logs)
    deployment.flag.unlink()
    dagster.kill("code-server")
    dagster.code_server()
    until(
        lambda: (
            {
                record.dagster_run.tags["dagster/partition"]
                for record in dagster.runs(flow.name, stage=stage, statuses=[SUCCESS])
            }
            == set(hours)
        ),
        timeout_s=240,
        why=dagster.logs,
    )
    assert dagster.runs(flow.name, stage=stage, statuses=[FAILURE])
    deployment.check_all_arrive_once_and_no_run_is_open()


@pytest.mark.parametrize("gone", only(["location"], of=["location", "job"]))
def test_a_run_in_the_queue_whose_code_is_gone_ends(deployment: Deployment, dagster: Stack, gone: str) -> None:
    """By Dagster, when its turn comes; it would hold up the sensor's next runs."""
    flow = deployment.of.healthy
    job = "gone" if gone == "job" else job_name(flow.pipeline, INGEST)
    origin = RemoteJobOrigin(repository_of(dagster, "gone" if gone == "location" else "test"), job)
    run = create_run_for_test(
        dagster.instance,
        origin.job_name,
        status=dg.DagsterRunStatus.QUEUED,
        tags=run_tags(flow.pipeline, INGEST),
        remote_job_origin=origin,
    )
    until(lambda: _status(dagster, run) == FAILURE, timeout_s=120, why=dagster.logs)
    deployment.produce()
    deployment.check_all_arrive_once_and_no_run_is_open()


def repository_of(dagster: Stack, location: str) -> RemoteRepositoryOrigin:
    server = GrpcServerCodeLocationOrigin(host="127.0.0.1", port=dagster.code_port, location_name=location)
    return RemoteRepositoryOrigin(server, "__repository__")


def _status(dagster: Stack, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    again = dagster.instance.get_run_by_id(run.run_id)
    assert again is not None
    return again.status
