"""The folder of a warm Spark, by the file that has its connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.sink_core.config.connections import SparkSettings


def placed(warm: str, file: Path, name: str = "small") -> str:
    return SparkSettings(master="local[2]", warm=warm).placed(file, name).warm


def test_each_file_and_name_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_SPARK", str(tmp_path / "warm"))
    one, other = tmp_path / "one" / "connections.yaml", tmp_path / "other" / "connections.yaml"
    folders = [placed("auto", one), placed("auto", other), placed("auto", one, "large"), placed("auto", one)]
    assert folders[0] == folders[3]
    assert len(set(folders)) == 3
    assert {Path(folder).parent for folder in folders} == {tmp_path / "warm"}


def test_a_folder_is_seen_from_the_file(tmp_path: Path) -> None:
    assert placed("spark", tmp_path / "connections.yaml") == str(tmp_path / "spark")
    assert placed("/var/spark", tmp_path / "connections.yaml") == "/var/spark"
    assert placed("${ENV:PLACE}/spark", tmp_path / "connections.yaml") == "${ENV:PLACE}/spark"


def test_none_is_used_by_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CALVE_SPARK", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert placed("auto", tmp_path / "connections.yaml") == placed("never", tmp_path / "connections.yaml") == "never"
