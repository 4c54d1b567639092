"""A broker that demands TLS, a SCRAM password and ACLs: the ACLs that `calve check` prints are enough, and needed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sink_core.errors import EXIT_BAD_INPUT, EXIT_STOPPED
from tests import support
from tests.integration.conftest import StartBroker
from tests.integration.guarded import OTHER_SECRET, PASSWORD, USER, Guarded, start_guarded
from tests.pipelines import TIMEOUT_S

EVERYBODY = "*"
ALLOW = AclPermissionType.ALLOW
KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}


@pytest.fixture
def guarded(tmp_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    monkeypatch.setenv("CALVE_TEST_PASSWORD", PASSWORD)
    guarded = start_guarded(tmp_path, start_broker, authorizer=True)
    letters = support.create_topic(guarded.flow.bootstrap, support.unique("letters"), 1)
    extra: dict[str, Any] = {
        # Nothing of the control topic is younger than what a trim may delete.
        "maintenance": {"trim": {"older_than": 0}},
        "dead_letters": {"topic": letters},
    }
    return Guarded(guarded.flow.but(extra=extra), tmp_path, guarded.address)


def printed(guarded: Guarded) -> list[str]:
    """The lines for `kafka-acls` that `calve check --acls` prints."""
    said = guarded.calve("check", str(guarded.flow.pipeline.path), "--acls").stdout
    return [line for line in said.splitlines() if line.startswith("kafka-acls ")]


def bindings(line: str) -> list[AclBinding]:
    """What Kafka's tool makes of such a line."""
    words = shlex.split(line)
    values = dict(pairwise(words))
    [kind] = KINDS.keys() & set(words)
    pattern = ResourcePatternType[values.get("--resource-pattern-type", "literal").upper()]
    operations = [OPERATIONS[after.lower()] for word, after in pairwise(words) if word == "--operation"]
    who = values["--allow-principal"]
    return [
        AclBinding(KINDS[kind], values[kind], pattern, who, EVERYBODY, operation, ALLOW) for operation in operations
    ]


def grant(guarded: Guarded, line: str) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.flow.bootstrap})
    for granted in admin.create_acls(bindings(line)).values():
        granted.result(TIMEOUT_S)


@contextmanager
def taken_away(guarded: Guarded, line: str) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": guarded.flow.bootstrap})
    filters = [
        AclBindingFilter(b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, ALLOW)
        for b in bindings(line)
    ]
    for removed in admin.delete_acls(filters).values():
        assert removed.result(TIMEOUT_S)
    yield
    grant(guarded, line)


def test_the_acls_that_are_printed_are_enough_and_each_is_needed(guarded: Guarded) -> None:
    flow, file = guarded.flow, str(guarded.flow.pipeline.path)
    lines = printed(guarded)
    assert all(f"--bootstrap-server {guarded.address} --add --allow-principal User:{USER} " in line for line in lines)
    refused = guarded.calve("run", file)
    assert refused.returncode == EXIT_BAD_INPUT
    assert "AUTHORIZATION_FAILED" in refused.stderr
    assert "calve check" in refused.stderr
    refused = guarded.calve("drill", file)
    assert refused.returncode == EXIT_BAD_INPUT
    assert "creating topic calve_drill_" in refused.stderr
    assert "for names that begin with calve_drill_ or calve.test.calve_drill_" in refused.stderr
    for line in lines:
        grant(guarded, line)

    flow.produce(range(20))
    flow.produce(range(20, 30), partition=1)
    support.produce(flow.bootstrap, flow.topic, [b"bad"])
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": "${ENV:CALVE_TEST_PASSWORD}",
        "ssl.ca.location": str(guarded.directory / "certificate.pem"),
    }
    settings = [word for key, value in login.items() for word in ("--kafka-config", f"{key}={value}")]
    new = str(guarded.directory / "new")
    started = guarded.calve(
        "init", "--topic", flow.topic, "--bootstrap", guarded.address, "--directory", new, *settings
    )
    assert started.returncode == 0, started.stderr
    for command in ("check", "run", "status", "verify --deep", "maintain trim", "maintain keep-alive", "run"):
        name, *options = command.split()
        done = guarded.calve(name, file, *options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert not any(secret in done.stdout + done.stderr for secret in (PASSWORD, OTHER_SECRET))
    assert flow.ids() == list(range(30))
    [letter] = support.messages(flow.bootstrap, flow.pipeline.letter_topic or "")
    assert letter.value() == b"bad"

    for line in lines:
        with taken_away(guarded, line):
            checked = guarded.calve("check", file)
            assert checked.returncode in (EXIT_STOPPED, EXIT_BAD_INPUT), line
            assert line in checked.stdout, "printed again, to be granted"
            assert "not granted: " in checked.stdout or "AUTHORIZATION_FAILED" in checked.stdout
    assert guarded.calve("check", file).returncode == 0
