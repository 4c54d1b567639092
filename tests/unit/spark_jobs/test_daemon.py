from __future__ import annotations

import gc
import importlib
import runpy
import sys
import zipimport
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pyspark.daemon
import pytest


@pytest.fixture(autouse=True)
def leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a daemon does to its own process is undone in this one."""
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches)
    monkeypatch.delitem(sys.modules, "calve.spark_jobs.daemon", raising=False)
    yield
    gc.unfreeze()


def test_what_a_worker_is_forked_with_is_not_looked_through_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(pyspark.daemon, "manager", lambda: frozen.append(gc.get_freeze_count()))
    runpy.run_module("calve.spark_jobs.daemon", run_name="__main__")
    assert "calve.sink_core.sink.write.task" in sys.modules
    assert frozen[0] > 10_000


def test_archives_are_read_once_and_new_ones_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("calve_first", "calve_second"):
        with ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}.py", "")
    monkeypatch.syspath_prepend(tmp_path / "calve_first.zip")
    importlib.import_module("calve_first")
    monkeypatch.setattr(pyspark.daemon, "manager", lambda: None)
    runpy.run_module("calve.spark_jobs.daemon", run_name="__main__")
    read: list[str] = []
    of_python = vars(zipimport)["_read_directory"]
    monkeypatch.setattr(zipimport, "_read_directory", lambda archive: read.append(archive) or of_python(archive))
    monkeypatch.syspath_prepend(tmp_path / "calve_second.zip")
    importlib.invalidate_caches()
    importlib.import_module("calve_second")
    assert read == [str(tmp_path / "calve_second.zip")]
