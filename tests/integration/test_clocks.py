"""Commits of processes that slept and of hosts whose clocks differ leave a table that Java's readers load."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyiceberg.table.update
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.iceberg.commit.staging import staging_of
from tests.pipelines import Flow, reached
from tests.rest_catalog import RestCatalog
from tests.support import TopicFactory

AHEAD_S = 66


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


class Ahead(datetime):
    """The clock of a host that is ahead, or of this one after our process slept."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        del tz
        return datetime.now(UTC) + timedelta(seconds=AHEAD_S)


def change_ahead(flow: Flow) -> None:
    """Somebody changes a property of the table, by that clock; head and tag stay."""
    with pytest.MonkeyPatch.context() as patch, flow.load_table().transaction() as change:
        patch.setattr(pyiceberg.table.update, "datetime", Ahead)
        change.set_properties({"changed.by": "somebody"})


def commit_that_slept(flow: Flow, *, beside: Flow) -> None:
    """Ten ids, the last five by a commit that is built before somebody changes the table by way of `beside`."""
    flow.produce(range(5))
    flow.run()
    flow.produce(range(5, 10))
    flow.publish()
    with flow.session() as session, reached("commit.after-list", lambda: change_ahead(beside)):
        session.bind()
        commit = session.committer().commit(flow.table)
    assert commit is not None
    assert (commit.landed, commit.conflicts) == (True, 1)


def check(flow: Flow, spark: SparkSession) -> None:
    metadata = flow.load_table().metadata
    assert metadata.properties["changed.by"] == "somebody"
    assert metadata.last_updated_ms >= max(entry.timestamp_ms for entry in metadata.metadata_log)
    assert flow.ids() == flow.spark_ids(spark) == list(range(10))


def test_a_commit_that_slept_while_the_table_was_changed_is_built_anew(flow: Flow, spark: SparkSession) -> None:
    commit_that_slept(flow, beside=flow)
    check(flow, spark)


def test_a_rest_catalog_has_a_commit_that_slept_built_anew(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, rest_catalog: RestCatalog
) -> None:
    """Its protocol has no requirement on time: the server looks at the times of snapshots by itself."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    # The server keeps its tables in a database that a SQL catalog reads as well.
    shared = {"tables": (f"{flow.name}.events",), "lake": rest_catalog.directory, "catalog_name": rest_catalog.name}
    beside = flow.but(**shared)
    flow = flow.but(**shared, lake_properties={"type": "rest", "uri": f"http://127.0.0.1:{rest_catalog.port}"})
    commit_that_slept(flow, beside=beside)
    metadata = flow.load_table().metadata
    assert metadata.properties["changed.by"] == "somebody"
    assert metadata.last_updated_ms >= max(entry.timestamp_ms for entry in metadata.metadata_log)
    assert flow.ids() == list(range(10))


def test_a_commit_of_a_host_that_is_behind_is_of_the_time_of_the_last_change(flow: Flow, spark: SparkSession) -> None:
    flow.produce(range(5))
    flow.run()
    change_ahead(flow)
    flow.produce(range(5, 10))
    flow.run()
    check(flow, spark)


def test_a_branch_for_a_first_merge_is_not_made_once_the_table_was_changed_later(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        session.create_missing([flow.table])
    table = flow.load_table()
    call = staging_of(table, flow.pipeline.tag).call
    change_ahead(flow)
    with pytest.raises(CommitFailedException, match="the table was changed at"):
        table.catalog.commit_table(table, call.requirements, call.updates)
