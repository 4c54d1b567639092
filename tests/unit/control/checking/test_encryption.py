"""What goes over the network in the clear, by the connections that a pipeline names."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.control.checking.encryption import exposed, is_local

AWAY = "far.example"


def kafka(**properties: Any) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:9092,{AWAY}:9092", **properties}


SASL_SSL = {"security.protocol": "sasl_ssl"}


@pytest.mark.parametrize(
    ("section", "properties", "setting"),
    [
        ("kafka", kafka(), "security.protocol"),
        ("kafka", kafka(**{"security.protocol": "SASL_PLAINTEXT"}), "security.protocol"),
        ("kafka", kafka(**SASL_SSL, **{"enable.ssl.certificate.verification": False}), "certificate.verification"),
        ("registry", {"url": f"https://b,http://{AWAY}:8081"}, "url"),
        ("catalog", {"type": "rest", "uri": f"http://{AWAY}"}, "uri"),
        ("catalog", {"type": "rest", "uri": f"https://{AWAY}", "s3.endpoint": f"http://{AWAY}"}, "s3.endpoint"),
        ("catalog", {"type": "sql", "uri": f"postgresql+psycopg2://u:***@{AWAY}/lake"}, "sslmode"),
        ("database", {"url": f"postgresql://u:***@{AWAY}/shop"}, "sslmode"),
        ("database", {"url": f"postgresql://u@{AWAY}/shop?sslmode=require"}, "sslmode"),
        ("database", {"url": f"postgresql:///shop?host={AWAY}"}, "sslmode"),
        ("database", {"url": "${ENV:THE_ADDRESS}"}, "sslmode"),
        ("database", {"url": f"mysql+pymysql://u@{AWAY}/shop"}, "TLS"),
        ("spark", {"remote": f"sc://{AWAY}:15002/;token=***"}, "use_ssl"),
    ],
)
def test_what_can_be_listened_to_is_named_with_its_setting(
    section: str, properties: dict[str, Any], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_ADDRESS", f"postgresql://u:hidden@{AWAY}/shop")
    [why] = exposed({"deployment": "dev", section: {"it": properties}})
    assert why.startswith(f"{section} it: ")
    assert setting in why
    assert AWAY not in why
    assert "hidden" not in why


@pytest.mark.parametrize(
    ("section", "properties"),
    [
        ("kafka", {"bootstrap.servers": "localhost:9092, [::1]:9092"}),
        ("kafka", kafka(**SASL_SSL)),
        ("registry", {"url": f"http://127.0.0.1:8081,https://{AWAY}"}),
        ("catalog", {"type": "sql", "uri": "sqlite:////lake.db"}),
        ("catalog", {"type": "glue"}),
        ("database", {"url": f"postgresql://u@{AWAY}/shop?sslmode=verify-full"}),
        ("database", {"url": "postgresql:///shop?host=/run/postgresql"}),
        ("database", {"url": f"mysql+pymysql://u@{AWAY}/shop?ssl_ca=ca.pem"}),
        ("database", {"url": "${ENV:NOT_SET_HERE}"}),
        ("database", {"url": "no address"}),
        # A secret in the wrong place is not shown.
        ("kafka", kafka(**{"security.protocol": "hidden"})),
        ("database", {"url": f"postgresql://u@{AWAY}/shop?sslmode=hidden"}),
        ("spark", {"remote": f"sc://{AWAY}:15002/;use_ssl=true;token=***"}),
        ("spark", {"master": "local[*]"}),
    ],
)
def test_what_stays_here_or_is_encrypted_is_not(section: str, properties: dict[str, Any]) -> None:
    assert list(exposed({section: {"it": properties}})) == []


@pytest.mark.parametrize("host", ["", None, "localhost", "localhost.localdomain", "127.3.0.1", "::1", "/run/x"])
def test_what_is_of_this_machine(host: str | None) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["localhost.far.example", AWAY, "10.0.0.1", "0:0::2"])
def test_what_is_of_another(host: str) -> None:
    assert not is_local(host)
