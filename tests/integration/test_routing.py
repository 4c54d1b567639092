"""Topics by pattern, tables by name and field, and every record in exactly one accounted place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from dagster import DagsterInstance
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.codes import raises
from tests.dagster_runs import run
from tests.pipelines import Flow
from tests.support import TIMEOUT_S

ENTITIES = {"name": "shop.{entity}", "auto_create": {}}
BIG = {"name": "shop.big", "where": {"field": "size.kind", "matches": "big|huge"}, "auto_create": {}}
BY_KIND = {
    "name": "kinds.{value}",
    "name_from": {"field": "size.kind", "allow": "[a-z]+"},
    "auto_create": {},
    "owned": True,
}

Topics = Callable[..., str]
Make = Callable[..., Flow]


@pytest.fixture
def prefix() -> str:
    return support.unique("s")


@pytest.fixture
def shop(tmp_path: Path, broker: Broker, prefix: str) -> Make:
    """A pipeline that reads every topic below the prefix."""

    def make(*tables: dict[str, Any], **extra: Any) -> Flow:
        source = {"topics": [], "topics_regex": rf"{prefix}\.(?P<entity>\w+)"}
        return Flow.create(tmp_path, broker.bootstrap, extra={"source": source, "tables": list(tables), **extra})

    return make


def create(flow: Flow, topic: str, partitions: int = 2) -> None:
    flow.admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)


def produce(flow: Flow, topic: str, records: Iterable[Any], partition: int = 0) -> None:
    values = [r if isinstance(r, bytes | None) else json.dumps(r).encode() for r in records]
    support.produce(flow.bootstrap, topic, values, partition=partition)


def sized(numbers: Iterable[int], *kinds: str) -> list[dict[str, Any]]:
    return [{"id": n, "size": {"kind": kinds[n % len(kinds)]}} for n in numbers]


def proven(flow: Flow) -> None:
    with flow.session() as session:
        report = verify(session, deep=True)
    assert not report.violations


def test_new_topics_get_their_tables_and_gone_ones_keep_their_place(shop: Make, prefix: str) -> None:
    flow = shop(ENTITIES, {"name": "shop.orders", "auto_create": {}, "kafka_column": True, "owned": False})
    assert flow.run().ended == "caught up"
    create(flow, f"{prefix}.orders")
    create(flow, f"{prefix}.items")
    produce(flow, f"{prefix}.orders", ({"id": n} for n in range(10)))
    assert flow.run().ended == "caught up"
    with flow.iceberg() as catalog:
        assert not catalog.table_exists("shop.items")
    produce(flow, f"{prefix}.items", ({"id": n} for n in range(10, 15)))
    create(flow, f"{prefix}.users")
    produce(flow, f"{prefix}.users", ({"id": n, "name": "x"} for n in range(20, 23)), partition=1)
    assert flow.run().ended == "caught up"
    assert [flow.ids(f"shop.{n}") for n in ("orders", "items", "users")] == [
        list(range(10)),
        list(range(10, 15)),
        list(range(20, 23)),
    ]
    narrowed = flow.but(extra={**flow.extra, "source": {"topics": [], "topics_regex": rf"{prefix}\.(?P<entity>u\w+)"}})
    produce(flow, f"{prefix}.items", [{"id": 15}])
    produce(flow, f"{prefix}.users", [{"id": 23, "name": "y"}])
    assert narrowed.run().ended == "caught up"
    proven(narrowed)
    assert flow.ids("shop.items") == list(range(10, 15))
    with narrowed.session() as session:
        session.read_only()
        assert {"shop.items", "shop.users"} <= set(session.pipeline.table_names)
        assert session.log.state.partitions[TopicPartition(f"{prefix}.items", 0)] == 5
    assert flow.run().ended == "caught up"
    assert flow.ids("shop.items") == list(range(10, 16))
    assert flow.ids("shop.users") == [20, 21, 22, 23]
    proven(flow)


def test_every_record_is_where_its_rule_says(shop: Make, prefix: str) -> None:
    columns = {"columns": {"id": "long", "size": "struct<kind: string>"}}
    named = {**BY_KIND, "auto_create": columns}
    flow = shop(
        {**BIG, "auto_create": columns}, named, {"name": "shop.x", "topics": [f"{prefix}.x"], "auto_create": {}}
    )
    for name in "xyz":
        create(flow, f"{prefix}.{name}")
    kinds = ("big", "small", "Odd", "huge", "..")
    produce(flow, f"{prefix}.x", [*sized(range(100), *kinds), b"{", None])
    produce(flow, f"{prefix}.y", [*sized(range(100, 150), *kinds), {"id": "no", "size": {"kind": "big"}}, b"["])
    produce(flow, f"{prefix}.z", sized(range(150, 200), "Odd"), partition=1)
    report = flow.run()
    assert report.ended == "caught up"
    assert sum(batch.unrouted for batch in report.batches) == 10 + 10 + 50
    numbers = {kind: [n for n in range(150) if kinds[n % 5] == kind] for kind in kinds}
    assert flow.ids("shop.x") == list(range(100))
    assert flow.ids("shop.big") == sorted(numbers["big"] + numbers["huge"])
    assert {k: flow.ids(f"kinds.{k}") for k in ("big", "small", "huge")} == {
        k: numbers[k] for k in ("big", "small", "huge")
    }
    ledger = flow.rows(flow.pipeline.ledger_table)
    assert Counter(row["topic"][-1] for row in ledger if row["unrouted"]) == {"y": 1, "z": 1}
    assert sum(row["dead_lettered"] for row in ledger) == 3
    proven(flow)
    produce(flow, f"{prefix}.z", sized(range(200, 210), "late"))
    flow.run()
    assert flow.ids("kinds.late") == list(range(200, 210))
    proven(flow)
    with flow.session() as session:
        now = status(session)
        owned = {table.name: table.owned for table in session.pipeline.tables}
    assert {"kinds.late", "kinds.big", "shop.x"} <= {table.table for table in now.tables if table.exists}
    assert now.last_batch is not None
    assert now.last_batch.unrouted == 0
    assert owned["kinds.late"]


def test_a_dead_letter_goes_to_the_tables_of_its_rule(shop: Make, prefix: str) -> None:
    columns = {"columns": {"id": "int"}}
    flow = shop({**BIG, "auto_create": columns}, {"name": "shop.all", "auto_create": columns})
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", sized([1, 2**40, 2**40 + 1, 4], "big", "small"))
    flow.run()
    assert len(flow.rows(flow.pipeline.dead_letter_table)) == 2
    for name in ("shop.big", "shop.all"):
        with flow.load_table(name).update_schema() as update:
            update.update_column("id", LongType())
    with flow.session() as session:
        session.bind()
        done = DeadLetterJobs(session).replay()
    assert done.moved == 2
    assert flow.ids("shop.all") == [1, 4, 2**40, 2**40 + 1]
    assert flow.ids("shop.big") == [4, 2**40]
    proven(flow)


def test_a_field_that_names_too_many_tables_stops_before_any_is_made(shop: Make, prefix: str) -> None:
    flow = shop({**BY_KIND, "name_from": {**BY_KIND["name_from"], "max_tables": 2}})
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", sized(range(3), "a", "b", "c"))
    with raises(Code.TOO_MANY_TABLES, 3):
        flow.run()
    with flow.iceberg() as catalog:
        assert not catalog.namespace_exists("kinds")


def test_a_name_added_later_says_what_becomes_of_the_past(shop: Make, prefix: str) -> None:
    flow = shop({"name": "shop.all", "auto_create": {}})
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", [{"id": 1}])
    flow.run()
    produce(flow, f"{prefix}.x", [{"id": 2}])
    added = flow.but(extra={**flow.extra, "tables": [{"name": "audit.all", "auto_create": {}}, ENTITIES]})
    with raises(Code.HISTORY_UNSET, "history"):
        added.run()
    extra = {**flow.extra, "tables": [{"name": "shop.all", "auto_create": {}}, {**ENTITIES, "name": "by.{entity}"}]}
    with raises(Code.HISTORY_UNSET, "by.x"):
        flow.but(extra=extra).run()
    extra["tables"][1]["history"] = "none"
    later = flow.but(extra=extra)
    later.run()
    assert (later.ids("by.x"), later.ids("shop.all")) == ([2], [1, 2])
    proven(later)


def test_a_topic_found_when_its_first_records_were_gone_is_no_name_added_later(shop: Make, prefix: str) -> None:
    flow = shop(ENTITIES)
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", [{"id": 1}])
    flow.run()
    create(flow, f"{prefix}.late", 1)
    produce(flow, f"{prefix}.late", sized(range(5), "gone"))
    flow.delete_records(f"{prefix}.late", 5)
    # Published beside it, the empty topic has a position: where its log begins.
    produce(flow, f"{prefix}.x", [{"id": 2}])
    flow.run()
    produce(flow, f"{prefix}.late", [{"id": 6}])
    flow.run()
    assert (flow.ids("shop.x"), flow.ids("shop.late")) == ([1, 2], [6])
    proven(flow)


def test_a_pattern_that_matches_nothing_any_more_waits_for_what_comes(shop: Make, prefix: str) -> None:
    flow = shop(ENTITIES)
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", [{"id": 1}])
    flow.run()
    for done in flow.admin.delete_topics([f"{prefix}.x"]).values():
        done.result(TIMEOUT_S)
    assert flow.run().ended == "caught up"
    assert flow.ids("shop.x") == [1]
    proven(flow)


def test_what_was_published_for_a_table_that_left_the_file_is_still_committed(shop: Make, prefix: str) -> None:
    flow = shop({"name": "shop.all", "auto_create": {}}, {"name": "shop.left", "auto_create": {}})
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", [{"id": 1}])
    flow.publish()
    later = flow.but(extra={**flow.extra, "tables": [{"name": "shop.all", "auto_create": {}}]})
    later.run()
    assert (later.ids("shop.left"), later.ids("shop.all")) == ([1], [1])
    proven(later)


def test_a_ledger_of_an_earlier_version_gets_the_columns(shop: Make, prefix: str) -> None:
    flow = shop({"name": "shop.all", "auto_create": {}})
    create(flow, f"{prefix}.x", 1)
    produce(flow, f"{prefix}.x", [{"id": 1}])
    flow.run()
    with flow.load_table(flow.pipeline.ledger_table).update_schema() as update:
        update.delete_column("unrouted").delete_column("left_out")
    proven(flow)
    routed = flow.but(extra={**flow.extra, "tables": [{"name": "shop.all", "where": BIG["where"]}]})
    produce(flow, f"{prefix}.x", [{"id": 2}])
    routed.run()
    ledger = routed.rows(flow.pipeline.ledger_table)
    assert sorted((row["unrouted"] or 0) for row in ledger) == [0, 1]
    proven(routed)


def test_a_table_that_records_name_is_materialized_in_dagster(
    shop: Make, prefix: str, instance: DagsterInstance, spark: SparkSession
) -> None:
    assert spark is not None
    flow = shop({**ENTITIES, "auto_create": {"columns": {"id": "long"}}}, BY_KIND)
    create(flow, f"{prefix}.orders")
    produce(flow, f"{prefix}.orders", sized(range(10), "big", "small"))
    done = run(flow, instance)
    assert done.result.success
    for table, rows in (("shop.orders", 10), ("kinds.big", 5), ("kinds.small", 5)):
        assert [told["rows added"] for told in done.table(table)] == [rows], table
