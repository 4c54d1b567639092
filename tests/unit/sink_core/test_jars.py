"""Fetching jars: what a failed or half-done fetch leaves, and what is pinned."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from calve.sink_core import jars
from calve.sink_core.codes import Code
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
    with raises(Code.MAVEN, "spark", tmp_path):
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


def test_each_set_of_calves_own_is_locked_as_it_is_now() -> None:
    lines = [line.split("  ") for line in jars.LOCK.read_text().splitlines()]
    assert all(len(bytes.fromhex(digest)) == sha256().digest_size for digest, _ in lines)
    names = [path for _, path in lines]
    assert {Path(path).parent.name for path in names} == {each.folder.name for each in jars.OWN}
    for each in jars.OWN:
        of_coordinates = {"-".join(coordinate.split(":")[1:]) for coordinate in each.coordinates}
        assert {f"{each.folder.name}/{name}.jar" for name in of_coordinates} <= {*names}


@pytest.mark.parametrize("change", ["none", "another byte", "one more", "one less"])
def test_files_that_are_not_those_of_the_lock_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    toy = jars.JarSet("toy", extras=("a:a:1", "b:b:1"))
    files = {f"{name}-1.jar": name.encode() for name in "ab"}
    lock = tmp_path / "jars.lock"
    lock.write_text("".join(f"{sha256(raw).hexdigest()}  {toy.folder.name}/{name}\n" for name, raw in files.items()))
    monkeypatch.setattr(jars, "LOCK", lock)
    there = {
        "another byte": {**files, "b-1.jar": b"c"},
        "one more": {**files, "c-1.jar": b"c"},
        "one less": {"a-1.jar": b"a"},
    }.get(change, files)
    for name, raw in there.items():
        (tmp_path / name).write_bytes(raw)
    if change == "none":
        jars.require_locked(toy, tmp_path)
        return
    with raises(Code.JARS_DIFFER, "toy", "c-1.jar" if change == "one more" else "b-1.jar"):
        jars.require_locked(toy, tmp_path)
