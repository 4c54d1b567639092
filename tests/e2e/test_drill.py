"""`calve drill` on a set-up of the test's own: real kills, and nothing left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from calve.orchestration.drill import CRASH_POINTS, PREFIX
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.locks import exclusive
from tests.codes import says
from tests.failpoints import FAILPOINTS
from tests.pipelines import Flow
from tests.support import TIMEOUT_S, TopicFactory
from tests.warm_spark import WarmSpark

ENDS_S = 600.0


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """No other drill is on the broker that workers share: what is left of this one shows by the prefix of its names."""
    with exclusive(tmp_path_factory.getbasetemp().parent / "drill.lock"):
        yield


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, warm_spark: WarmSpark) -> Flow:
    """A pipeline that has run."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), spark=warm_spark.settings)
    flow.produce(range(10))
    flow.run()
    return flow


def drill(flow: Flow, *options: str) -> subprocess.Popen[str]:
    """In a process group of its own, as from a shell."""
    command = [str(Path(sys.executable).with_name("calve")), "drill", str(flow.pipeline.path), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def made(flow: Flow) -> set[str]:
    """Names of topics, groups, tables and files of drills that are there."""
    topics = flow.admin.list_topics(timeout=TIMEOUT_S).topics
    groups = flow.admin.list_consumer_groups().result(TIMEOUT_S).valid
    with flow.iceberg() as catalog:
        tables = [table[-1] for space in catalog.list_namespaces() for table in catalog.list_tables(space)]
    names = [*topics, *(group.group_id for group in groups or ()), *tables, *map(str, flow.lake.rglob("*"))]
    return {name for name in names if PREFIX in name}


def test_a_run_killed_at_a_crash_point_loses_nothing_and_nothing_is_left_of_the_drill(flow: Flow) -> None:
    before, points = flow.load_table().metadata_location, ["publish.after-events", "commit.after-swap"]
    done = drill(flow, "--records", "300", *(word for point in points for word in ("--only", point)), "--json")
    stdout, stderr = done.communicate(timeout=ENDS_S)
    assert done.returncode == 0, f"{stdout}{stderr}"
    report = json.loads(stdout)
    assert [(r["crash_point"], r["killed"], r["lost"], r["twice"], r["trouble"]) for r in report["rounds"]] == [
        (point, True, 0, 0, "") for point in points
    ]
    assert (report["well"], report["not_removed"]) == (True, [])
    assert made(flow) == set()
    assert flow.load_table().metadata_location == before, "the pipeline of the file is not touched"


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda drill: os.killpg(drill, signal.SIGINT), id="Ctrl-C"),
        pytest.param(lambda drill: os.kill(drill, signal.SIGTERM), id="SIGTERM", marks=pytest.mark.faults),
    ],
)
def test_a_drill_that_is_ended_leaves_nothing(flow: Flow, end: Callable[[int], None]) -> None:
    started, deadline = drill(flow), time.monotonic() + ENDS_S
    while not any("_ledger" in name for name in made(flow)):
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    end(started.pid)
    stdout, stderr = started.communicate(timeout=ENDS_S)
    assert started.returncode == 130, f"{stdout}{stderr}"
    assert made(flow) == set()


def test_a_crash_point_that_no_run_passes_is_refused(flow: Flow) -> None:
    done = drill(flow, "--only", "trim.before-delete")
    _, stderr = done.communicate(timeout=ENDS_S)
    assert done.returncode == 2
    says(stderr, Code.NO_SUCH_NAME, "trim.before-delete", *CRASH_POINTS)
    assert made(flow) == set()


def test_a_drill_knows_every_crash_point_of_a_run() -> None:
    steps = ("bind.", "plan.", "write.", "publish.", "commit.")
    assert sorted(CRASH_POINTS) == [name for name in FAILPOINTS if name.startswith(steps)]
