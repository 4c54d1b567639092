"""The same pipeline, run where tasks are processes of other parents: on a standalone cluster of two workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from tests.pipelines import Flow
from tests.standalone import SETTINGS, standalone
from tests.support import TopicFactory


@pytest.mark.faults
def test_a_cluster_of_two_workers_gives_the_same_result(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    # So few records would not be worth a cluster.
    extra = {"batch": {"min_task_bytes": "1KiB", "spark_from_records": 0}}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra=extra)
    for partition in (0, 1):
        flow.produce(range(partition * 1000, partition * 1000 + 1000), partition=partition)
    with standalone(tmp_path / "cluster", 2) as cluster:
        flow = flow.but(spark={"master": cluster.master, "conf": {**SETTINGS, "spark.executor.memory": "512m"}})
        calve_run(flow)
        assert all(list(folder.glob("app-*/*/stderr")) for folder in cluster.folders)
    assert flow.ids() == list(range(2000))
    # Two tasks wrote: the number in a file's name is its task's.
    tasks = {path.name.split("-")[-6] for path in flow.lake.rglob("calve-*.parquet") if "events" in str(path)}
    assert tasks == {"0", "1"}


def calve_run(flow: Flow) -> None:
    """As a user runs it, in a process of its own: this one may have a Spark session already."""
    command = [str(Path(sys.executable).with_name("calve")), "run", str(flow.pipeline.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended"] == "caught up"
