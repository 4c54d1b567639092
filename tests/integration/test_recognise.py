"""`calve init` for topics that aren't JSON: it sees what their values are, and writes the file for that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.orchestration.new_pipeline import NEW_REGISTRY
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from tests.codes import says
from tests.schema_registry import SchemaRegistry, framed, plain
from tests.support import TopicFactory, produce, unique

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
ENVELOPE = {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 1}}


def init(broker: Broker, topic: str, directory: Path, *more: str) -> str:
    common = ["init", "--topic", topic, "--bootstrap", broker.bootstrap, "--directory", str(directory)]
    done = CliRunner().invoke(app, [*common, *more])
    return "" if done.exit_code == 0 else done.output


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema", "connect_json"])
def test_the_format_is_seen_from_the_values(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, registry: SchemaRegistry, kind: str
) -> None:
    topic = kafka_topic(1)
    values = {
        "avro": lambda: framed(registry.register(unique("s"), ORDER), plain(ORDER, {"id": 1})),
        "protobuf": lambda: framed(registry.register_text(unique("s"), "PROTOBUF", PROTO), b"\0\x08\1"),
        "json_schema": lambda: framed(registry.register_text(unique("s"), "JSON", JSON_SCHEMA), b'{"id": 1}'),
        "connect_json": lambda: json.dumps(ENVELOPE).encode(),
    }
    produce(broker.bootstrap, topic, [values[kind]() for _ in range(3)] + [b"?"])
    assert init(broker, topic, tmp_path, "--registry", registry.url) == ""
    pipeline = load(tmp_path / "pipeline.yaml")
    value = pipeline.readings.default.value
    assert value.type == kind
    assert (value.registry is None) == (kind == "connect_json")
    assert [table.auto_create and table.auto_create.columns for table in pipeline.tables] == [{"id": "long"}]


def test_a_registry_is_asked_for_where_the_values_need_one(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, registry: SchemaRegistry
) -> None:
    topic = kafka_topic(1)
    produce(broker.bootstrap, topic, [framed(2_000_000_000, b"x")])
    says(init(broker, topic, tmp_path), Code.WHICH_REGISTRY, "--registry")
    says(init(broker, topic, tmp_path, "--registry", registry.url), Code.WHICH_REGISTRY, NEW_REGISTRY, "--registry")
    assert not (tmp_path / "pipeline.yaml").exists()
