"""Sensor, runs and commits with a real daemon, broker and Spark."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from orchestration.broker import Broker
from tests.e2e.dagster.stack import stack, until
from tests.pipelines import Flow
from tests.support import TopicFactory
from tests.warm_spark import WarmSpark


def test_records_arrive_in_the_table_without_anybody_doing_anything(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, warm_spark: WarmSpark
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), spark=warm_spark.settings)
    flow.produce(range(100))
    with stack(tmp_path / "dagster", [flow.pipeline.path]) as dagster:
        dagster.daemon()
        until(
            lambda: dagster.runs(flow.name, statuses=[dg.DagsterRunStatus.SUCCESS]),
            timeout_s=90,
            why=dagster.logs,
        )
        assert flow.ids() == list(range(100))
        until(lambda: "caught up" in dagster.last_skip(f"{flow.name}_lag"), timeout_s=90, why=dagster.logs)
        run = dagster.runs(flow.name)[0].dagster_run
        assert run.tags["calve/moved"] == "100 records in 1 batch"
        assert run.tags["calve/reason"] == "first run: the start positions are not in place yet"

        flow.produce(range(100, 150), partition=1)
        until(lambda: len(flow.ids()) == 150, timeout_s=90, why=dagster.logs)
        assert sorted(flow.ids()) == list(range(150))
