"""What executors report, as one line or as the list of what to install and set."""

from __future__ import annotations

import pickle
from importlib.metadata import version

import pytest

from calve.sink_core.config.formats import FORMATS
from calve.sink_core.control.checking.executors import Probe, summary
from calve.sink_core.error_codes.machine import EXECUTORS
from tests.codes import raises


def test_an_executor_like_this_process_has_all_it_needs() -> None:
    probe = pickle.loads(pickle.dumps(Probe({"kafka": {"bootstrap.servers": "b:9092"}})))  # noqa: S301 - our own
    assert "have all a task needs" in summary([probe(0), probe(1)])


def test_what_an_executor_lacks_is_named_with_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_TEST_SECRET", raising=False)
    probe = Probe({"kafka": {"sasl.password": "${ENV:CALVE_TEST_SECRET}"}, "catalog": {}}, version="0.0.0")
    host = probe(0).host
    with raises(EXECUTORS) as raised:
        summary([probe(0), probe(1)])
    assert f"{host}: kafka: sasl.password: environment variable CALVE_TEST_SECRET is not set" in raised.value.message
    assert f"{host}: calve is {version('calve')}, here it is 0.0.0" in raised.value.message


@pytest.mark.parametrize(("kind", "module"), [("avro", "fastavro"), ("protobuf", "grpc_tools.protoc")])
def test_a_format_asks_for_its_own_modules(kind: str, module: str) -> None:
    assert module in FORMATS[kind].modules
    probe = Probe({}, (*FORMATS[kind].modules, "calve_no_such_module"))
    assert [line.split(":")[0] for line in probe(0).lacking] == ["cannot import calve_no_such_module"]
