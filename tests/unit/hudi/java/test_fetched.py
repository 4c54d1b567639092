"""What is fetched for Hudi tables is what was meant, or nothing is there."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.hudi.java.fetched import PYSPARK, fetch_spark
from tests.codes import raises


def test_another_spark_of_that_name_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (index := tmp_path / "index").mkdir()
    with tarfile.open(index / f"{PYSPARK.replace('==', '-')}.tar.gz", "w:gz") as packed:
        code = f"open({str(tmp_path / 'ran')!r}, 'w')\n".encode()
        (member := tarfile.TarInfo(f"{PYSPARK.replace('==', '-')}/setup.py")).size = len(code)
        packed.addfile(member, io.BytesIO(code))
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(index)), ("CALVE_JARS", str(tmp_path / "jars"))):
        monkeypatch.setenv(name, value)
    with raises(Code.JARS_DIFFER, PYSPARK):
        fetch_spark(lambda _: None)
    assert not (tmp_path / "ran").exists()
    assert [path for path in (tmp_path / "jars").iterdir() if path.is_dir()] == []
