"""A broker that demands TLS, a SCRAM password and ACLs: the ACLs that `calve check` prints are enough, and needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_STOPPED
from tests import support
from tests.codes import says
from tests.guarded import OTHER_SECRET, PASSWORD, Guarded, GuardedBroker, grant, let_in, login, taken_away
from tests.launch import calve


@pytest.fixture
def guarded(tmp_path: Path, guarded_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    monkeypatch.setenv("CALVE_TEST_PASSWORD", PASSWORD)
    guarded = Guarded.create(guarded_broker, tmp_path)
    letters = support.create_topic(guarded_broker.bootstrap, support.unique("letters"), 1)
    extra: dict[str, Any] = {
        # Nothing of the control topic is younger than what a trim may delete.
        "maintenance": {"trim": {"older_than": 0}},
        "dead_letters": {"topic": letters},
    }
    return replace(guarded, flow=guarded.flow.but(extra=extra))


def test_the_acls_that_are_printed_are_enough_and_each_is_needed(guarded: Guarded) -> None:
    flow, file = guarded.flow, str(guarded.flow.pipeline.path)
    address, lines = guarded.broker.address, guarded.printed()
    to_be_granted = f"kafka-acls --bootstrap-server {address} --add --allow-principal User:{guarded.user} "
    assert all(line.startswith(to_be_granted) for line in lines)
    entry = login(guarded.broker, guarded.user)
    options = [word for key, value in entry.items() for word in ("--kafka-config", f"{key}={value}")]
    new = str(guarded.directory / "new")
    init = ("init", "--topic", flow.topic, "--bootstrap", address, "--directory", new, *options)
    refused = guarded.calve("check", file)
    assert refused.returncode == EXIT_STOPPED
    assert to_be_granted in refused.stdout
    assert not any(secret in refused.stdout + refused.stderr for secret in (PASSWORD, OTHER_SECRET))
    assert guarded.calve(*init).returncode == EXIT_BAD_INPUT
    refused = guarded.calve("run", file)
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.NOT_GRANTED, "AUTHORIZATION_FAILED", "calve check")
    refused = guarded.calve("drill", file)
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.DRILL, " calve_drill_", "calve.test.calve_drill_")
    guarded.grant(*lines)

    flow.produce(range(20))
    flow.produce(range(20, 30), partition=1)
    support.produce(flow.bootstrap, flow.topic, [b"bad"])
    started = guarded.calve(*init)
    assert started.returncode == 0, started.stderr
    for command in ("check", "run", "status", "verify --deep", "maintain trim", "maintain keep-alive", "run"):
        name, *options = command.split()
        done = guarded.calve(name, file, *options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert flow.ids() == list(range(30))
    [letter] = support.messages(flow.bootstrap, flow.pipeline.dead_letter_topic or "")
    assert letter.value() == b"bad"

    for line in lines:
        with guarded.taken_away(line):
            checked = guarded.calve("check", file)
            assert checked.returncode in (EXIT_STOPPED, EXIT_BAD_INPUT), line
            assert line in checked.stdout, "printed again, to be granted"
            says(checked.stdout, Code.NOT_GRANTED)
    assert guarded.calve("check", file).returncode == 0


def test_a_source_needs_each_acl_that_is_printed_and_no_other(
    tmp_path: Path, guarded_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_TEST_PASSWORD", PASSWORD)
    user, topic = support.unique("source-user"), support.unique("sent")
    let_in(guarded_broker.bootstrap, user)
    admin = AdminClient({"bootstrap.servers": guarded_broker.bootstrap})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"id": 1}\n{broken\n')
    kafka = {"main": {"bootstrap.servers": guarded_broker.address, **login(guarded_broker, user)}}
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"deployment": "test", "kafka": kafka}))
    file = tmp_path / "source.yaml"
    document = {
        "name": support.unique("s").replace("-", "_"),
        "kind": "source",
        "source": {"files": {"path": str(tmp_path / "in" / "*.jsonl"), "format": "json_lines", "topic": topic}},
        "target": {"kafka": "main"},
        "dead_letters": {"topic": f"{topic}.dead"},
        # A Spark that another test has left up lacks the variable.
        "batch": dict(support.SHORT_CUT),
    }
    file.write_text(yaml.safe_dump(document))

    said = calve("check", file, "--acls").stdout
    lines = [line for line in said.splitlines() if line.startswith("kafka-acls ")]
    says(calve("run", file).stderr, Code.NOT_GRANTED)
    grant(admin, *lines)
    for command in ("check", "run", "status", "verify --deep", "maintain trim", "maintain keep-alive", "run"):
        name, *options = command.split()
        done = calve(name, file, *options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert support.consume(guarded_broker.bootstrap, topic) == [b'{"id": 1}']
    assert support.consume(guarded_broker.bootstrap, f"{topic}.dead") == [b"{broken"]
    for line in lines:
        with taken_away(admin, line):
            checked = calve("check", file)
            assert checked.returncode in (EXIT_STOPPED, EXIT_BAD_INPUT), line
            assert line in checked.stdout, "printed again, to be granted"
            says(checked.stdout, Code.NOT_GRANTED)
