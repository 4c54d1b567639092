"""The commands as a user meets them: init, check, config, run and what they say when something is wrong."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from calve.orchestration import new_pipeline
from calve.orchestration.local import broker as embedded
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from tests import support
from tests.codes import says
from tests.integration.conftest import StartBroker
from tests.launch import calve, cold
from tests.pipelines import Flow

RECORDS = [json.dumps({"id": i, "at": "2024-05-31T10:00:00Z", "place": {"city": "Bergen"}}) for i in range(10)]
NOBODY_LISTENS = "127.0.0.1:1"


def document(*arguments: object, **environment: str) -> Any:
    return json.loads(calve(*arguments, "--json", **environment).stdout)


def checked(file: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code of `calve check`, and what it says by the name of each check."""
    done = calve("check", file, "--json")
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def fails(outcome: dict[str, str], code: Code, *values: object, status: str = "failed") -> None:
    assert (outcome["status"], outcome["code"]) == (status, code), outcome
    assert [value for value in values if str(value) not in outcome["message"] + outcome["hint"]] == [], outcome


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
    code, found = checked(file)
    table = found[f"table raw.{name}"]
    assert (code, table["status"], re.findall(r"\d+", table["message"])) == (0, "ok", ["4"]), found

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
    proof = cold("verify", file, "--deep", "--json")
    assert (proof.returncode, json.loads(proof.stdout)["proven"]) == (0, True)
    assert {check["status"] for check in document("check", file)["checks"]} == {"ok"}


def test_plan_says_what_the_next_batch_reads_and_leaves_no_trace(
    file: Path, topic: str, broker: embedded.Broker
) -> None:
    assert "earliest" in calve("plan", file).stdout
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert load(file).control_topic not in admin.list_topics().topics
    committed = document("commit", file)
    assert (committed["commits"], load(file).name in committed["ended"]) == ([], True)


def test_a_broker_that_never_had_a_group_passes_the_check(start_broker: StartBroker, tmp_path: Path) -> None:
    flow = Flow.create(tmp_path, start_broker().bootstrap, "new", auto_create={"columns": {"id": "long"}})
    _, found = checked(flow.pipeline.path)
    assert "unreachable" not in {each["status"] for each in found.values()}


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
    says(refused.stderr, Code.WOULD_OVERWRITE, file)
    assert file.read_text() == "mine"
    connections = (file.parent / "connections.yaml").read_text()
    assert calve("init", "--topic", topic, "--directory", file.parent, "--force").returncode == 0
    assert "auto_create" in file.read_text()
    assert (file.parent / "connections.yaml").read_text() == connections


def test_init_keeps_references_and_refuses_literal_secrets(topic: str, broker: embedded.Broker, tmp_path: Path) -> None:
    given = ("init", "--topic", topic, "--bootstrap", broker.bootstrap, "--directory", tmp_path, "--kafka-config")
    refused = calve(*given, "sasl.password=x1y2z3")
    assert refused.returncode == 2
    says(refused.stderr, Code.LITERAL_SECRET, "sasl.password")
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
    code, found = checked(file)
    assert (code, found["catalog"]["status"]) == (3, "ok")
    fails(found["kafka"], Code.NO_BROKER, NOBODY_LISTENS, "bootstrap.servers", status="unreachable")
    sampled = calve("init", "--topic", "t", "--bootstrap", NOBODY_LISTENS, "--directory", tmp_path / "other", "--json")
    assert sampled.returncode == 3
    assert json.loads(sampled.stdout)["code"] == Code.NO_BROKER


def test_an_unknown_topic_is_named(file: Path, topic: str, broker: embedded.Broker, tmp_path: Path) -> None:
    sampled = calve("init", "--topic", "nope", "--bootstrap", broker.bootstrap, "--directory", tmp_path / "other")
    assert sampled.returncode == 2
    says(sampled.stderr, Code.NO_SUCH_TOPIC, "nope")
    file.write_text(file.read_text().replace(f"topics: [{topic}]", "topics: [nope]"))
    code, found = checked(file)
    assert code == 1
    fails(found["topics"], Code.NO_SUCH_TOPIC, "nope")


def test_a_topic_without_records_gives_no_columns(
    kafka_topic: support.TopicFactory, broker: embedded.Broker, tmp_path: Path
) -> None:
    empty = kafka_topic()
    sampled = calve("init", "--topic", empty, "--bootstrap", broker.bootstrap, "--directory", tmp_path)
    assert sampled.returncode == 2
    says(sampled.stderr, Code.NO_SAMPLE, empty)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_answered_with_the_nearest_one(file: Path) -> None:
    file.write_text(file.read_text() + "\nbatch: {max_recrods: 5}\n")
    for give, command in ((calve, "check"), (calve, "config"), (cold, "run")):
        refused = give(command, file)
        assert refused.returncode == 2
        says(refused.stderr, Code.SETTINGS, "batch.max_recrods", "max_records")


def test_a_missing_variable_is_named(file: Path) -> None:
    connections = file.parent / "connections.yaml"
    connections.write_text(
        connections.read_text().replace("kafka:\n  main:", "kafka:\n  main:\n    sasl.password: ${ENV:NOPE}")
    )
    code, found = checked(file)
    assert code == 1
    fails(found["kafka"], Code.UNSET_VARIABLE, "sasl.password", "NOPE")
    planned = calve("plan", file, "--json")
    assert planned.returncode == 2
    assert json.loads(planned.stdout)["code"] == Code.UNSET_VARIABLE


def test_members_of_the_source_group_are_found(file: Path, topic: str, broker: embedded.Broker) -> None:
    group = load(file).group
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "intruder"}
    with closing(Consumer({**settings, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        code, found = checked(file)
    assert code == 1
    fails(found["source group"], Code.GROUP_IN_USE, group, "intruder")


def test_a_control_topic_that_forgets_is_found(file: Path, broker: embedded.Broker) -> None:
    name = support.create_topic(broker.bootstrap, load(file).control_topic, config={"retention.ms": "1000"})
    code, found = checked(file)
    assert code == 1
    fails(
        found["control topic"], Code.CONTROL_TOPIC_SETTINGS, name, f"kafka-configs --alter --topic {name} --add-config"
    )


def test_a_table_that_is_missing_comes_with_its_statement(file: Path, topic: str) -> None:
    text = file.read_text()
    file.write_text(text[: text.index("    auto_create:")] + text[text.index("\non_bad_record") :])
    code, found = checked(file)
    assert code == 1
    fails(found[f"table raw.{topic.replace('-', '_')}"], Code.NO_SUCH_TABLE, "auto_create", "CREATE TABLE lake.raw.")


def test_a_warehouse_that_can_not_be_written_is_found(file: Path) -> None:
    (file.parent / "lake").mkdir()
    (file.parent / "lake" / "warehouse").write_text("a file where the folder should be")
    code, found = checked(file)
    assert code == 3
    fails(found["warehouse"], Code.CATALOG_AWAY, file.parent / "lake" / "warehouse", status="unreachable")


def test_the_broker_of_a_folder_is_found(broker: embedded.Broker, tmp_path: Path) -> None:
    found = document("broker", "status", "--dir", broker.directory)
    assert (found["running"], found["bootstrap"]) == (True, broker.bootstrap)
    assert document("broker", "start", "--dir", broker.directory) == found
    absent = calve("broker", "status", "--dir", tmp_path, "--json")
    assert (absent.returncode, json.loads(absent.stdout)) == (1, {"running": False})
    assert document("broker", "stop", "--dir", tmp_path) == {"stopped": False}
