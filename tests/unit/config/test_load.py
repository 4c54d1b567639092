"""Files become a pipeline, or one error that says all that is to be corrected."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.sink_core.config.load import load
from calve.sink_core.config.references import redact, resolve
from calve.sink_core.config.topics import StartAtGroup, StartAtTimestamp
from calve.sink_core.error_codes.code import ErrorCode
from calve.sink_core.error_codes.files import NO_SUCH_FILE, SETTINGS, UNREADABLE_FILE, WHICH_DOCUMENT
from calve.sink_core.error_codes.records import SCHEMA_FILE
from calve.sink_core.errors import ConfigError
from tests.codes import raises
from tests.unit.config.files import CONNECTIONS, PIPELINE, Load, Write, refused


def test_a_short_file_is_enough(loaded: Load) -> None:
    pipeline = loaded()
    assert pipeline.config.batch.max_records == 10_000_000
    assert pipeline.config.batch.max_bytes == 4 * 2**30
    assert pipeline.config.batch.min_task_bytes == 16 * 2**20
    assert (pipeline.config.run.max_batches, pipeline.config.run.max_duration) == (30, 600.0)
    assert pipeline.config.commit.every == "batch"
    assert pipeline.spark.master == "local[*]"


def test_connections_written_inline(loaded: Load) -> None:
    pipeline = loaded(
        source={"kafka": {"bootstrap.servers": "b:1", "fetch.max.bytes": 5}, "topics": ["t"]},
        catalog={"name": "ice", "type": "rest", "uri": "http://c", "py-io-impl": "x", "spark": {"io-impl": "y"}},
        spark={"master": "spark://m:7077", "conf": {"spark.executor.cores": 2}, "tasks": 8, "driver_memory": "2GiB"},
    )
    assert pipeline.kafka.properties == {"bootstrap.servers": "b:1", "fetch.max.bytes": 5}
    assert pipeline.catalog.name == "ice"
    assert pipeline.catalog.properties == {"type": "rest", "uri": "http://c", "py-io-impl": "x"}
    assert pipeline.catalog.spark == {"io-impl": "y"}
    assert (pipeline.spark.tasks, pipeline.spark.driver_memory) == (8, 2 * 2**30)


def test_a_dagster_definition_is_a_pipeline_file(tmp_path: Path, write: Write) -> None:
    write()
    definition = tmp_path / "defs.yaml"
    definition.write_text(
        yaml.safe_dump({"type": "calve.KafkaIcebergPipeline", "attributes": PIPELINE}), encoding="utf-8"
    )
    assert load(definition).config == load(tmp_path / "pipeline.yaml").config
    broken = {"type": "x", "attributes": PIPELINE | {"batch": {"max_recrods": 5}}}
    definition.write_text(yaml.safe_dump(broken, sort_keys=False), encoding="utf-8")
    line = definition.read_text(encoding="utf-8").splitlines().index("    max_recrods: 5") + 1
    with raises(SETTINGS, "defs.yaml", line, "batch.max_recrods", "max_records"):
        load(definition)


@pytest.mark.parametrize(
    ("start", "read"),
    [
        ("latest", "latest"),
        ({"timestamp": "2026-01-31T00:00:00Z"}, StartAtTimestamp(timestamp=datetime(2026, 1, 31, tzinfo=UTC))),
        ({"group": "old"}, StartAtGroup(group="old")),
    ],
)
def test_where_a_pipeline_begins(loaded: Load, start: object, read: object) -> None:
    pipeline = loaded(source={"kafka": "main", "topics": ["t"], "start": start})
    assert pipeline.config.source.start == read


def test_a_schema_file_is_read_from_the_pipelines_folder(tmp_path: Path, loaded: Load) -> None:
    with raises(SCHEMA_FILE, "source.value.schema", "a.avsc"):
        loaded(**_source(value={"type": "avro", "schema": "a.avsc"}))
    (tmp_path / "a.avsc").write_bytes(b"\xff")
    with raises(SCHEMA_FILE, "a.avsc", "UTF-8"):
        loaded(**_source(value={"type": "avro", "schema": "a.avsc"}))
    (tmp_path / "a.avsc").write_text('"string"', encoding="utf-8")
    schema = loaded(**_source(value={"type": "avro", "schema": "a.avsc"})).readings.default.value.schema
    assert schema is not None
    assert schema.text == '"string"'


def _source(**changes: object) -> dict[str, object]:
    return {"source": PIPELINE["source"] | changes}


def _upsert(**changes: object) -> dict[str, object]:
    table = {"name": "a.b", "mode": "upsert", "key": ["id"]} | changes
    return {"tables": [{key: value for key, value in table.items() if value is not None}]}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch": {"max_recrods": 5}}, ["batch.max_recrods", "max_records"]),
        ({"zzz": 5}, ["zzz", "batch", "catalog", "commit"]),
        ({"<key>": 5}, ["<key>", "batch", "catalog", "commit"]),
        ({"branch": "audit"}, ["branch", "batch"]),
        ({"tables": [{"name": "air.flights", "branch": "audit"}]}, ["tables.0.branch", "auto_create", "write_mode"]),
        ({"name": "Flights"}, ["name", "'Flights'", "^[a-z][a-z0-9_]{0,40}$"]),
        ({"kind": ["sink"]}, ["kind", "mirror", "sink"]),
        ({"kind": "sync"}, ["kind", "'sync'", "mirror", "sink"]),
        (_source(topics=[]), ["source", "topics_regex"]),
        (_source(topics=["air", "air"]), ["source.topics", "air", "2"]),
        (_source(topics_regex="("), ["source.topics_regex", "'('"]),
        (
            {**_source(value={"type": "string"}), "tables": [{"name": "a.b", "where": {"field": "x", "matches": "y"}}]},
            ["tables.0.where", "string"],
        ),
        (_source(value={"type": "protobuf"}), ["source.value", "protobuf", "registry"]),
        (
            _source(value={"type": "json_schema", "registry": "m", "schema": "a"}),
            ["source.value", "json_schema", "registry", "schema"],
        ),
        (
            _source(value={"type": "connect_json", "registry": "m"}),
            ["source.value", "connect_json", "registry"],
        ),
        (_source(value={"type": "avro"}), ["source.value", "avro", "registry", "schema"]),
        (
            _source(value={"type": "avro", "registry": "main", "schema": "a.avsc"}),
            ["source.value", "avro", "registry", "schema"],
        ),
        (_source(value={"schema": "a.avsc"}), ["source.value", "schema", "avro", "json"]),
        (
            _source(value={"type": "avro", "registry": "mian"}),
            ["source.value.registry", "connections.yaml", "'mian'"],
        ),
        (_source(key={"type": "json"}), ["source.key", "json"]),
        (_source(key={"type": "string", "as": "long"}), ["source.key", "string"]),
        (_source(key={"type": "avro", "as": "long"}), ["source.key", "avro", "registry", "schema"]),
        (
            _source(formats=[{"topics": ["flights"], "key": {"type": "avro", "as": "long", "registry": "mian"}}]),
            ["source.formats.0.key.registry", "connections.yaml", "'mian'"],
        ),
        (_source(formats=[{"key": {"type": "none"}}]), ["source.formats.0", "topics_regex"]),
        (_source(formats=[{"topics": ["flights"]}]), ["source.formats.0", "key", "value"]),
        (
            _source(formats=[{"topics": ["other"], "key": {"type": "none"}}]),
            ["source.formats.0.topics", "other"],
        ),
        (
            _source(formats=[{"topics_regex": "other.*", "key": {"type": "none"}}]),
            ["source.formats.0.topics_regex"],
        ),
        (
            _source(
                formats=[
                    {"topics": ["flights"], "key": {"type": "none"}},
                    {"topics_regex": "fl.*", "value": {"type": "string"}},
                ]
            ),
            ["source.formats.1", "flights", "formats.0"],
        ),
        (
            {
                **_source(formats=[{"topics": ["flights"], "value": {"type": "bytes"}}]),
                "tables": [{"name": "a.b", "where": {"field": "x", "matches": "y"}}],
            },
            ["tables.0.where", "bytes"],
        ),
        (_source(start="first"), ["source.start", "'earliest'", "'latest'", "'first'"]),
        (_source(start={"timestamp": "2026-01-31T00:00:00"}), ["source.start.timestamp", "'2026-01-31T00:00:00'"]),
        (_source(start={"group": "g", "timestmp": 1}), ["source.start.timestmp", "timestamp"]),
        (_source(kafka="mian"), ["source.kafka", "connections.yaml", "'mian'", "main"]),
        (_source(kafka={"client.id": "x"}), ["source.kafka.bootstrap.servers"]),
        ({"catalog": {"uri": "http://c"}}, ["catalog", "type", "rest", "sql", "hive", "glue"]),
        ({"spark": "small"}, ["spark", "connections.yaml", "'small'", "big"]),
        ({"spark": {"conf": {}}}, ["spark", "master", "remote"]),
        ({"spark": {"master": "a", "remote": "b"}}, ["spark", "master", "remote"]),
        ({"tables": []}, ["tables"]),
        ({"tables": [{"name": "flights"}]}, ["tables.0.name", "'flights'"]),
        (
            {"tables": [{"name": "a.b", "mode": "merge"}]},
            ["tables.0.mode", "merge", "upsert", "cdc", "write_mode: merge"],
        ),
        ({"tables": [{"name": "a.b", "key": ["id"]}]}, ["tables.0.key", "upsert", "cdc"]),
        (_upsert(key=["id", "id"]), ["tables.0.key"]),
        (_upsert(key=["a.id"]), ["tables.0.key.0", "'a.id'"]),
        (_upsert(key="id"), ["tables.0.key", "'kafka'", "'id'"]),
        (
            _upsert(key="kafka") | _source(key={"type": "none"}),
            ["tables.0.key", "kafka", "source.key", "source.formats", "type: none"],
        ),
        (
            _upsert(key="kafka", mode="cdc") | _source(value={"type": "string"}),
            ["tables.0.mode", "string"],
        ),
        (_upsert(key=None, auto_create={}), ["tables.0.key", "mode: upsert"]),
        ({"tables": [{"name": "a.b", "deletes": "soft"}]}, ["tables.0.deletes", "upsert", "cdc"]),
        (_upsert(order_by="lsn") | {"commit": {"every": "1m"}}, ["tables.0.order_by", "commit.every: batch"]),
        (_upsert() | {"commit": {"every": "1m"}}, ["tables.0.on_moved_key", "commit.every: batch"]),
        (_upsert(auto_create={}, kafka_column=False), ["tables.0.on_moved_key", "_kafka"]),
        ({"tables": [{"name": "a.b", "order_by": "lsn"}]}, ["tables.0.order_by", "upsert", "cdc"]),
        (
            _upsert(mode="cdc", unavailable_value="keep-old"),
            ["tables.0.unavailable_value", "keep-old", "mode: cdc", "write_mode: merge"],
        ),
        (_upsert(write_mode="merge", unavailable_value="keep-old"), ["tables.0.unavailable_value", "mode: cdc"]),
        (
            _upsert(mode="cdc", write_mode="merge", unavailable_value="keep-old", order_by="ts_ms", deletes="soft"),
            ["tables.0.unavailable_value", "keep-old", "order_by"],
        ),
        (_upsert(mode="cdc", order_by="ts_ms"), ["tables.0.order_by", "deletes: soft", "mode: cdc"]),
        (_upsert(mode="cdc", order_by="after.at", deletes="soft"), ["tables.0.order_by", "source.lsn"]),
        (_upsert(mode="cdc", envelope="maxwell"), ["tables.0.envelope", "'maxwell'"]),
        (_upsert(op_field="Op"), ["tables.0.op_field", "mode: cdc"]),
        (
            _upsert(mode="cdc", op_field="Op", envelope="dms"),
            ["tables.0.op_field", "envelope", "dms"],
        ),
        (_upsert(mode="cdc", op_field="Op", order_by="at"), ["tables.0.order_by", "deletes: soft", "mode: cdc"]),
        (_upsert(history="replay"), ["tables.0.history", "replay", "mode: upsert"]),
        (_upsert(mode="cdc", evolve=["make_optional"]), ["tables.0.evolve", "make_optional", "mode: cdc"]),
        (_upsert(evolve=["make_optional"]), ["tables.0.evolve", "make_optional", "mode: upsert"]),
        (
            _upsert() | {"table_defaults": {"evolve": ["make_optional"]}},
            ["tables.0.evolve", "make_optional", "mode: upsert"],
        ),
        (_upsert(where={"field": "x", "matches": "y"}), ["tables.0.where", "mode: upsert"]),
        (
            _upsert(mode="cdc", where={"field": "after.country", "matches": "nl"}),
            ["tables.0.where", "mode: cdc", "source.db", "source.schema", "source.table"],
        ),
        (
            _upsert(mode="cdc", envelope="dms", where={"field": "source.table", "matches": "t"}),
            ["tables.0.where", "mode: cdc", "metadata.schema-name", "metadata.table-name"],
        ),
        (
            _upsert(mode="cdc", op_field="Op", where={"field": "table", "matches": "t"}),
            ["tables.0.where", "mode: cdc"],
        ),
        (
            _upsert(mode="cdc", key="kafka", where={"field": "source.table", "matches": "t"}),
            ["tables.0.key", "kafka", "where"],
        ),
        (_upsert(transform={"select": "id"}), ["tables.0.transform", "mode: upsert"]),
        (
            _upsert() | _source(value={"type": "string"}),
            ["tables.0.mode", "string", "key: kafka"],
        ),
        ({"tables": [{"name": "a.b"}, {"name": "a.b"}]}, ["tables", "a.b", "2"]),
        ({"tables": [{"name": "calve.flights_ledger"}]}, ["tables", "calve.flights_ledger"]),
        ({"dead_letters": {"table": "air.flights"}}, ["dead_letters.table", "air.flights", "tables"]),
        ({"dead_letters": {"stop_above": 5}}, ["dead_letters.stop_above", "5"]),
        ({"run": {"max_duration": "0s"}}, ["run.max_duration", "0"]),
        ({"commit": {"every": "1 minute"}}, ["commit.every", "'1 minute'", "'minute'"]),
        ({"source": {"kafka": "main", "topics": "air"}}, ["source.topics", "[air]"]),
        (
            {"maintenance": {"off": ["vacuum"]}},
            ["maintenance.off.0", "'compact'", "'manifests'", "'expire'", "'vacuum'"],
        ),
        ({"maintenance": {"compact": {"cron": "daily"}}}, ["maintenance.compact.cron", "'daily'"]),
        (
            {"maintenance": {"orphans": {"cron": "0 3 * * 0", "older_than": "2d"}}},
            ["maintenance.orphans.older_than", "3d"],
        ),
        (
            {"maintenance": {"expire": {"cron": "0 * * * *", "keep_at_most": 5, "retain_last": 9}}},
            ["maintenance.expire", "keep_at_most 5", "retain_last 9"],
        ),
    ],
)
def test_a_refused_pipeline_file(loaded: Load, changes: dict[str, object], named: list[str]) -> None:
    with refused("pipeline.yaml", *named):
        loaded(**changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"deployment": "Prod"}, ["deployment", "'Prod'"]),
        ({"kafak": {}}, ["kafak", "kafka"]),
        ({"spark": {"big": {"mster": "local"}}}, ["spark.big.mster", "master"]),
        ({"kafka": {"main": {}}}, ["kafka.main.bootstrap.servers"]),
        (
            {"kafka": {"main": {"bootstrap.servers": ["a"]}}},
            ["kafka.main.bootstrap.servers", "string", "list"],
        ),
        (
            {"kafka": {"main": {"bootstrap.servers": "a", "sasl.password": None}}},
            ["kafka.main.sasl.password"],
        ),
        ({"kafka": {"main": {"bootstrap.servers": "a", "x": [1]}}}, ["kafka.main.x"]),
        ({"catalog": {"lake": {"type": "rest", "token": "${TOKEN}"}}}, ["catalog.lake.token", "${ENV:NAME}"]),
        (
            {"catalog": {"lake": {"type": "rest", "token": "{{ env('TOKEN') }}"}}},
            ["catalog.lake.token", "{{ env.NAME }}"],
        ),
        (
            {"catalog": {"lake": {"type": "rest", "auth": {"basic": {"user": None}}}}},
            ["catalog.lake.auth", "basic: user"],
        ),
    ],
)
def test_a_refused_connections_file(loaded: Load, changes: dict[str, Any], named: list[str]) -> None:
    with refused("connections.yaml", *named):
        loaded(connections=changes)


@pytest.mark.parametrize(
    "key",
    [
        "group.id",
        "transactional.id",
        "enable.auto.commit",
        "isolation.level",
        "auto.offset.reset",
        "enable.partition.eof",
        "enable.idempotence",
    ],
)
def test_keys_that_decide_about_exactly_once_are_refused_with_a_reason(loaded: Load, key: str) -> None:
    with refused("connections.yaml", f"kafka.main.{key}"):
        loaded(connections={"kafka": {"main": {"bootstrap.servers": "a", key: "x"}}})


def test_all_problems_of_both_files_are_listed_in_their_order(loaded: Load) -> None:
    with raises(SETTINGS) as caught:
        loaded(connections={"deployment": "?"}, name="?", tables=[{"name": "a"}, {"name": "b"}], run={"linger": 5})
    lines = caught.value.message.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "name",
        "tables.0.name",
        "tables.1.name",
        "run.linger",
        "deployment",
    ]


@pytest.mark.parametrize("missing", ["pipeline.yaml", "connections.yaml"])
def test_a_missing_file_is_named(tmp_path: Path, write: Write, missing: str) -> None:
    path = write()
    (tmp_path / missing).unlink()
    with raises(NO_SUCH_FILE, missing):
        load(path)


def test_dagsters_templates_are_references(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = loaded(
        connections={"catalog": {"lake": {"type": "rest", "token": "{{ env.TOKEN }}", "uri": "http://a"}}}
    )
    assert pipeline.catalog.properties["token"] == "${ENV:TOKEN}"
    assert redact(pipeline.catalog.properties)["token"] == "${ENV:TOKEN}"
    monkeypatch.setenv("TOKEN", "s3cr3t")
    assert resolve(pipeline.catalog.properties)["token"] == "s3cr3t"


def test_connections_may_stand_elsewhere(tmp_path: Path, write: Write) -> None:
    path = write()
    elsewhere = tmp_path / "prod.yaml"
    elsewhere.write_text(yaml.safe_dump(CONNECTIONS | {"deployment": "prod"}), encoding="utf-8")
    assert load(path, elsewhere).deployment == "prod"


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("name: a\nsource:\n  kafka: x\n  kafka: y\n", UNREADABLE_FILE, ["4: source.kafka: "]),
        ("tables:\n- name: a\n  name: b\n", UNREADABLE_FILE, ["3: tables.0.name: "]),
        ("name: [a\n", UNREADABLE_FILE, ["2: "]),
        ("name: a\x07", UNREADABLE_FILE, []),
        ("- name\n", UNREADABLE_FILE, []),
        ("", UNREADABLE_FILE, []),
        ("name: a\n---\nname: b\n", WHICH_DOCUMENT, [2]),
        ("name: {{ env.NAME }}\n", UNREADABLE_FILE, ["1: ", "{{ env.NAME }}"]),
        ("name: !!python/object:os.system x\n", UNREADABLE_FILE, ["1: ", "*", "&", "!"]),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, code: ErrorCode, named: list[object]) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    with raises(code, path, *named):
        load(path)


def test_merged_keys_may_be_overridden(tmp_path: Path, write: Write) -> None:
    write()
    path = tmp_path / "merged.yaml"
    text = yaml.safe_dump(PIPELINE | {"tables": []}).replace("tables: []", "")
    tables = "tables:\n- &t {name: a.b, kafka_column: false}\n- {<<: *t, name: a.c}\n"
    path.write_text(text + tables, encoding="utf-8")
    assert [(t.name, t.kafka_column) for t in load(path).tables] == [("a.b", False), ("a.c", False)]


@pytest.mark.parametrize(
    "value", ["hunter2", "*hunter2", "!hunter2", "&hunter2 &hunter2 x", "[hunter2", "{a: [hunter2]}"]
)
def test_errors_and_tracebacks_hold_no_secret(tmp_path: Path, write: Write, value: str) -> None:
    path = write(name="?")
    (tmp_path / "connections.yaml").write_text(
        f"deployment: '?'\nkafka:\n  main:\n    bootstrap.servers: {{}}\n    sasl.password: {value}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
