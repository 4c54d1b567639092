"""Topics whose keys and values are of different formats, in one pipeline, from Kafka to Iceberg."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.sink.checks.registry import registry_checks
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.verify.proof import verify
from tests.codes import raises
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry, framed, plain
from tests.support import TopicFactory, produce

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, registry: SchemaRegistry) -> Flow:
    plain_flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), kafka_topic(1), tables=("db.orders", "db.log"))
    orders, log = plain_flow.topics
    avro_key = {"type": "avro", "registry": "main", "as": "long"}
    select = {"columns": {"id": "long", "text": "string"}, "select": "id, text, _kafka.key AS k"}
    columns = {"id": "long", "text": "string"}
    tables = [
        {
            "name": "db.orders",
            "topics": [orders],
            "auto_create": {"columns": columns | {"k": "long"}},
            "transform": select,
        },
        {"name": "db.log", "topics": [log], "auto_create": {"columns": columns | {"k": "string"}}, "transform": select},
        {"name": "db.all", "auto_create": {"columns": columns}},
    ]
    source = {
        "key": {"type": "string"},
        "formats": [{"topics": [orders], "key": avro_key, "value": {"type": "avro", "registry": "main"}}],
    }
    registries = {"main": {"url": registry.url, "retries.wait.ms": 10}}
    return plain_flow.but(registry=registries, extra={"source": source, "tables": tables})


def key_and_value(flow: Flow, registry: SchemaRegistry) -> tuple[int, int]:
    return registry.register(f"{flow.topic}-key", "long"), registry.register(f"{flow.topic}-value", ORDER)


def seen(flow: Flow, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in columns) for row in flow.rows(table)), key=str)


def proven(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_each_topics_records_are_read_in_its_own_way(flow: Flow, registry: SchemaRegistry) -> None:
    key, value = key_and_value(flow, registry)
    orders, log = flow.topics
    order = framed(value, plain(ORDER, {"id": 1, "text": "a"}))
    number = framed(key, plain("long", 2**40))
    produce(flow.bootstrap, orders, [order, order, b'{"id": 2}', None], keys=[number, b"no Avro", number, b"none"])
    line = json.dumps({"id": 9, "text": "b"}).encode()
    produce(flow.bootstrap, log, [line, line, order, line], keys=["who", None, "who", b"\xff"])
    flow.run()
    assert seen(flow, "db.orders", "id", "text", "k") == [(1, "a", 2**40)]
    assert seen(flow, "db.log", "id", "text", "k") == [(9, "b", "who"), (9, "b", None)]
    assert seen(flow, "db.all", "id", "text") == [(1, "a"), (9, "b"), (9, "b")]
    letters = sorted(flow.rows(flow.pipeline.dead_letter_table), key=lambda row: (row["topic"] == log, row["offset"]))
    assert [(row["topic"], row["offset"], row["stage"]) for row in letters] == [
        (orders, 1, "decode"),
        (orders, 2, "decode"),
        (log, 2, "decode"),
        (log, 3, "decode"),
    ]
    assert re.match(rf"key\b.*\b{b'no Avro'[:5].hex(' ')}\b", letters[0]["error"])
    assert re.match(r"key\b.*\bUTF-8\b", letters[3]["error"])
    proven(flow)
    # Read as what they are, the records with the bad keys fit.
    extra = {**flow.extra, "source": {**flow.extra["source"], "key": {"type": "none"}}}
    better = flow.but(
        extra={**extra, "tables": [*extra["tables"][:1], {**flow.extra["tables"][1]}, extra["tables"][2]]}
    )
    log_table = better.extra["tables"][1]
    log_table["transform"] = {**log_table["transform"], "select": "id, text, decode(_kafka.key) AS k"}
    with better.session() as session:
        session.bind()
        assert DeadLetterJobs(session).replay().moved == 1
    assert seen(flow, "db.log", "id", "k") == [(9, "who"), (9, None), (9, None)]
    proven(better)


def test_what_a_new_table_would_hold_of_two_formats_is_asked_for(flow: Flow, registry: SchemaRegistry) -> None:
    _, value = key_and_value(flow, registry)
    produce(flow.bootstrap, flow.topic, [framed(value, plain(ORDER, {"id": 1, "text": "a"}))])
    both = flow.but(extra={**flow.extra, "tables": [{"name": "db.all", "auto_create": {}}]})
    with raises(Code.FORMATS_DIFFER, "db.all"):
        both.run()
    one = [{"name": "db.all", "topics": [flow.topic], "auto_create": {}}]
    alone = flow.but(extra={**flow.extra, "tables": one})
    alone.run()
    assert seen(alone, "db.all", "id", "text") == [(1, "a")]


def test_sql_that_would_see_keys_of_two_types_is_refused(flow: Flow) -> None:
    tables = [{**flow.extra["tables"][0], "topics": list(flow.topics)}]
    mixed = flow.but(extra={**flow.extra, "tables": tables})
    flow.produce(range(1))
    with raises(Code.KEYS_DIFFER, "db.orders", "transform", "source.formats.0.key"):
        mixed.run()


def test_check_looks_at_keys_and_at_the_schemas_of_each_format(flow: Flow, registry: SchemaRegistry) -> None:
    _, value = key_and_value(flow, registry)
    sampled = {flow.topic: [framed(value, b"")], flow.topics[1]: [b"{}"]}
    said = {check.name: str(check.ask()) for check in registry_checks(flow.pipeline, lambda: sampled)}
    assert set(said) == {"keys", "registry", "schemas"}
    assert {"string", "long"} <= set(re.findall(r"\w+", said["keys"]))
    assert "AVRO" in said["registry"]
    assert re.findall(r"\d+", said["schemas"]) == [str(value), "1"]
