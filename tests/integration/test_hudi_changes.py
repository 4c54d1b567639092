"""Row changes of Hudi tables: what Kafka has said last of each key is what both readers find."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.hudi.files.timeline import instant_ms, instant_text
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import DataWritten
from tests import hudi_spark, hudi_tables
from tests.codes import raises
from tests.hudi_tables import place
from tests.pipelines import Flow, reached
from tests.support import Produce, TopicFactory

TABLE = "db.events"
COLUMNS = {"id": "long", "place": "string", "text": "string", "tags": "list<string>"}
UPSERT: Mapping[str, Any] = {"mode": "upsert", "key": ["id"], "on_moved_key": "ignore"}
Row = dict[str, Any]


def changed(directory: Path, bootstrap: str, topic: str, *tables: Mapping[str, Any], **more: Any) -> Flow:
    """A topic into Hudi tables that take row changes."""
    ours: list[Row] = [
        {"name": TABLE, "format": "hudi", "auto_create": {"columns": COLUMNS}, **each} for each in tables
    ]
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


def test_the_larger_order_stays_and_of_equal_ones_the_later(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    created = {"auto_create": {"columns": {**COLUMNS, "at": "long"}}, "evolve": ["add_column"]}
    settings = {"mode": "upsert", "key": ["id"], "order_by": "at", **created}
    tables = [{**settings, "name": f"db.{kind}", "hudi": {"type": kind}} for kind in ("copy_on_write", "merge_on_read")]
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(2), *tables)
    send(flow, produce, *({"id": n, "text": "first", "at": 5} for n in (1, 2, 3, 4)))
    flow.run()
    send(flow, produce, {"id": 1, "text": "late", "at": 4}, {"id": 2, "text": "equal", "at": 5})
    send(flow, produce, {"id": 3, "text": "newer", "at": 7, "more": 1}, {"id": 3, "text": "older", "at": 6, "more": 2})
    send(flow, produce, {"id": 5, "text": "equal, first", "at": 5}, {"id": 5, "text": "equal, last", "at": 5})
    flow.run()
    wanted = [
        (1, "first", 5, None),
        (2, "equal", 5, None),
        (3, "newer", 7, 1),
        (4, "first", 5, None),
        (5, "equal, last", 5, None),
    ]
    for rows in hudi_spark.rows(*(place(flow, name).folder for name in flow.tables)):
        assert sorted((row["id"], row["text"], row["at"], row["more"]) for row in rows) == wanted
    assert found(flow, "db.copy_on_write", "id", "text", "at", "more") == wanted
    assert proven(flow)


def test_it_has_what_a_database_has(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    """By Debezium's events: rows that go are gone, or marked and told apart by their order."""
    created = {"auto_create": {"columns": {"id": "long", "text": "string"}}}
    tables: list[Row] = [
        {"name": "db.hard", "mode": "cdc", "key": ["id"], "on_moved_key": "ignore", **created},
        {"name": "db.soft", "mode": "cdc", "key": ["id"], "order_by": "source.lsn", "deletes": "soft", **created},
    ]
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), *tables)

    def event(lsn: int, op: str, key: int, text: str) -> bytes:
        row = {"id": key, "text": text}
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return json.dumps({"op": op, **sides, "source": {"lsn": lsn}, "ts_ms": 5}).encode()

    events = [event(n, "c", n, "first") for n in (1, 2, 3)]
    produce(flow.topic, events)
    flow.run()
    produce(flow.topic, [event(4, "u", 1, "second"), event(5, "d", 2, "first"), event(6, "c", 4, "new")])
    # A connector that starts again says some of it again.
    produce(flow.topic, [event(7, "d", 4, "new"), event(6, "c", 4, "new")])
    flow.run()
    hard, soft = hudi_spark.rows(*(place(flow, name).folder for name in flow.tables))
    assert sorted((row["id"], row["text"]) for row in hard) == [(1, "second"), (3, "first"), (4, "new")]
    assert sorted((row["id"], row["text"], row["_is_deleted"], row["_order"]) for row in soft) == [
        (1, "second", False, 4),
        (2, "first", True, 5),
        (3, "first", False, 3),
        (4, "new", True, 7),
    ]
    assert proven(flow)


def test_a_table_of_another_key_or_order_is_refused_and_nothing_is_written(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    created = {"auto_create": {"columns": {**COLUMNS, "at": "long"}}}
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), {**UPSERT, **created})
    flow.loaded()
    flow.produce(range(3))
    others: Mapping[str, Mapping[str, Any]] = {
        "key is place, and the table's hoodie.table.recordkey.fields is id": {**UPSERT, "key": ["place"]},
        "order_by is at, and the table's hoodie.table.ordering.fields is unset": {**UPSERT, "order_by": "at"},
        "recordkey.fields is id, and mode is append": {"mode": "append"},
    }
    for said, settings in others.items():
        [table] = flow.extra["tables"]
        plain = {name: value for name, value in table.items() if name not in UPSERT}
        other = flow.but(extra={**flow.extra, "tables": [{**plain, **settings}]})
        with pytest.raises(TableUnusable, match=said.replace(".", r"\.")):
            other.run()
    assert not flow.events(DataWritten)


def test_keys_that_hudi_could_not_tell_from_others_are_dead_letters(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    """It makes one text of a key's columns, and none of an empty one."""
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), {**UPSERT, "key": ["place", "id"]})
    send(flow, produce, {"place": "x,id:1", "id": 2, "text": "a"}, {"place": "", "id": 1, "text": "a"})
    send(flow, produce, {"place": "__empty__", "id": 1}, {"place": "__null__", "id": 1, "text": "a"})
    flow.run()
    told = [row["error"] for row in flow.rows(flow.pipeline.dead_letter_table)]
    assert [error.partition(": ")[0] for error in told] == ["place"] * 4
    assert [sum(value in error for error in told) for value in ("__empty__", "__null__", ",id:")] == [1, 1, 1]


def test_an_event_without_a_key_that_hudi_can_tell_is_a_dead_letter(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    created = {"auto_create": {"columns": {"name": "string", "text": "string"}}}
    settings = {"mode": "cdc", "key": ["name"], "on_moved_key": "ignore", **created}
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), settings)
    row, nameless = {"name": "a", "text": "b"}, {"name": "", "text": "b"}
    sides = [("c", None, nameless), ("d", nameless, None), ("u", nameless, row), ("c", None, row)]
    values = [json.dumps({"op": op, "before": before, "after": after, "ts_ms": 5}) for op, before, after in sides]
    produce(flow.topic, [value.encode() for value in values])
    flow.run()
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert sorted(letter["offset"] for letter in letters) == [0, 1, 2]
    assert found(flow, TABLE, "name", "text") == [("a", "b")]


def test_changes_wait_until_the_instants_of_the_table_are_past(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    """Else Hudi leaves them out, and says nothing."""
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), UPSERT)
    send(flow, produce, {"id": 1, "text": "first"})
    flow.run()
    timeline = place(flow, TABLE).folder / ".hoodie" / "timeline"

    def ahead(seconds: float) -> Path:
        """An instant that another writer has begun, by a clock that is wrong."""
        path = timeline / f"{instant_text(int((time.time() + seconds) * 1_000))}.commit.requested"
        path.touch()
        return path

    far = ahead(3_600)
    send(flow, produce, {"id": 1, "text": "second"})
    with raises(Code.INSTANT_AHEAD, "db.events", "timeline"):
        flow.run()
    far.unlink()
    near = ahead(4)
    flow.run()
    assert time.time() * 1_000 > instant_ms(near.name.partition(".")[0])
    assert found(flow, TABLE, "id", "text") == [(1, "second")]


@pytest.mark.faults
def test_what_another_writer_commits_meanwhile_is_kept(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), UPSERT)
    send(flow, produce, *({"id": n, "text": "first"} for n in range(4)))
    flow.run()
    folder = place(flow, TABLE).folder
    send(flow, produce, {"id": 1, "text": "second"})
    with reached("hudi.after-adopt", lambda: hudi_spark.ask(_OTHERS, str(folder))):
        [done] = [c for report in flow.run().commits for c in report.landed if c.table == TABLE]
    assert done.conflicts
    assert found(flow, TABLE, "id", "text") == [(0, "first"), (1, "second"), (2, "theirs"), (3, "first")]
    assert proven(flow)


@pytest.mark.faults
def test_a_spark_that_has_just_started_commits_at_the_first_try(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    """With each tenth commit Hudi compacts its metadata table, and reads the schema of that before it has named it."""
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), UPSERT, batch={"max_records": 1})
    for numbers in (range(9), [9], [10]):
        send(flow, produce, *({"id": n, "text": "first"} for n in numbers))
        done = [c for report in flow.run().commits for c in report.landed if c.table == TABLE]
        assert [c.conflicts for c in done] == [0] * len(numbers)
    assert found(flow, TABLE, "id") == [(n,) for n in range(11)]


_OTHERS = """
read = spark.read.format("hudi").load(arguments[0])
ours = [name for name in read.columns if name.startswith("_hoodie_") and name != "_hoodie_is_deleted"]
theirs = read.where("id = 2").drop(*ours).replace("first", "theirs", "text").localCheckpoint()
options = {"hoodie.table.name": "events", "hoodie.datasource.write.recordkey.field": "id"}
theirs.write.format("hudi").options(**options).mode("append").save(arguments[0])
say(None)
"""
