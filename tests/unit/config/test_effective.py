"""The pipeline as the rest of Calve sees it: derived names, fingerprints, what is shown."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import yaml

from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from tests.codes import raises
from tests.unit.config.files import Load


def test_derived_names(loaded: Load) -> None:
    pipeline = loaded()
    assert pipeline.group == "calve.dev.flights"
    assert pipeline.control_topic == "calve.dev.flights.control"
    assert pipeline.transactional_id == "calve.dev.flights.publisher"
    assert pipeline.tag == "calve-flights"
    assert pipeline.ledger_table == "calve.flights_ledger"
    assert pipeline.dead_letter_table == "calve.flights_dead_letters"
    assert loaded(dead_letters={"table": "air.bad"}).dead_letter_table == "air.bad"


def test_a_renamed_pipeline_keeps_its_ids(loaded: Load) -> None:
    before, renamed = loaded(), loaded(name="departures", takes_over="flights")
    assert renamed.name == "departures"
    for derived in ("group", "control_topic", "transactional_id", "tag", "ledger_table", "dead_letter_table"):
        assert getattr(renamed, derived) == getattr(before, derived)


def test_tables_take_what_they_leave_out_from_the_defaults(loaded: Load) -> None:
    pipeline = loaded(
        table_defaults={"target_file_size": "1GiB", "kafka_column": False, "evolve": ["widen"]},
        tables=[{"name": "a.b"}, {"name": "a.c", "target_file_size": "1MiB", "kafka_column": True, "evolve": []}],
    )
    first, second = pipeline.tables
    assert (first.target_file_bytes, first.kafka_column, first.evolve) == (2**30, False, ("widen",))
    assert (second.target_file_bytes, second.kafka_column, second.evolve) == (2**20, True, ())
    sizes = [pipeline.target_file_size(name) for name in ("a.b", "a.c", pipeline.ledger_table)]
    assert [(size.bytes, size.stated) for size in sizes] == [(2**30, True), (2**20, True), (2**30, True)]


def test_a_table_with_the_kafka_key_takes_topics_whose_keys_are_of_one_type(loaded: Load) -> None:
    other = {"topics": ["b"], "key": {"type": "json", "as": "struct<id: long>"}}
    source = {"kafka": "main", "topics": ["a", "b"], "key": {"type": "string"}, "formats": [other]}
    table = {"name": "a.b", "mode": "upsert", "key": "kafka"}
    of_each = loaded(source=source, tables=[{**table, "topics": ["b"]}, {**table, "name": "a.c", "topics": ["a"]}])
    assert [settings.kafka_key for settings in of_each.tables] == ["struct<id: long>", "string"]
    both = loaded(source=source, tables=[table])
    of_each_type = ["string", "struct<id: long>", "source.key", "source.formats.0.key"]
    with raises(Code.KEYS_DIFFER, "a.b", *of_each_type):
        _ = both.tables


def test_hosts_that_spell_the_same_catalog_differently_agree(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_TEST_DB", "postgresql://ann:hunter2@db:5432/lake?sslmode=require")
    monkeypatch.setenv("CALVE_TEST_PASSWORD", "other")
    lake = {"type": "sql", "warehouse": "s3://lake/", "s3.secret-access-key": "hunter2"}
    one = loaded({"catalog": {"lake": {**lake, "uri": "${ENV:CALVE_TEST_DB}"}}})
    other = loaded({"catalog": {"lake": {**lake, "uri": "postgresql://bob:${ENV:CALVE_TEST_PASSWORD}@db:5432/lake"}}})
    assert one.catalog_fingerprint == "name=lake type=sql uri=postgresql://db:5432/lake warehouse=s3://lake"
    assert other.catalog_fingerprint == one.catalog_fingerprint


def test_a_fingerprint_is_not_made_from_a_missing_variable(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_TEST_DB", raising=False)
    pipeline = loaded({"catalog": {"lake": {"type": "sql", "uri": "${ENV:CALVE_TEST_DB}"}}})
    with raises(Code.UNSET_VARIABLE, "uri", "CALVE_TEST_DB"):
        _ = pipeline.catalog_fingerprint


def test_the_config_fingerprint_follows_the_settings_and_not_their_spelling(loaded: Load) -> None:
    plain = loaded().config_fingerprint
    assert len(plain) == 16
    assert loaded(batch={"max_bytes": "4096MiB"}).config_fingerprint == plain
    assert loaded(batch={"max_bytes": "5GiB"}).config_fingerprint != plain


def test_a_column_called_like_a_secret_is_still_part_of_the_fingerprint(loaded: Load) -> None:
    def table(kind: str) -> list[dict[str, object]]:
        return [{"name": "a.b", "auto_create": {"columns": {"token": kind}}}]

    assert loaded(tables=table("string")).config_fingerprint != loaded(tables=table("long")).config_fingerprint


def test_the_description_is_two_files_that_load_to_the_same_pipeline(tmp_path: Path, loaded: Load) -> None:
    pipeline = loaded(
        spark="big",
        tables=[{"name": "a.b", "auto_create": {"columns": {"password": "string"}}}],
        source={"kafka": "main", "topics": ["t"], "start": {"timestamp": "2026-01-31T00:00:00+02:00"}},
        trigger={"every": "500ms"},
        dead_letters={"stop_above": "0.1%"},
    )
    shown = json.loads(json.dumps(pipeline.describe()))
    for name in ("pipeline", "connections"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(shown[name]), encoding="utf-8")
    again = load(tmp_path / "pipeline.yaml")
    assert again == pipeline
    assert again.describe() == pipeline.describe()


def test_no_secret_is_shown_in_description_fingerprints_or_repr(loaded: Load) -> None:
    kafka = {"bootstrap.servers": "b:1", "sasl.password": "hunter2", "sasl.username": "${ENV:USER_NAME}"}
    catalog = {"type": "rest", "uri": "http://ann:hunter2@c/", "credential": "id:hunter2"}
    spark = {"remote": "sc://h:1/;token=hunter2", "conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}}
    by_name = loaded({"kafka": {"main": kafka}, "catalog": {"lake": catalog}, "spark": {"big": spark}}, spark="big")
    inline = loaded(source={"kafka": kafka, "topics": ["t"]}, catalog=catalog, spark=spark)
    for pipeline in (by_name, inline):
        shown = json.dumps(pipeline.describe()) + repr(pipeline) + str(pipeline.config) + pipeline.catalog_fingerprint
        assert "hunter2" not in shown
        assert "${ENV:USER_NAME}" in shown
        assert pipeline.kafka.properties["sasl.password"] == "hunter2"
    changed = loaded(source={"kafka": kafka | {"sasl.password": "x"}, "topics": ["t"]}, catalog=catalog, spark=spark)
    assert changed.config_fingerprint == inline.config_fingerprint


def test_a_pipeline_crosses_process_borders(loaded: Load) -> None:
    pipeline = loaded()
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline  # noqa: S301 - our own bytes
