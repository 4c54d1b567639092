"""References are resolved where a connection is opened; what is shown holds no secret."""

from __future__ import annotations

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.references import redact, resolve, without_user_info
from calve.sink_core.hidden import without_secrets
from tests.codes import raises


def test_references_are_replaced_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_TEST_USER", "ann")
    monkeypatch.setenv("CALVE_TEST_PASSWORD", "s3cret")
    properties = {
        "sasl.password": "${ENV:CALVE_TEST_PASSWORD}",
        "uri": "postgresql://${ENV:CALVE_TEST_USER}:${ENV:CALVE_TEST_PASSWORD}@db/lake",
        "auth": {"oauth2": {"scopes": ["${ENV:CALVE_TEST_USER}", "all"]}},
        "linger.ms": 5,
    }
    assert resolve(properties) == {
        "sasl.password": "s3cret",
        "uri": "postgresql://ann:s3cret@db/lake",
        "auth": {"oauth2": {"scopes": ["ann", "all"]}},
        "linger.ms": 5,
    }


def test_a_value_from_the_environment_is_not_read_as_a_reference_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_TEST_PASSWORD", "${ENV:HOME}")
    assert resolve({"sasl.password": "${ENV:CALVE_TEST_PASSWORD}"}) == {"sasl.password": "${ENV:HOME}"}


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named_with_its_key(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("CALVE_TEST_PASSWORD", raising=False)
    if value is not None:
        monkeypatch.setenv("CALVE_TEST_PASSWORD", value)
    with raises(Code.UNSET_VARIABLE, "sasl.password", "CALVE_TEST_PASSWORD"):
        resolve({"sasl.password": "${ENV:CALVE_TEST_PASSWORD}"})


@pytest.mark.parametrize("end", ["\n", " ", "\r\n"])
def test_a_value_that_ends_in_white_space_is_refused(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setenv("CALVE_TEST_PASSWORD", f"blank-s3cret{end}")
    with raises(Code.ENDS_BLANK, "sasl.password", "CALVE_TEST_PASSWORD") as raised:
        resolve({"sasl.password": "${ENV:CALVE_TEST_PASSWORD}"})
    assert "s3cret" not in str(raised.value)


def test_a_file_in_pem_ends_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n"
    monkeypatch.setenv("CALVE_TEST_KEY", pem)
    assert resolve({"ssl.key.pem": "${ENV:CALVE_TEST_KEY}"}) == {"ssl.key.pem": pem}
    assert "MIIEvQ" not in without_secrets("bad line MIIEvQIBADANBg of it")


@pytest.mark.parametrize(
    ("key", "variable", "written", "secret"),
    [
        ("sasl.password", "X", "{}", True),
        ("header.Cookie", "X", "{}", True),
        # Two variables swapped: the name tells.
        ("security.protocol", "KAFKA_PASSWORD", "{}", True),
        ("source.options.anything", "X", "{}", True),
        ("url", "X", "postgresql://ann:{}@db/shop", True),
        ("url", "X", "https://{}@db/shop", True),
        ("url", "X", "https://store/?sig={}", True),
        ("url", "DB_PASSWORD", "file:///data/{}", True),
        ("url", "X", "postgresql://{}@db/shop", False),
        ("url", "X", "postgresql://db/{}", False),
        ("bootstrap.servers", "X", "{}", False),
        ("sasl.username", "X", "{}", False),
        ("s3.region", "X", "{}", False),
    ],
)
def test_each_value_is_kept_secret_that_is_no_place_or_user(
    monkeypatch: pytest.MonkeyPatch, key: str, variable: str, written: str, secret: bool
) -> None:
    name, value = f"CALVE_TEST_{variable}", f"v4lue-{abs(hash((key, written)))}"
    monkeypatch.setenv(name, value)
    resolve({key: written.format(f"${{ENV:{name}}}")})
    assert (value not in without_secrets(f"it says {value}.")) == secret


@pytest.mark.parametrize("value", ["${PASSWORD}", "${env:PASSWORD}", "${ENV:}", "{{ env.PASSWORD }}", None])
def test_what_would_silently_become_something_else_is_refused(value: object) -> None:
    with raises(Code.NO_VALUE, "conf.token"):
        resolve({"conf": {"token": value}})


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.pem",
        "ssl.key.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "basic.auth.user.info",
        "credential",
        "token",
        "s3.secret-access-key",
        "s3.session-token",
        "adls.account-key",
        "adls.connection-string",
        "header.Authorization",
        "spark.hadoop.fs.s3a.secret.key",
    ],
)
def test_literal_secrets_are_hidden(key: str) -> None:
    assert redact({key: "hunter2", "outer": {key: 12345}}) == {key: "***", "outer": {key: "***"}}


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ("postgresql://ann:***@db:5432/lake", "postgresql://ann:hunter2@db:5432/lake"),
        ("postgresql://ann:***@db/lake", "postgresql://ann:hun/ter@2@db/lake"),
        ("postgresql://ann:${ENV:PW}@db/lake", "postgresql://ann:${ENV:PW}@db/lake"),
        ("sc://host:15002/;token=***;user_id=ann", "sc://host:15002/;token=hunter2;user_id=ann"),
        ("https://catalog:8181/iceberg", "https://catalog:8181/iceberg"),
        ("file:///lake/a@b", "file:///lake/a@b"),
    ],
)
def test_secrets_inside_addresses_are_hidden(shown: str, written: str) -> None:
    assert redact({"uri": written}) == {"uri": shown}


def test_references_and_plain_values_are_shown() -> None:
    properties = {"sasl.password": "${ENV:PW}", "sasl.username": "ann", "token-refresh-enabled": True, "retries": 3}
    assert redact(properties) == properties
    assert redact({"basic.auth.user.info": "ann:${ENV:PW}"}) == {"basic.auth.user.info": "${ENV:PW}"}


@pytest.mark.parametrize(
    ("uri", "bare"),
    [
        ("postgresql://ann:p/a@ss@db:5432/lake?sslkey=x#y", "postgresql://db:5432/lake"),
        ("https://token@catalog/iceberg", "https://catalog/iceberg"),
        ("sqlite:///lake/catalog.db", "sqlite:///lake/catalog.db"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
    ],
)
def test_user_info_and_query_are_taken_off_addresses(uri: str, bare: str) -> None:
    assert without_user_info(uri) == bare
