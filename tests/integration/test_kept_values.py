"""`unavailable_value: keep-old` from Kafka to what readers have: values that a database does not send again."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from orchestration.broker import Broker
from sink_core.changes.unavailable import UNAVAILABLE
from sink_core.verify.verify import verify
from spark_jobs.merge import on_spark
from spark_jobs.runner import SparkRunner
from tests.changing import by_spark
from tests.integration.test_upsert import publish
from tests.pipelines import Died, Flow, reached
from tests.support import Produce, TopicFactory

HARD, SOFT = "db.hard", "db.soft"
COLUMNS = {"id": "long", "n": "long", "text": "string", "raw": "binary", "tags": "list<string>"}
KEYS = 12


class Row(NamedTuple):
    n: int
    text: str | None
    raw: bytes | None
    tags: tuple[str, ...] | None


NONE = Row(0, UNAVAILABLE, UNAVAILABLE.encode(), (UNAVAILABLE,))
State = dict[int, Row]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    merged = {"mode": "cdc", "key": ["id"], "write_mode": "merge", "on_moved_key": "ignore"}
    table = {**merged, "unavailable_value": "keep-old", "auto_create": {"columns": COLUMNS}}
    tables = [{**table, "name": HARD}, {**table, "name": SOFT, "deletes": "soft"}]
    extra = {"tables": tables, "batch": {"min_task_bytes": "1KiB"}, "commit": {"every": "1m"}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), tables=(HARD, SOFT), extra=extra)


def event(op: str, key: int, row: Row | None) -> bytes:
    said = None
    if row is not None:
        raw, tags = row.raw and base64.b64encode(row.raw).decode(), row.tags and list(row.tags)
        said = {"id": key, **row._asdict(), "raw": raw, "tags": tags}
    before = {"id": key} if op == "d" else None
    return json.dumps({"before": before, "after": said, "op": op, "ts_ms": 5}).encode()


def changes(chance: random.Random, state: State, number: int, first: int) -> list[bytes]:
    """Events of random changes of the state. Of what is changed most is not sent; of what is made now and then a value
    is missing, as where a key has become another; now and then a row is changed that nobody has heard of.
    """

    def sent(n: int, whole: float) -> Row:
        is_sent = [chance.random() < whole for _ in range(3)]
        text, raw, tags = None if n % 7 == 0 else f"t{n}", f"b{n}".encode(), (f"x{n}", "y")
        return Row(
            n, text if is_sent[0] else NONE.text, raw if is_sent[1] else NONE.raw, tags if is_sent[2] else NONE.tags
        )

    events: list[bytes] = []
    for n in range(first, first + number):
        key = chance.randrange(KEYS)
        was = state.get(key)
        if was is not None and chance.random() < 0.25:
            events.append(event("d", key, None))
            del state[key]
            continue
        changed = was is not None or chance.random() < 0.2
        row = sent(n, 0.3 if changed else 0.8)
        events.append(event("u" if changed else "c", key, row))
        old = was or NONE
        state[key] = Row(
            n,
            old.text if row.text == NONE.text else row.text,
            old.raw if row.raw == NONE.raw else row.raw,
            old.tags if row.tags == NONE.tags else row.tags,
        )
    return events


def commit(flow: Flow, runner: SparkRunner) -> list[str]:
    """The coordinator alone; the tables that got something."""
    with flow.session() as session:
        session.bind()
        session.merge_changes = on_spark(session, lambda: runner.session)
        report = session.coordinator().commit(tables=flow.tables)
    report.raise_failures()
    return [landed.table for landed in report.landed if landed.table in flow.tables]


def check(flow: Flow, spark: SparkSession, wanted: State) -> None:
    """Spark and pyiceberg have the dictionary's rows."""
    for name in flow.tables:
        for rows in (by_spark(spark, f"{flow.attached(spark)}.{name}"), flow.rows(name)):
            assert as_state(rows) == wanted, name


def as_state(rows: list[dict[str, Any]]) -> State:
    """The rows that are there. A key that is there twice shows."""
    there = [row for row in rows if not row.get("_is_deleted")]
    assert len({row["id"] for row in rows}) == len(rows)
    return {
        row["id"]: Row(row["n"], row["text"], row["raw"] and bytes(row["raw"]), row["tags"] and tuple(row["tags"]))
        for row in there
    }


def test_what_was_not_sent_is_what_the_last_change_had_whatever_batch_and_merge_that_fell_into(
    flow: Flow, produce: Produce, spark: SparkSession, runner: SparkRunner
) -> None:
    def die() -> None:
        raise Died

    chance, state = random.Random(11), State()
    for waiting in (1, 3, 1):
        for _ in range(waiting):
            produce(flow.topic, changes(chance, state, 40, first=len(state) * 1000 + chance.randrange(1000)))
            publish(flow, runner)
        if waiting > 1:
            # With the changes of one table on a branch that nobody goes on with.
            with pytest.raises(Died), reached("merge.after-changes", die):
                commit(flow, runner)
        assert commit(flow, runner) == [HARD, SOFT]
        check(flow, spark, state)
    assert commit(flow, runner) == []
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()
    # Of those without an old value some were there, and it shows.
    assert UNAVAILABLE in {row.text for row in state.values()}
