"""Row changes of Hudi tables: what Kafka has said last of each key is what both readers find."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import TableUnusable, Unreachable
from calve.sink_core.hudi.commit import table as commit
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_spark, hudi_tables
from tests.hudi_tables import place
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

TABLE = "db.events"
COLUMNS = {"id": "long", "place": "string", "text": "string", "tags": "list<string>"}
UPSERT: Mapping[str, Any] = {"mode": "upsert", "key": ["id"], "on_moved_key": "ignore"}
Row = dict[str, Any]


def changed(directory: Path, bootstrap: str, topic: str, *tables: Mapping[str, Any], **more: Any) -> Flow:
    """A topic into Hudi tables that take row changes."""
    ours: list[Row] = [{"name": TABLE, "format": "hudi", "auto_create": {"columns": COLUMNS}, **each} for each in tables]
    flow = Flow.create(directory, bootstrap, topic, tables=tuple(each["name"] for each in ours))
    return replace(flow, extra={"tables": ours, "hudi": {"warehouse": str(flow.files / "hudi")}, **more})


def send(flow: Flow, produce: Produce, *changes: Row) -> None:
    """Records with these fields, tombstones for those with the key alone."""
    keys = [json.dumps({name: row[name] for name in ("id", "place") if name in row}).encode() for row in changes]
    values = [json.dumps(row).encode() if "text" in row else None for row in changes]
    produce(flow.topic, values, keys=keys)


def found(flow: Flow, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """As hudi-rs has it."""
    return sorted(tuple(row[column] for column in columns) for row in hudi_tables.rows(place(flow, name).folder))


def proven(flow: Flow) -> bool:
    with flow.session() as session:
        session.bind()
        return verify(session, deep=True).violations == ()


@dataclass
class Told:
    """What random changes leave, by `id` and by `id` and `place`."""

    chance: random.Random = field(default_factory=lambda: random.Random(3))
    by_id: dict[int, Row] = field(default_factory=dict[int, Row])
    by_both: dict[tuple[int, str], Row] = field(default_factory=dict[tuple[int, str], Row])

    def changes(self, number: int) -> list[Row]:
        return [self._change() for _ in range(number)]

    def _change(self) -> Row:
        at = (self.chance.randrange(20), self.chance.choice("xyz"))
        change: Row = {"id": at[0], "place": at[1]}
        if self.chance.random() < 0.25:
            self.by_id.pop(at[0], None)
            self.by_both.pop(at, None)
            return change
        tags = self.chance.choice([None, [], ["a", None], [None]])
        change |= {"text": f"{self.chance.getrandbits(40):x}", "tags": tags}
        self.by_id[at[0]] = self.by_both[at] = change
        return change


SHAPES: Mapping[str, Mapping[str, Any]] = {
    "db.cow": {},
    "db.mor": {"hudi": {"type": "merge_on_read"}},
    # A row moves from one partition to another; where it goes, its key alone is known.
    "db.moving": {"auto_create": {"columns": COLUMNS, "partition_by": ["place"]}},
    "db.placed": {"key": ["place", "id"], "auto_create": {"columns": COLUMNS, "partition_by": ["place", "id"]}},
    "db.kafka": {"key": "kafka", "deletes": "soft"},
}


def test_tables_have_the_last_change_of_each_key(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    tables = [{**UPSERT, "name": name, **settings} for name, settings in SHAPES.items()]
    key = {"type": "json", "as": "struct<id: long, place: string>"}
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), *tables, batch={"min_task_bytes": "1KiB"})
    flow = replace(flow, extra={**flow.extra, "source": {"kafka": "main", "topics": [flow.topic], "key": key}})
    told = Told()
    for number in (60, 80):
        send(flow, produce, *told.changes(number))
        done = flow.run()
        assert not [commit.failed for commit in done.commits if commit.failed]
    columns = ("id", "place", "text", "tags")
    by_id = [[row[name] for name in columns] for _, row in sorted(told.by_id.items())]
    by_both = [[row[name] for name in columns] for _, row in sorted(told.by_both.items())]
    folders = [place(flow, name).folder for name in SHAPES]
    for name, folder, rows in zip(SHAPES, folders, hudi_spark.rows(*folders), strict=True):
        if name != "db.mor":
            assert len(found(flow, name, "id")) == len(rows), name
        if name == "db.kafka":
            assert {row["_is_deleted"] for row in rows} == {True, False}
            rows = [row for row in rows if not row["_is_deleted"]]
        wanted = by_both if name in ("db.placed", "db.kafka") else by_id
        assert sorted([row[name] for name in columns] for row in rows) == wanted, name
        assert set(hudi_tables.completions(folder).values()) == {1}
    assert proven(flow)
