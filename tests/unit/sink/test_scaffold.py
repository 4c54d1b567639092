"""The files `calve init` writes: what they say is what a loader reads from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from calve.sink_core.config.reading import RegistrySettings, ValueSettings
from calve.sink_core.records.json.columns import ONLY_NULL, infer_schema
from calve.sink_core.sink.scaffold import Draft, catalog_keys, connections_text, name_from, only_name, pipeline_text
from tests.codes import raises

KAFKA = {"bootstrap.servers": "localhost:9092"}
CATALOG = {"type": "sql", "uri": "sqlite:////lake/catalog.db", "warehouse": "file:///lake"}


def connections(kafka: dict[str, str], deployment: str = "dev") -> str:
    return connections_text(kafka, CATALOG, deployment=deployment, kafka_name="main", catalog_name="lake")


def draft(columns: Schema, **changes: str) -> Draft:
    names = {"name": "flights", "topic": "Air.Flights", "table": "raw.flights", "kafka": "main", "catalog": "lake"}
    return Draft(**{**names, **changes}, columns=columns, sampled=1)


def test_what_is_written_is_what_is_loaded(tmp_path: Path) -> None:
    columns = infer_schema([b'{"on": 1, "a: #b": {"\\"q\\"": [true]}, "~": "2024-05-31", "x": null, "1": 1.5}'])
    (tmp_path / "connections.yaml").write_text(connections(KAFKA), encoding="utf-8")
    (tmp_path / "pipeline.yaml").write_text(pipeline_text(draft(columns)), encoding="utf-8")
    loaded = load(tmp_path / "pipeline.yaml")
    wanted = loaded.tables[0].auto_create
    assert wanted is not None
    assert wanted.columns == {
        "on": "long",
        "a: #b": 'struct<`"q"`: list<boolean>>',
        "~": "date",
        "x": "string",
        "1": "double",
    }
    assert loaded.config.source.topics == ("Air.Flights",)
    assert dict(loaded.kafka.properties) == KAFKA
    assert dict(loaded.catalog.properties) == CATALOG


def test_a_registry_and_its_format_are_written_too(tmp_path: Path) -> None:
    registry = RegistrySettings("main", {"url": "http://localhost:8081"})
    value = ValueSettings("avro", registry)
    text = connections_text(KAFKA, CATALOG, deployment="dev", kafka_name="main", catalog_name="lake", registry=registry)
    (tmp_path / "connections.yaml").write_text(text, encoding="utf-8")
    file = replace(draft(infer_schema([b'{"id": 1}'])), value=value)
    (tmp_path / "pipeline.yaml").write_text(pipeline_text(file), encoding="utf-8")
    assert load(tmp_path / "pipeline.yaml").readings.default.value == value


def test_the_suggested_partition_term_takes_the_first_time_column() -> None:
    text = pipeline_text(draft(infer_schema([b'{"id": 1, "at": "2024-05-31T10:00:00Z", "day": "2024-05-31"}'])))
    assert '# partition_by: ["day(at)"]' in text
    assert '# partition_by: ["day(_kafka.timestamp)"]' in pipeline_text(draft(infer_schema([b'{"id": 1}'])))


def test_what_the_sample_could_not_tell_is_a_comment_at_the_column() -> None:
    assert f"x: string  # {ONLY_NULL}" in pipeline_text(draft(infer_schema([b'{"x": null}'])))


def test_a_reference_stays_and_a_literal_secret_is_refused() -> None:
    assert "sasl.password: ${ENV:PASSWORD}" in connections({**KAFKA, "sasl.password": "${ENV:PASSWORD}"})
    with raises(Code.LITERAL_SECRET, "sasl.password") as raised:
        connections({**KAFKA, "sasl.password": "hidden"})
    assert "hidden" not in str(raised.value)


def test_what_no_file_may_say_is_refused_before_it_is_written() -> None:
    with raises(Code.SETTINGS, "kafka.main.group.id"):
        connections({**KAFKA, "group.id": "mine"})
    with raises(Code.SETTINGS, "name: "):
        pipeline_text(draft(infer_schema([b'{"id": 1}']), name="Not A Name"))
    with raises(Code.SETTINGS, "tables.0.name: ", "'flights'"):
        pipeline_text(draft(infer_schema([b'{"id": 1}']), table="flights"))


@pytest.mark.parametrize(
    ("topic", "name"),
    [("Air.Flights-v2", "air_flights_v2"), ("2024", "t_2024"), ("__x__", "x"), ("a" * 60, "a" * 41)],
)
def test_a_topic_gives_a_name(topic: str, name: str) -> None:
    assert name_from(topic) == name


@pytest.mark.parametrize(
    ("uri", "warehouse", "keys"),
    [
        (None, None, {"type": "sql", "uri": "sqlite:////l/catalog.db", "warehouse": "file:///l/warehouse"}),
        ("https://c/api", None, {"type": "rest", "uri": "https://c/api"}),
        ("https://c/api", "prod", {"type": "rest", "uri": "https://c/api", "warehouse": "prod"}),
        ("thrift://h:9083", None, {"type": "hive", "uri": "thrift://h:9083"}),
        ("postgresql://h/d", "s3://b/w", {"type": "sql", "uri": "postgresql://h/d", "warehouse": "s3://b/w"}),
    ],
)
def test_the_catalogs_type_follows_from_its_address(
    uri: str | None, warehouse: str | None, keys: dict[str, str]
) -> None:
    assert catalog_keys(Path("/l"), uri, warehouse) == keys


def test_a_connection_is_named_when_there_are_several() -> None:
    assert only_name("kafka", {"main": 1}, None) == "main"
    assert only_name("kafka", {"main": 1, "other": 2}, "other") == "other"
    with raises(Code.CONNECTION, 2, "kafka", "main"):
        only_name("kafka", {"main": 1, "other": 2}, None)
    with raises(Code.CONNECTION, "kafka", "mian", "main"):
        only_name("kafka", {"main": 1}, "mian")
