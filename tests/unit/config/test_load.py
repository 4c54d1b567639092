"""Files become a pipeline, or one error that says all that is to be corrected."""

from __future__ import annotations

import re
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.sink_core.config.load import load
from calve.sink_core.config.references import redact, resolve
from calve.sink_core.config.topics import StartAtGroup, StartAtTimestamp
from calve.sink_core.error_codes.files import NO_SUCH_FILE, SETTINGS
from calve.sink_core.error_codes.records import SCHEMA_FILE
from calve.sink_core.errors import ConfigError
from tests.codes import raises
from tests.unit.config.files import CONNECTIONS, PIPELINE, Load, Write


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
    ("changes", "message"),
    [
        ({"batch": {"max_recrods": 5}}, "batch.max_recrods: unknown; did you mean max_records?"),
        ({"zzz": 5}, "zzz: unknown; known here: batch, catalog, commit,"),
        ({"<key>": 5}, "<key>: unknown; "),
        ({"branch": "audit"}, "branch: unknown; "),
        ({"tables": [{"name": "air.flights", "branch": "audit"}]}, "tables.0.branch: unknown; "),
        ({"name": "Flights"}, "name: 'Flights' doesn't match ^[a-z][a-z0-9_]{0,40}$"),
        ({"kind": ["sink"]}, "kind: known here: mirror, sink"),
        ({"kind": "sync"}, "kind: 'sync' is no kind; known here: mirror, sink"),
        (_source(topics=[]), "source: needs topics, or topics_regex; neither given"),
        (_source(topics=["a", "a"]), "source.topics: a is named 2 times; name each topic once"),
        (_source(topics_regex="("), "source.topics_regex: '(' is no regular expression"),
        (
            {**_source(value={"type": "string"}), "tables": [{"name": "a.b", "where": {"field": "x", "matches": "y"}}]},
            "tables.0.where: a value of type string has no fields",
        ),
        (_source(value={"type": "protobuf"}), "source.value: protobuf needs registry"),
        (_source(value={"type": "json_schema", "registry": "m", "schema": "a"}), "json_schema needs registry, without"),
        (
            _source(value={"type": "connect_json", "registry": "m"}),
            "registry goes with type: avro, json_schema or protobuf; leave it out for connect_json",
        ),
        (_source(value={"type": "avro"}), "source.value: avro needs exactly one of registry and schema, neither given"),
        (
            _source(value={"type": "avro", "registry": "main", "schema": "a.avsc"}),
            "source.value: avro needs exactly one of registry and schema, both given",
        ),
        (_source(value={"schema": "a.avsc"}), "source.value: schema goes with type: avro; leave it out for json"),
        (
            _source(value={"type": "avro", "registry": "mian"}),
            "source.value.registry: connections.yaml has no registry named 'mian' (it has none)",
        ),
        (_source(key={"type": "json"}), "source.key: json needs as"),
        (_source(key={"type": "string", "as": "long"}), "source.key: string is read as it is; leave as out"),
        (_source(key={"type": "avro", "as": "long"}), "source.key: avro needs exactly one of registry and schema"),
        (
            _source(formats=[{"topics": ["flights"], "key": {"type": "avro", "as": "long", "registry": "mian"}}]),
            "source.formats.0.key.registry: connections.yaml has no registry named 'mian'",
        ),
        (_source(formats=[{"key": {"type": "none"}}]), "source.formats.0: needs topics, or topics_regex; neither"),
        (_source(formats=[{"topics": ["flights"]}]), "source.formats.0: needs key, or value; neither given"),
        (
            _source(formats=[{"topics": ["other"], "key": {"type": "none"}}]),
            "source.formats.0.topics: other is not a topic of source",
        ),
        (
            _source(formats=[{"topics_regex": "other.*", "key": {"type": "none"}}]),
            "source.formats.0.topics_regex: no topic of source matches",
        ),
        (
            _source(
                formats=[
                    {"topics": ["flights"], "key": {"type": "none"}},
                    {"topics_regex": "fl.*", "value": {"type": "string"}},
                ]
            ),
            "source.formats.1: flights is of formats.0 as well; leave it out of one",
        ),
        (
            {
                **_source(formats=[{"topics": ["flights"], "value": {"type": "bytes"}}]),
                "tables": [{"name": "a.b", "where": {"field": "x", "matches": "y"}}],
            },
            "tables.0.where: a value of type bytes has no fields",
        ),
        (_source(start="first"), "source.start: input should be 'earliest' or 'latest'; given 'first'"),
        (_source(start={"timestamp": "2026-01-31T00:00:00"}), "source.start.timestamp: input should have timezone"),
        (_source(start={"group": "g", "timestmp": 1}), "source.start.timestmp: unknown; did you mean timestamp?"),
        (_source(kafka="mian"), "source.kafka: connections.yaml has no kafka named 'mian' (it has main); did you mean"),
        (_source(kafka={"client.id": "x"}), "source.kafka.bootstrap.servers: missing"),
        ({"catalog": {"uri": "http://c"}}, "catalog: has no type; set type: rest, sql, hive or glue"),
        ({"spark": "small"}, "spark: connections.yaml has no spark named 'small' (it has big); known here: big"),
        ({"spark": {"conf": {}}}, "spark: needs exactly one of master and remote, neither given"),
        ({"spark": {"master": "a", "remote": "b"}}, "spark: needs exactly one of master and remote, both given"),
        ({"tables": []}, "tables: is empty; name at least one"),
        ({"tables": [{"name": "flights"}]}, "tables.0.name: 'flights' isn't a table name; write namespace.table"),
        (
            {"tables": [{"name": "a.b", "mode": "merge"}]},
            "tables.0.mode: merge is a way to write: say mode: upsert or cdc, and write_mode: merge",
        ),
        ({"tables": [{"name": "a.b", "key": ["id"]}]}, "tables.0.key: goes with mode: upsert or cdc"),
        (_upsert(key=["id", "id"]), "tables.0.key: names a column twice"),
        (_upsert(key=["a.id"]), "tables.0.key.0: 'a.id' isn't a column"),
        (_upsert(key="id"), "tables.0.key: "),
        (
            _upsert(key="kafka") | _source(key={"type": "none"}),
            "tables.0.key: kafka needs keys; source.key, or that of a topic in source.formats, has type: none",
        ),
        (
            _upsert(key="kafka", mode="cdc") | _source(value={"type": "string"}),
            "tables.0.mode: a value of type string says nothing of what became of a row",
        ),
        (_upsert(key=None, auto_create={}), "tables.0.key: missing; a table that is created for mode: upsert needs it"),
        ({"tables": [{"name": "a.b", "deletes": "soft"}]}, "tables.0.deletes: goes with mode: upsert or cdc"),
        (_upsert(order_by="lsn") | {"commit": {"every": "1m"}}, "tables.0.order_by: needs commit.every: batch: each"),
        (_upsert() | {"commit": {"every": "1m"}}, "tables.0.on_moved_key: stop needs commit.every: batch: each batch"),
        (_upsert(auto_create={}, kafka_column=False), "tables.0.on_moved_key: stop needs the column _kafka of a table"),
        ({"tables": [{"name": "a.b", "order_by": "lsn"}]}, "tables.0.order_by: goes with mode: upsert or cdc"),
        (
            _upsert(mode="cdc", unavailable_value="keep-old"),
            "tables.0.unavailable_value: keep-old needs mode: cdc and write_mode: merge: only a merge looks at the row",
        ),
        (_upsert(write_mode="merge", unavailable_value="keep-old"), "tables.0.unavailable_value: keep-old needs mode:"),
        (
            _upsert(mode="cdc", write_mode="merge", unavailable_value="keep-old", order_by="ts_ms", deletes="soft"),
            "tables.0.unavailable_value: keep-old goes without order_by: a late change may have the value that a newer",
        ),
        (_upsert(mode="cdc", order_by="ts_ms"), "tables.0.order_by: needs deletes: soft with mode: cdc"),
        (_upsert(mode="cdc", order_by="after.at", deletes="soft"), "tables.0.order_by: names a field of the row"),
        (_upsert(mode="cdc", envelope="maxwell"), "tables.0.envelope: "),
        (_upsert(op_field="Op"), "tables.0.op_field: goes with mode: cdc; other records don't say"),
        (
            _upsert(mode="cdc", op_field="Op", envelope="dms"),
            "tables.0.op_field: stands in place of envelope, which is",
        ),
        (_upsert(mode="cdc", op_field="Op", order_by="at"), "tables.0.order_by: needs deletes: soft with mode: cdc"),
        (_upsert(history="replay"), "tables.0.history: replay would put old records over newer ones"),
        (_upsert(mode="cdc", evolve=["make_optional"]), "tables.0.evolve: make_optional could make the key optional"),
        (_upsert(evolve=["make_optional"]), "tables.0.evolve: make_optional could make the key optional"),
        (
            _upsert() | {"table_defaults": {"evolve": ["make_optional"]}},
            "tables.0.evolve: make_optional could make the key optional",
        ),
        (_upsert(where={"field": "x", "matches": "y"}), "tables.0.where: not available yet with mode: upsert"),
        (
            _upsert(mode="cdc", where={"field": "after.country", "matches": "nl"}),
            "tables.0.where: not available yet with mode: cdc: a record that is left out may be a row's last change; "
            "only by which table it is of: source.db, source.schema, source.table",
        ),
        (
            _upsert(mode="cdc", envelope="dms", where={"field": "source.table", "matches": "t"}),
            "tables.0.where: not available yet with mode: cdc: a record that is left out may be a row's last change; "
            "only by which table it is of: metadata.schema-name, metadata.table-name",
        ),
        (
            _upsert(mode="cdc", op_field="Op", where={"field": "table", "matches": "t"}),
            "tables.0.where: not available yet with mode: cdc: a record that is left out may be a row's last change",
        ),
        (
            _upsert(mode="cdc", key="kafka", where={"field": "source.table", "matches": "t"}),
            "tables.0.key: kafka goes without where: its field tells whose change an event is",
        ),
        (_upsert(transform={"select": "id"}), "tables.0.transform: not available yet with mode: upsert"),
        (
            _upsert() | _source(value={"type": "string"}),
            "tables.0.mode: a value of type string has no columns to tell rows by",
        ),
        ({"tables": [{"name": "a.b"}, {"name": "a.b"}]}, "tables: a.b is named 2 times; name each table once"),
        ({"tables": [{"name": "calve.flights_ledger"}]}, "calve.flights_ledger is this pipeline's ledger"),
        ({"dead_letters": {"table": "air.flights"}}, "dead_letters.table: air.flights is also under tables"),
        ({"dead_letters": {"stop_above": 5}}, "dead_letters.stop_above: 5 is not a percentage"),
        ({"run": {"max_duration": "0s"}}, "run.max_duration: input should be greater than 0; given 0.0"),
        ({"commit": {"every": "1 minute"}}, "commit.every: '1 minute' has the unknown unit 'minute'"),
        ({"source": {"kafka": "main", "topics": "air"}}, "source.topics: takes a list: write [air]"),
        ({"maintenance": {"off": ["vacuum"]}}, "maintenance.off.0: input should be 'compact', 'manifests', 'expire'"),
        ({"maintenance": {"compact": {"cron": "daily"}}}, "maintenance.compact.cron: 'daily' isn't a cron line"),
        (
            {"maintenance": {"orphans": {"cron": "0 3 * * 0", "older_than": "2d"}}},
            "maintenance.orphans.older_than: is too short: a batch in flight could lose its files; set at least 3d",
        ),
        (
            {"maintenance": {"expire": {"cron": "0 * * * *", "keep_at_most": 5, "retain_last": 9}}},
            "maintenance.expire: keep_at_most 5 is less than retain_last 9",
        ),
    ],
)
def test_a_refused_pipeline_file(loaded: Load, changes: dict[str, object], message: str) -> None:
    with raises(SETTINGS) as caught:
        loaded(**changes)
    assert message in str(caught.value)
    assert re.match(r".*pipeline\.yaml:\d+: ", caught.value.message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deployment": "Prod"}, "deployment: 'Prod' doesn't match"),
        ({"kafak": {}}, "kafak: unknown; did you mean kafka?"),
        ({"spark": {"big": {"mster": "local"}}}, "spark.big.mster: unknown; did you mean master?"),
        ({"kafka": {"main": {}}}, "kafka.main.bootstrap.servers: missing; this key is required"),
        (
            {"kafka": {"main": {"bootstrap.servers": ["a"]}}},
            "kafka.main.bootstrap.servers: input should be a valid string",
        ),
        (
            {"kafka": {"main": {"bootstrap.servers": "a", "sasl.password": None}}},
            "kafka.main.sasl.password: has no value",
        ),
        ({"kafka": {"main": {"bootstrap.servers": "a", "x": [1]}}}, "kafka.main.x: takes a single value"),
        ({"catalog": {"lake": {"type": "rest", "token": "${TOKEN}"}}}, "the only form is ${ENV:NAME}"),
        ({"catalog": {"lake": {"type": "rest", "token": "{{ env('TOKEN') }}"}}}, "the only template is {{ env.NAME }}"),
        (
            {"catalog": {"lake": {"type": "rest", "auth": {"basic": {"user": None}}}}},
            "lake.auth: basic: user: has no value",
        ),
    ],
)
def test_a_refused_connections_file(loaded: Load, changes: dict[str, Any], message: str) -> None:
    with raises(SETTINGS) as caught:
        loaded(connections=changes)
    assert message in str(caught.value)
    assert "connections.yaml:" in str(caught.value)


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
    with raises(SETTINGS, "kafka.main", key):
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
    ("text", "message"),
    [
        ("name: a\nsource:\n  kafka: x\n  kafka: y\n", "4: source.kafka: given twice"),
        ("tables:\n- name: a\n  name: b\n", "3: tables.0.name: given twice"),
        ("name: [a\n", "is not YAML"),
        ("name: a\x07", "is not YAML"),
        ("- name\n", "holds no mapping"),
        ("", "holds no mapping"),
        ("name: a\n---\nname: b\n", "holds 2 YAML documents"),
        ("name: {{ env.NAME }}\n", "a template such as {{ env.NAME }} needs quotes around it"),
        ("name: !!python/object:os.system x\n", "quote a value that begins with"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert message in str(caught.value)


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
