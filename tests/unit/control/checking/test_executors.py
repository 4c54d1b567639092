"""What executors report, as one line or as the list of what to install and set."""

from __future__ import annotations

import pickle
from importlib.metadata import version

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.formats import FORMATS
from calve.sink_core.control.checking.executors import Probe, summary
from tests.codes import names, raises


def test_an_executor_like_this_process_has_all_it_needs() -> None:
    probe = pickle.loads(pickle.dumps(Probe({"kafka": {"bootstrap.servers": "b:9092"}})))  # noqa: S301 - our own
    assert probe(0).lacking == ()
    names(summary([probe(0), probe(1)]), probe(0).host)


def test_what_an_executor_lacks_is_named_with_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_TEST_SECRET", raising=False)
    probe = Probe({"kafka": {"sasl.password": "${ENV:CALVE_TEST_SECRET}"}, "catalog": {}}, version="0.0.0")
    host = probe(0).host
    with raises(Code.EXECUTORS) as raised:
        summary([probe(0), probe(1)])
    lines = raised.value.message.splitlines()
    [unset] = [line for line in lines if "CALVE_TEST_SECRET" in line]
    names(unset, host, "kafka: sasl.password")
    [other_version] = [line for line in lines if "0.0.0" in line]
    names(other_version, host, version("calve"))


@pytest.mark.parametrize(("kind", "module"), [("avro", "fastavro"), ("protobuf", "grpc_tools.protoc")])
def test_a_format_asks_for_its_own_modules(kind: str, module: str) -> None:
    assert module in FORMATS[kind].modules
    probe = Probe({}, (*FORMATS[kind].modules, "calve_no_such_module"))
    [lacking] = probe(0).lacking
    names(lacking, "calve_no_such_module")
