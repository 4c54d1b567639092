"""Dates and times before the year 1 and after 9999: one such stops nothing, and no reader of a table meets it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.dagster.sink import verdicts
from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.pipelines import Flow
from tests.support import TopicFactory

MICROSECONDS = 1_732_500_000_000_000
"""Where Kafka has milliseconds: a producer's mistake."""

LAST_MS = 253_402_300_799_999
COLUMNS = {"id": "long", "day": "date", "at": "timestamptz", "seen": "list<struct<on: date>>"}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    topic = kafka_topic(1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    return Flow.create(tmp_path, broker.bootstrap, topic)


def test_a_record_s_own_timestamp_is_null_where_no_reader_could_show_it(flow: Flow, spark: SparkSession) -> None:
    stamps = [1_700_000_000_000, MICROSECONDS, LAST_MS, LAST_MS + 1]
    values = [json.dumps({"id": n, "text": "x"}) for n in range(4)]
    support.produce(flow.bootstrap, flow.topic, values, timestamps=stamps)
    [batch] = flow.run().batches
    assert batch.dropped == {flow.table: {"_kafka.timestamp": 2}}
    found = {row["id"]: row["_kafka"]["timestamp"] for row in flow.rows()}
    first, last = datetime.fromtimestamp(1_700_000_000, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    assert found == {0: first, 1: None, 2: last, 3: None}
    assert flow.spark_ids(spark) == [0, 1, 2, 3]
    with flow.session() as session:
        report = verify(session, deep=True)
        [table] = [each for each in status(session).tables if each.table == flow.table]
    assert report.proven
    assert verdicts.dropped_fields(table).details == {"dropped": {"_kafka.timestamp": 2}}
    support.produce(flow.bootstrap, flow.topic, [json.dumps({"id": 4})], timestamps=[MICROSECONDS])
    [batch] = flow.but(extra={"table_defaults": {"ignore_fields": ["_kafka.timestamp"]}}).run().batches
    assert batch.dropped == {}


BAD_IN_JSON = [
    ({"day": "0000-01-01"}, "day", "0000-01-01"),
    ({"at": "0000-12-31T23:59:59Z"}, "at", "0000-12-31T23:59:59"),
    ({"seen": [{"on": "0000-02-01"}]}, "seen.element.on", "0000-02-01"),
]
"""With the field and the value that the dead letter names."""


def test_a_value_off_the_calendar_is_a_dead_letter_that_names_it_and_spoils_no_neighbour(
    flow: Flow, spark: SparkSession
) -> None:
    flow = flow.but(auto_create={"columns": COLUMNS})
    good = {"day": "0001-01-01", "at": "9999-12-31T23:59:59.999999Z", "seen": [{"on": "9999-12-31"}]}
    bad = [value for value, _, _ in BAD_IN_JSON]
    values = [json.dumps({"id": n, **value}) for n, value in enumerate([good, *bad, good])]
    support.produce(flow.bootstrap, flow.topic, values)
    flow.run()
    assert [(row["id"], row["day"]) for row in flow.rows()] == [(0, date(1, 1, 1)), (4, date(1, 1, 1))]
    letters = flow.rows(flow.pipeline.dead_letter_table)
    for letter, (_, field, shown) in zip(letters, BAD_IN_JSON, strict=True):
        assert letter["error"].startswith(f"{field}: ")
        assert shown in letter["error"]
    assert flow.spark_ids(spark) == [0, 4]
