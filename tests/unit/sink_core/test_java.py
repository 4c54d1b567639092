"""Which Java is taken, and what is said when there is none that will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.java import find_java, write_properties
from tests.codes import raises


def java_home(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose `java -version` answers as OpenJDK does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2025-04-15' >&2\n""")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_home_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    assert find_java() == tmp_path / "bin" / "java"


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("11.0.22", 11)])
def test_an_old_java_is_refused_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    with raises(Code.JAVA, major, 17):
        find_java()


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(Code.JAVA, "PATH", "openjdk-17-jre-headless"):
        find_java()


def test_values_are_escaped_as_java_reads_them(tmp_path: Path) -> None:
    values = {"a": "back\\slash", "b": "two\nlines", "c": "žába é", "d": " blank", "e": "🧊"}
    written = write_properties(tmp_path / "p", values).read_bytes().split(b"\n")
    assert written[0] == rb"a=back\\slash"
    assert written[1] == rb"b=two\nlines"
    assert written[2] == rb"c=\u017e\u00e1ba \u00e9"
    assert written[3] == rb"d=\ blank"
    assert written[4] == rb"e=\ud83e\uddca"


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    assert write_properties(tmp_path / "p", {}).stat().st_mode & 0o777 == 0o600
