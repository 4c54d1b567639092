"""What a table's page in Dagster shows of it: whence its columns come, and rows if somebody wants them shown."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from calve.orchestration.dagster.common.topics import topic_key
from calve.orchestration.dagster.sink.table_page import of_table
from calve.orchestration.local.broker import Broker
from calve.sink_core.config.references import HIDDEN
from tests import support
from tests.dagster_runs import run
from tests.pipelines import Flow
from tests.support import TopicFactory

VALUE = {"text": 99 * "x", "api_token": "s3cr3t"}
COLUMNS = {"auto_create": {"columns": {"id": "long", "text": "string", "api_token": "string"}}}


@pytest.fixture
def instance() -> Generator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    topics = kafka_topic(1), kafka_topic(1)
    sql = {"name": "db.sql", "transform": {"select": "id, text"}}
    one = {"name": "db.one", "topics": [topics[0]]}
    tables = [{**table, **COLUMNS} for table in ({"name": "db.all"}, one, sql)]
    extra = {"tables": tables, "dagster": {"sample_rows": 2}}
    names = ("db.all", "db.one", "db.sql")
    flow = Flow.create(tmp_path, broker.bootstrap, *topics, tables=names, extra=extra, spark={"master": "local[1]"})
    for topic in topics:
        support.produce(flow.bootstrap, topic, [json.dumps(VALUE | {"id": i}).encode() for i in range(5)])
    flow.run()
    return flow


def test_columns_come_from_the_fields_of_the_topics_that_feed_the_table(flow: Flow) -> None:
    first, second = (topic_key(flow.pipeline, flow.pipeline.config.source, topic) for topic in flow.topics)
    with flow.session() as session:
        pages = {name: of_table(flow.pipeline, session, name) for name in (*flow.tables, "db.dropped")}
    found = {name: page.get("dagster/column_lineage") for name, page in pages.items()}
    assert set(found["db.all"].deps_by_column["id"]) == {dg.TableColumnDep(key, "id") for key in (first, second)}
    assert found["db.one"].deps_by_column["id"] == [dg.TableColumnDep(first, "id")]
    assert found["db.one"].deps_by_column.keys() == {"id", "text", "api_token"}
    assert found["db.sql"] is None
    assert pages["db.dropped"] == {}


def test_rows_are_shown_if_wanted_without_what_is_named_like_a_secret(flow: Flow, instance: DagsterInstance) -> None:
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 9}'])
    done = run(flow, instance)
    [told] = done.table("db.one")
    rows = [record.data for record in told["sample rows"].records]
    assert len(rows) == 2
    assert {row["api_token"] for row in rows} == {HIDDEN}
    assert all(len(row["text"]) <= 80 for row in rows)
    quiet = flow.but(extra={"tables": flow.extra["tables"]})
    with quiet.session() as session:
        assert "sample rows" not in of_table(quiet.pipeline, session, "db.one")
