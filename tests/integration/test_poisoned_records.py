"""One record that can't be stored among good ones, two topics, Iceberg tables and a Hudi table: all others arrive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_tables, support
from tests.codes import Naming, raises
from tests.pipelines import Flow
from tests.support import TopicFactory

ICEBERG, HUDI, OTHER = "db.events", "db.hudi", "db.other"
GOOD = range(5)
LONG = "ü" * 120
"""240 bytes, none of which is escaped in a path: it is not too long for one."""

LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "user-agent": {"user-agent": "x"},
    "1Min": {"1Min": 1},
    "$col": {"$col": 1.5},
    "a b": {"a b": True},
    "n.5Sec": {"n.5Sec": 1},
    "more.is-new": {"more": {"is-new": 1, "old": 2}},
    "_hoodie_commit_time": {"_hoodie_commit_time": "2024"},
    "_hoodie_is_deleted": {"_hoodie_is_deleted": True},
}
"""Fields that Hudi's tables have no column for, by the path that they are counted under; Iceberg's have."""

DEAD: Mapping[str, bytes] = {
    "text": json.dumps({"id": 100, "text": "x" * 300}).encode(),
    "escaped": json.dumps({"id": 101, "text": "/" * 90}).encode(),
    "type": b'{"id": "none", "text": "a"}',
    "json": b'{"id": 103, "text": ',
    "utf-8": b'{"id": 104, "text": "\xff"}',
    "half": b'{"id": 105, "text": "\\ud800"}',
}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    one, two = kafka_topic(1), kafka_topic(1)
    columns = {"columns": {"id": "long", "text": "string"}, "partition_by": ["text"]}
    common = {"auto_create": columns, "evolve": ["add_column"]}
    tables = [
        {"name": ICEBERG, "topics": [one], **common},
        {"name": HUDI, "topics": [one], "format": "hudi", **common},
        {"name": OTHER, "topics": [two], **common},
    ]
    flow = Flow.create(tmp_path, broker.bootstrap, one, two, tables=(ICEBERG, HUDI, OTHER))
    return replace(flow, extra={"tables": tables, "hudi": {"warehouse": str(flow.files / "hudi")}})


def record(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "text": "a", **more}).encode()


def rows_of_hudi(flow: Flow) -> list[dict[str, Any]]:
    return hudi_tables.rows(hudi_tables.place(flow, HUDI).folder)


def test_names_are_left_out_and_counted_and_values_are_dead_letters(flow: Flow) -> None:
    one, two = flow.topics
    support.produce(flow.bootstrap, one, [record(n) for n in GOOD])
    support.produce(flow.bootstrap, two, [record(n) for n in GOOD])
    flow.run()
    named = [record(10 + n, **fields) for n, fields in enumerate(LEFT_OUT.values())]
    support.produce(flow.bootstrap, one, [*named, *DEAD.values(), record(50, text=LONG)])
    support.produce(flow.bootstrap, two, [*DEAD.values(), record(51)])
    report = flow.run()
    assert report.ended == "caught up"
    stored = [*GOOD, *range(10, 10 + len(LEFT_OUT)), 50]
    assert flow.ids(ICEBERG) == sorted(stored)
    assert sorted(row["id"] for row in rows_of_hudi(flow)) == sorted(stored)
    assert [row["more"]["old"] for row in rows_of_hudi(flow) if row["more"]] == [2]
    # What only Hudi can't place goes to a table that is not Hudi's.
    assert flow.ids(OTHER) == sorted([*GOOD, 51, 100, 101])
    letters = [(row["topic"], row["error"]) for row in flow.rows(flow.pipeline.dead_letter_table)]
    assert len(letters) == 2 * len(DEAD) - 2
    long = [error for topic, error in letters if topic == one and error == Naming(HUDI, "text", 300, 250)]
    escaped = [error for topic, error in letters if topic == one and error == Naming(HUDI, "text", 270, 250)]
    assert (len(long), len(escaped)) == (1, 1)
    [dropped] = [batch.dropped for batch in report.batches]
    assert dropped == {HUDI: dict.fromkeys(LEFT_OUT, 1)}
    with flow.session() as session:
        shown = {table.table: dict(table.dropped) for table in status(session).tables}
        assert verify(session, deep=True).violations == ()
    assert shown[HUDI] == dict.fromkeys(LEFT_OUT, 1)
    # Nothing waits, and the next batch goes on.
    support.produce(flow.bootstrap, one, [record(60)])
    assert flow.run().ended == "caught up"
    assert 60 in {row["id"] for row in rows_of_hudi(flow)}


def test_a_table_of_such_names_is_created_without_them(flow: Flow) -> None:
    one, _ = flow.topics
    tables = [{"name": HUDI, "topics": [one], "format": "hudi", "auto_create": {}}]
    flow = flow.but(extra={**flow.extra, "tables": tables})
    for number, fields in enumerate(LEFT_OUT.values()):
        support.produce(flow.bootstrap, one, [record(number, **fields)])
    [batch] = flow.run().batches
    assert sorted(row["id"] for row in rows_of_hudi(flow)) == list(range(len(LEFT_OUT)))
    assert batch.dropped == {HUDI: dict.fromkeys(LEFT_OUT, 1)}


@pytest.mark.parametrize("name", ["user-agent", "1Min", "$col", "a b", "_hoodie_commit_time"])
def test_a_column_of_such_a_name_is_refused_before_anything_is_published(flow: Flow, name: str) -> None:
    one, _ = flow.topics
    created = {"columns": {"id": "long", name: "string"}}
    tables = [{"name": HUDI, "topics": [one], "format": "hudi", "auto_create": created}]
    flow = flow.but(extra={**flow.extra, "tables": tables})
    support.produce(flow.bootstrap, one, [record(1)])
    with raises(Code.UNREADABLE_NAMES, HUDI, name):
        flow.run()
    assert flow.positions() == {} or all(position.offset <= 0 for position in flow.positions().values())


def test_a_table_whose_own_name_is_none_of_avros_is_fed(flow: Flow) -> None:
    one, _ = flow.topics
    name = "db.9-of-web"
    tables = [{"name": name, "topics": [one], "format": "hudi", "auto_create": {}, "evolve": ["add_column"]}]
    flow = flow.but(extra={**flow.extra, "tables": tables})
    support.produce(flow.bootstrap, one, [record(1)])
    flow.run()
    support.produce(flow.bootstrap, one, [record(2, more={"x": 1})])
    flow.run()
    assert hudi_tables.ids(hudi_tables.place(flow, name).folder) == [1, 2]
