"""Fetching jars: what a failed or half-done fetch leaves, and what is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.sink_core import jars
from calve.sink_core.error_codes.machine import MAVEN
from tests.codes import raises


def test_every_version_is_pinned() -> None:
    for coordinate in (*jars.KAFKA.coordinates, *jars.SPARK.coordinates):
        group, artifact, version = coordinate.split(":")
        assert group
        assert artifact
        assert version[0].isdigit()


def test_without_a_way_to_maven_central_the_error_says_so_and_nothing_half_done_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_JARS", str(tmp_path))
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with raises(MAVEN, "spark", tmp_path):
        jars.spark_jars()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_folder_that_is_there_is_used_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_JARS", str(tmp_path))
    jars.SPARK.folder.mkdir(parents=True)
    (jars.SPARK.folder / "b.jar").touch()
    (jars.SPARK.folder / "a.jar").touch()
    assert [path.name for path in jars.spark_jars()] == ["a.jar", "b.jar"]


def test_other_coordinates_live_in_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALVE_JARS", str(tmp_path))
    newer = jars.JarSet("spark", roots=(), extras=("org.xerial:sqlite-jdbc:9.9.9",))
    assert newer.folder != jars.SPARK.folder
    assert newer.folder.parent == jars.SPARK.folder.parent == tmp_path
