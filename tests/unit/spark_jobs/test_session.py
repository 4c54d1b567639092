"""What stands on the command line of a Spark that is started, which every account of the machine may read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from tests.codes import says

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
    monkeypatch.delenv(SUBMIT, raising=False)
    for name, value in (("SPARK_HOME", tmp_path / "spark"), ("CALVE_TEST_SEEN", folder), ("CALVE_TEST_KEY", SECRET)):
        monkeypatch.setenv(name, str(value))
    return folder


# In a process of its own: others of this one may have a Spark that is up.
START = """
import os
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import CalveError
from calve.spark_jobs import session

before = os.environ.get("PYSPARK_SUBMIT_ARGS")
try:
    session.start(SparkSettings(master="local[1]", conf={"spark.hadoop.fs.s3a.secret.key": "${ENV:CALVE_TEST_KEY}"}))
except CalveError as error:
    print(error, os.environ.get("PYSPARK_SUBMIT_ARGS") == before)
"""


@pytest.mark.parametrize("mine", [None, "--conf spark.speculation=true pyspark-shell"])
def test_settings_are_in_a_file_and_no_argument(seen: Path, mine: str | None) -> None:
    environment = {**os.environ, **({SUBMIT: mine} if mine else {})}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=True)
    says(done.stdout, Code.SPARK_START, True)
    arguments = (seen / "arguments").read_text()
    assert "--properties-file" in arguments
    assert arguments.endswith("\n".join((mine or "pyspark-shell").split()) + "\n")
    assert SECRET not in arguments + done.stdout + done.stderr
    assert f"spark.hadoop.fs.s3a.secret.key={SECRET}" in (seen / "properties").read_text()
    assert (seen / "modes").read_text().split() == ["600", "700"]
