from __future__ import annotations

import gc
import runpy
import sys

import pyspark.daemon
import pytest


def test_what_a_worker_is_forked_with_is_not_looked_through_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(pyspark.daemon, "manager", lambda: frozen.append(gc.get_freeze_count()))
    monkeypatch.delitem(sys.modules, "spark_jobs.daemon", raising=False)
    try:
        runpy.run_module("spark_jobs.daemon", run_name="__main__")
    finally:
        gc.unfreeze()
    assert "spark_jobs.task" in sys.modules
    assert frozen[0] > 10_000
