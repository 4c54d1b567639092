"""Row changes of Hudi tables: what Kafka has said last of each key is what both readers find."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_spark, hudi_tables
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

COLUMNS = {"id": "long", "text": "string", "tags": "list<string>"}
TABLE = "db.events"


def changed(directory: Path, bootstrap: str, topic: str, *, columns: dict[str, str] = COLUMNS, **table: Any) -> Flow:
    """A topic into one Hudi table that takes row changes."""
    created = {"auto_create": {"columns": columns, **table.pop("auto_create", {})}}
    settings = {"name": TABLE, "format": "hudi", "mode": "upsert", "key": ["id"], **created}
    if "order_by" not in table:
        settings["on_moved_key"] = "ignore"
    flow = Flow.create(directory, bootstrap, topic, tables=(TABLE,))
    return replace(flow, extra={"tables": [{**settings, **table}], "hudi": {"warehouse": str(flow.files / "hudi")}})


def send(flow: Flow, produce: Produce, *rows: dict[str, Any]) -> None:
    """Records with these fields, tombstones for those with an id alone."""
    values = [json.dumps(row).encode() if len(row) > 1 else None for row in rows]
    produce(flow.topic, values, keys=[str(row["id"]).encode() for row in rows])


def place(flow: Flow) -> Place:
    return hudi_tables.place(flow, TABLE)


def rows(flow: Flow, *columns: str) -> list[tuple[Any, ...]]:
    found = hudi_tables.rows(place(flow).folder)
    return sorted(tuple(row[name] for name in columns) for row in found)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_the_last_change_of_each_key_is_there(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce, table_type: str
) -> None:
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), hudi={"type": table_type})
    send(flow, produce, *({"id": n, "text": "first", "tags": ["a", None]} for n in range(6)))
    flow.run()
    send(flow, produce, {"id": 1, "text": "second", "tags": None}, {"id": 2}, {"id": 3, "text": "x"}, {"id": 3})
    send(flow, produce, {"id": 4}, {"id": 4, "text": "again"}, {"id": 9}, {"id": 8, "text": "new", "tags": []})
    [report] = [each for each in flow.run().commits if each.landed]
    assert [commit.rows for commit in report.landed if commit.table == TABLE] == [8]
    wanted = [(0, "first"), (1, "second"), (4, "again"), (5, "first"), (8, "new")]
    if table_type == "copy_on_write":
        assert rows(flow, "id", "text") == wanted
    assert hudi_spark.values(place(flow).folder, "id", "text") == [list(row) for row in wanted]
    assert set(hudi_tables.completions(place(flow).folder).values()) == {1}
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()
