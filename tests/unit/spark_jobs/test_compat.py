"""Names that pyspark keeps to itself are there."""

from __future__ import annotations

import inspect
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from calve.spark_jobs.compat import (
    detach,
    end_accumulators,
    gateway,
    running_context,
    session_of,
)


def test_the_way_to_the_jvm_is_known_before_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_gateway" in vars(SparkContext), "pyspark has no SparkContext._gateway any more"
    monkeypatch.setattr(SparkContext, "_gateway", "the JVM's")
    assert gateway() == "the JVM's"


def test_the_context_that_runs_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_active_spark_context" in vars(SparkContext), "pyspark has no SparkContext._active_spark_context any more"
    monkeypatch.setattr(SparkContext, "_active_spark_context", "the one")
    assert running_context() == "the one"


def test_the_session_of_a_context_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_instantiatedSession" in vars(SparkSession), "pyspark has no SparkSession._instantiatedSession any more"
    one, other = (cast(SparkContext, SimpleNamespace()) for _ in range(2))
    assert session_of(one) is None
    made = SimpleNamespace(sparkContext=one)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", made)
    assert (session_of(one), session_of(other)) == (made, None)


def test_a_context_takes_a_way_to_a_jvm_that_is_there() -> None:
    taken = inspect.getsource(SparkContext._ensure_initialized)
    assert "SparkContext._gateway = gateway or launch_gateway" in taken, "pyspark keeps its gateway elsewhere"


def test_the_end_of_a_context_does_not_wait_for_its_accumulators() -> None:
    ends = inspect.getsource(SparkContext.stop)
    assert 'getattr(self, "_accumulatorServer", None)' in ends, "pyspark ends its server of accumulators elsewhere"
    assert "_accumulatorServer.shutdown()" in ends, "pyspark ends its server of accumulators in another way"
    context: Any = SimpleNamespace(_accumulatorServer=Server())
    server = context._accumulatorServer
    end_accumulators(context)
    assert context._accumulatorServer is None
    server.waited_for.set()
    assert server.ended.wait(60)
    end_accumulators(context)


class Server:
    """Ends as soon as somebody waits for it no longer."""

    def __init__(self) -> None:
        self.waited_for, self.ended = Event(), Event()

    def shutdown(self) -> None:
        assert self.waited_for.wait(60)
        self.ended.set()


def test_an_attached_context_is_left_without_being_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = inspect.getsource(SparkContext._do_init)
    for name in ("self._jsc", "self._temp_dir", "self._jvm", "_accumulatorServer"):
        assert name in names, f"pyspark has no {name} any more"
    (scratch := tmp_path / "pyspark").mkdir()
    closed: list[bool] = []
    way: Any = SimpleNamespace(close=lambda: closed.append(True))
    context: Any = SimpleNamespace(_accumulatorServer=None, _temp_dir=str(scratch))
    for name, value in (("_gateway", way), ("_jvm", "the JVM's"), ("_active_spark_context", context)):
        monkeypatch.setattr(SparkContext, name, value)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", "one")
    detach(context)
    detach(context)
    assert (gateway(), running_context(), SparkSession._instantiatedSession) == (None, None, None)
    assert (closed, scratch.exists()) == ([True], False)


def test_the_way_to_another_process_is_taken_from_the_environment() -> None:
    taken = inspect.getsource(launch_gateway)
    names = {name for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET") if f'os.environ["{name}"]' in taken}
    assert len(names) == 2, "pyspark finds the gateway of another process in another way"
