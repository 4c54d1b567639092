"""The archive of Spark's classes: written once, used by Java, harmless where it doesn't fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calve.sink_core import compiled
from calve.spark_jobs import class_archive

RUN = """
import sys
from calve.sink_core.config.connections import SparkSettings
from calve.spark_jobs import class_archive
from calve.spark_jobs.compat import running_context, session_of
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.session import JAVA_OPTIONS

options = f"{JAVA_OPTIONS} {sys.argv[2]} -Xlog:class+load:file={sys.argv[1]}"
with SparkEngine(SparkSettings(master="local[1]", conf={"spark.driver.extraJavaOptions": options})) as engine:
    assert engine.run(lambda number: bytes([number]), 1) == [bytes([0])]
    assert session_of(running_context()) is None, "tasks have loaded Spark's SQL, which takes a second"
    assert engine.session.range(1).count() == 1
"""


def loaded_from_archive(tmp_path: Path, option: str) -> int:
    """How many of Spark's own classes a session's Java took from the archive."""
    log = tmp_path / "classes.log"
    subprocess.run([sys.executable, "-c", RUN, str(log), option], check=True, timeout=120)
    loads = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    assert len(loads) > 1000
    return sum("shared objects file (top)" in line for line in loads)


def test_java_takes_sparks_classes_from_the_archive(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "calve", "spark", "prepare"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert str(class_archive.archive()) in done.stdout
    assert all(f"{module}: " in done.stdout and compiled.is_kept(module) for module in compiled.KERNELS)
    assert class_archive.java_option() == f"-XX:SharedArchiveFile={class_archive.archive()}"
    assert loaded_from_archive(tmp_path, class_archive.java_option()) > 1000


@pytest.mark.faults
def test_java_goes_without_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(os.urandom(10_000))
    assert loaded_from_archive(tmp_path, f"-XX:SharedArchiveFile={broken}") == 0


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = class_archive.archive()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert class_archive.archive() != before
    assert class_archive.java_option() == ""
