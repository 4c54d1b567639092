"""Names that pyspark keeps to itself are there; what the daemon asks, `test_session_daemon.py` shows."""

from __future__ import annotations

import inspect
import select
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pyspark.daemon
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from calve.spark_jobs.compat import (
    end_accumulators,
    gateway,
    put_in_place_of_select,
    running_context,
    session_of,
)
from calve.spark_jobs.session_daemon import Looks


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


def test_the_daemons_loop_asks_the_module_that_is_in_place_of_select(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pyspark.daemon.select is select, "pyspark.daemon has no module select any more"
    monkeypatch.setattr(pyspark.daemon, "select", select)
    asked = inspect.getsource(pyspark.daemon.manager)
    names = {word for word in ("select", "error") if f"select.{word}" in asked}
    assert names == {"select", "error"}, "the daemon's loop asks select in another way"
    looks = Looks()
    put_in_place_of_select(looks)
    assert pyspark.daemon.select is looks
