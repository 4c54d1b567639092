"""What a run of few records imports, and what a task has from the daemon: most of their time goes into imports."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.loop.writing import task_spec
from calve.spark_jobs.tasks import _outcome  # pyright: ignore[reportPrivateUsage]
from calve.spark_jobs.writing import write
from tests.pipelines import Flow
from tests.support import TopicFactory

NOT_NEEDED = {"pandas", "pyspark", "duckdb", "dagster", "jinja2", "numba", "fsspec"}
RUN = """
import sys
from calve.orchestration.cli.main import app

app(["run", sys.argv[1]], standalone_mode=False)
print(*sys.modules)
"""
WORKER = """
import pickle
import sys
import calve.spark_jobs.daemon

before = set(sys.modules)
pickle.load(open(sys.argv[1], "rb"))
print(set(sys.modules) - before, "pandas" in before, "sqlalchemy" in before)
"""


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


def printed(program: str, file: Path) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_run_of_few_records_of_json_imports_nothing_that_it_has_no_use_for(flow: Flow) -> None:
    flow.produce(range(50))
    *_, ended, imported = printed(RUN, flow.pipeline.path)
    assert ended == "caught up"
    assert flow.ids() == list(range(50))
    assert set(imported.split()) & NOT_NEEDED == set()


def test_a_worker_imports_nothing_that_the_daemon_has_not(flow: Flow, tmp_path: Path) -> None:
    task = partial(write, task_spec("b1", flow.pipeline, flow.loaded(), instant_ms=0), ())
    (tmp_path / "task").write_bytes(cloudpickle.dumps(partial(_outcome, task)))
    assert printed(WORKER, tmp_path / "task") == ["set() False False"]
