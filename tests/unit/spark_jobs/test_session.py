"""What stands on the command line of a Spark that is started, which every account of the machine may read."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.error_codes.machine import SPARK_START
from calve.spark_jobs import session
from tests.codes import raises

SECRET = "s3cret/of the%store"
SUBMIT = "PYSPARK_SUBMIT_ARGS"

LAUNCHER = """#!/bin/sh
printf '%s\\n' "$@" > "$CALVE_TEST_SEEN/arguments"
while [ "$1" != --properties-file ]; do shift; done
cp "$2" "$CALVE_TEST_SEEN/properties"
stat -c '%a' "$2" "$(dirname "$2")" > "$CALVE_TEST_SEEN/modes"
exit 1
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a `spark-submit` that starts nothing leaves what it was given."""
    program = tmp_path / "spark/bin/spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(LAUNCHER)
    program.chmod(0o755)
    (folder := tmp_path / "seen").mkdir()
    for name, value in (("SPARK_HOME", tmp_path / "spark"), ("CALVE_TEST_SEEN", folder), ("CALVE_TEST_KEY", SECRET)):
        monkeypatch.setenv(name, str(value))
    return folder


# pyspark leaves the pipe to a launcher that has ended.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mine", [None, "--conf spark.speculation=true pyspark-shell"])
def test_settings_are_in_a_file_and_no_argument(seen: Path, mine: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SUBMIT, raising=False)
    if mine is not None:
        monkeypatch.setenv(SUBMIT, mine)
    conf = {"spark.hadoop.fs.s3a.secret.key": "${ENV:CALVE_TEST_KEY}"}
    with raises(SPARK_START) as raised:
        session.start(SparkSettings(master="local[1]", conf=conf))
    arguments = (seen / "arguments").read_text()
    assert "--properties-file" in arguments
    assert arguments.endswith("\n".join((mine or "pyspark-shell").split()) + "\n")
    assert SECRET not in arguments + str(raised.value)
    assert f"spark.hadoop.fs.s3a.secret.key={SECRET}" in (seen / "properties").read_text()
    assert (seen / "modes").read_text().split() == ["600", "700"]
    assert os.environ.get(SUBMIT) == mine
    gc.collect()
