"""The commands as a user meets them: init, check, config, run and what they say when something is wrong."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from calve.orchestration import new_pipeline
from calve.orchestration.local import broker as embedded
from calve.sink_core.config.load import load
from tests import support
from tests.integration.conftest import StartBroker
from tests.launch import calve, cold
from tests.pipelines import Flow

RECORDS = [json.dumps({"id": i, "at": "2024-05-31T10:00:00Z", "place": {"city": "Bergen"}}) for i in range(10)]
NOBODY_LISTENS = "127.0.0.1:1"


def document(*arguments: object, **environment: str) -> Any:
    return json.loads(calve(*arguments, "--json", **environment).stdout)


@pytest.fixture
def topic(kafka_topic: support.TopicFactory, produce: support.Produce) -> str:
    name = kafka_topic(2, prefix="flights")
    produce(name, [*RECORDS, None])
    return name


@pytest.fixture
def file(broker: embedded.Broker, topic: str, tmp_path: Path) -> Path:
    """A pipeline file as `calve init` writes it, the pipeline named after this test's topic."""
    done = calve("init", "--topic", topic, "--bootstrap", broker.bootstrap, "--directory", tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "pipeline.yaml"


def test_from_a_topic_to_a_proven_table(file: Path, topic: str) -> None:
    name = topic.replace("-", "_")
    checked = calve("check", file)
    assert checked.returncode == 0, checked.stdout
    assert f"ok           table raw.{name}: will be created with 4 columns, unpartitioned" in checked.stdout

    done = cold("run", file, "--json")
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)
    assert (ran["ended"], [batch["records"] for batch in ran["batches"]]) == ("caught up", [11])
    landed = {c["table"]: (c["rows"], c["snapshot_id"]) for round_ in ran["commits"] for c in round_["commits"]}
    rows, snapshot = landed[f"raw.{name}"]
    assert rows == 10

    table = next(t for t in document("status", file)["tables"] if t["table"] == f"raw.{name}")
    assert (table["rows"], table["head_snapshot"]) == (10, snapshot)
    assert document("plan", file) == {"bootstrapped": True, "batch": None}
    assert document("commit", file)["failed"] == {}
    proof = cold("verify", file, "--deep")
    assert proof.returncode == 0
    assert proof.stdout.endswith("\nproven\n")
    assert {check["status"] for check in document("check", file)["checks"]} == {"ok"}


def test_plan_says_what_the_next_batch_reads_and_leaves_no_trace(
    file: Path, topic: str, broker: embedded.Broker
) -> None:
    assert "the first run begins at start: earliest" in calve("plan", file).stdout
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert load(file).control_topic not in admin.list_topics().topics
    assert document("commit", file)["ended"] == f"pipeline {load(file).name} has not run yet: nothing is published"


def test_a_broker_that_never_had_a_group_passes_the_check(start_broker: StartBroker, tmp_path: Path) -> None:
    flow = Flow.create(tmp_path, start_broker().bootstrap, "new", auto_create={"columns": {"id": "long"}})
    checked = calve("check", flow.pipeline.path)
    assert "unreachable" not in checked.stdout


def test_check_writes_nothing(file: Path) -> None:
    assert calve("check", file).returncode == 0
    assert [path for path in (file.parent / "lake" / "warehouse").rglob("*") if path.is_file()] == []


def test_config_shows_defaults_and_no_secret(file: Path) -> None:
    (file.parent / "connections.yaml").write_text(
        (file.parent / "connections.yaml")
        .read_text()
        .replace("kafka:\n  main:", "kafka:\n  main:\n    sasl.password: x1y2z3")
    )
    shown = calve("config", file)
    assert shown.returncode == 0
    assert "max_batches: 30" in shown.stdout
    assert "x1y2z3" not in shown.stdout
    assert document("config", file)["derived"]["control_topic"] == load(file).control_topic


def test_init_writes_over_nothing_unless_told_to(file: Path, topic: str, broker: embedded.Broker) -> None:
    file.write_text("mine")
    refused = calve("init", "--topic", topic, "--directory", file.parent)
    assert refused.returncode == 2
    assert f"{file} is there already" in refused.stderr
    assert file.read_text() == "mine"
    connections = (file.parent / "connections.yaml").read_text()
    assert calve("init", "--topic", topic, "--directory", file.parent, "--force").returncode == 0
    assert "auto_create" in file.read_text()
    assert (file.parent / "connections.yaml").read_text() == connections


def test_init_keeps_references_and_refuses_literal_secrets(topic: str, broker: embedded.Broker, tmp_path: Path) -> None:
    given = ("init", "--topic", topic, "--bootstrap", broker.bootstrap, "--directory", tmp_path, "--kafka-config")
    refused = calve(*given, "sasl.password=x1y2z3")
    assert refused.returncode == 2
    assert "a secret was given literally" in refused.stderr
    assert "x1y2z3" not in refused.stderr
    assert calve(*given, "sasl.password=${ENV:CALVE_TEST_PASSWORD}", CALVE_TEST_PASSWORD="x1y2z3").returncode == 0
    assert "sasl.password: ${ENV:CALVE_TEST_PASSWORD}" in (tmp_path / "connections.yaml").read_text()


def test_a_broker_that_is_down_is_unreachable(
    file: Path, broker: embedded.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fifth of the real limit: nobody answers in any time.
    monkeypatch.setattr(new_pipeline, "SAMPLE_TIMEOUT_S", 2.0)
    connections = file.parent / "connections.yaml"
    connections.write_text(connections.read_text().replace(broker.bootstrap, NOBODY_LISTENS))
    checked = calve("check", file)
    assert checked.returncode == 3
    assert (
        f"unreachable  kafka: connecting to Kafka at {NOBODY_LISTENS}: {NOBODY_LISTENS}: Connect to" in checked.stdout
    )
    assert "Connection refused" in checked.stdout
    assert "is a broker running there? `bootstrap.servers`" in checked.stdout
    assert "ok           catalog" in checked.stdout
    sampled = calve("init", "--topic", "t", "--bootstrap", NOBODY_LISTENS, "--directory", tmp_path / "other", "--json")
    assert sampled.returncode == 3
    assert json.loads(sampled.stdout)["error"] == "Unreachable"


def test_an_unknown_topic_is_named(file: Path, topic: str, broker: embedded.Broker, tmp_path: Path) -> None:
    sampled = calve("init", "--topic", "nope", "--bootstrap", broker.bootstrap, "--directory", tmp_path / "other")
    assert sampled.returncode == 2
    assert "sampling topic nope: UNKNOWN_TOPIC_OR_PART" in sampled.stderr
    file.write_text(file.read_text().replace(f"topics: [{topic}]", "topics: [nope]"))
    checked = calve("check", file)
    assert checked.returncode == 1
    assert "failed       topics: describing topic nope: UNKNOWN_TOPIC_OR_PART" in checked.stdout


def test_a_topic_without_records_gives_no_columns(
    kafka_topic: support.TopicFactory, broker: embedded.Broker, tmp_path: Path
) -> None:
    empty = kafka_topic()
    sampled = calve("init", "--topic", empty, "--bootstrap", broker.bootstrap, "--directory", tmp_path)
    assert sampled.returncode == 2
    assert f"topic {empty} holds no record" in sampled.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_answered_with_the_nearest_one(file: Path) -> None:
    file.write_text(file.read_text() + "\nbatch: {max_recrods: 5}\n")
    for give, command in ((calve, "check"), (calve, "config"), (cold, "run")):
        refused = give(command, file)
        assert refused.returncode == 2
        assert "batch.max_recrods: unknown; did you mean max_records?" in refused.stderr


def test_a_missing_variable_is_named(file: Path) -> None:
    connections = file.parent / "connections.yaml"
    connections.write_text(
        connections.read_text().replace("kafka:\n  main:", "kafka:\n  main:\n    sasl.password: ${ENV:NOPE}")
    )
    checked = calve("check", file)
    assert checked.returncode == 1
    assert "failed       kafka: sasl.password: environment variable NOPE is not set" in checked.stdout
    planned = calve("plan", file, "--json")
    assert planned.returncode == 2
    assert json.loads(planned.stdout)["error"] == "ConfigError"


def test_members_of_the_source_group_are_found(file: Path, topic: str, broker: embedded.Broker) -> None:
    group = load(file).group
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "intruder"}
    with closing(Consumer({**settings, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        checked = calve("check", file)
    assert checked.returncode == 1
    assert f"failed       source group: group {group} is stable, with members intruder" in checked.stdout


def test_a_control_topic_that_forgets_is_found(file: Path, broker: embedded.Broker) -> None:
    name = support.create_topic(broker.bootstrap, load(file).control_topic, config={"retention.ms": "1000"})
    checked = calve("check", file)
    assert checked.returncode == 1
    assert f"failed       control topic: topic {name} has " in checked.stdout
    assert f"kafka-configs --alter --topic {name} --add-config" in checked.stdout


def test_a_table_that_is_missing_comes_with_its_statement(file: Path) -> None:
    text = file.read_text()
    file.write_text(text[: text.index("    auto_create:")] + text[text.index("\non_bad_record") :])
    checked = calve("check", file)
    assert checked.returncode == 1
    assert "and its `auto_create` is not set" in checked.stdout
    assert "CREATE TABLE lake.raw." in checked.stdout


def test_a_warehouse_that_can_not_be_written_is_found(file: Path) -> None:
    (file.parent / "lake").mkdir()
    (file.parent / "lake" / "warehouse").write_text("a file where the folder should be")
    checked = calve("check", file)
    assert checked.returncode == 3
    assert "unreachable  warehouse: writing a file below file://" in checked.stdout


def test_the_broker_of_a_folder_is_found(broker: embedded.Broker, tmp_path: Path) -> None:
    found = document("broker", "status", "--dir", broker.directory)
    assert (found["running"], found["bootstrap"]) == (True, broker.bootstrap)
    assert document("broker", "start", "--dir", broker.directory) == found
    absent = calve("broker", "status", "--dir", tmp_path, "--json")
    assert (absent.returncode, json.loads(absent.stdout)) == (1, {"running": False})
    assert document("broker", "stop", "--dir", tmp_path) == {"stopped": False}
