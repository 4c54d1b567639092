"""`unavailable_value: keep-old` from Kafka to what readers have: values that a database does not send again."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.records.changes.unavailable import UNAVAILABLE
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_spark
from tests.integration.test_merge import commit_by_spark
from tests.integration.test_upsert import publish
from tests.pipelines import Died, Flow, reached
from tests.support import Produce, TopicFactory

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
    table = {**merged, "name": "db.events", "unavailable_value": "keep-old", "auto_create": {"columns": COLUMNS}}
    extra = {"tables": [table], "batch": {"min_task_bytes": "1KiB"}, "commit": {"every": "1m"}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), extra=extra)


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


def as_state(rows: list[dict[str, Any]]) -> State:
    """The rows that are there. A key that is there twice shows."""
    there = [row for row in rows if not row.get("_is_deleted")]
    assert len({row["id"] for row in rows}) == len(rows)
    return {
        row["id"]: Row(row["n"], row["text"], row["raw"] and bytes(row["raw"]), row["tags"] and tuple(row["tags"]))
        for row in there
    }


@pytest.mark.parametrize("deletes", ["soft", pytest.param("hard", marks=pytest.mark.faults)])
def test_what_was_not_sent_is_what_the_last_change_had_whatever_batch_and_merge_that_fell_into(
    deletes: str, flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    def die() -> None:
        raise Died

    flow = flow.but(extra={**flow.extra, "tables": [{**flow.extra["tables"][0], "deletes": deletes}]})
    chance, state, number = random.Random(11), State(), 1
    for waiting in (1, 2):
        for _ in range(waiting):
            produce(flow.topic, changes(chance, state, 60, first=number))
            publish(flow, engine)
            number += 60
        if waiting > 1:
            # The changes are on a branch that nobody goes on with.
            with pytest.raises(Died), reached("merge.after-changes", die):
                commit_by_spark(flow, engine)
        assert commit_by_spark(flow, engine).landed
        for rows in (by_spark(spark, f"{flow.attached(spark)}.{flow.table}"), flow.rows()):
            assert as_state(rows) == state
        # Without an old value it shows.
        assert any(UNAVAILABLE in {row.text, *(row.tags or ())} for row in state.values())
    assert not commit_by_spark(flow, engine).landed
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()
